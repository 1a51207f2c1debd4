"""What every reader of a section needs: the checked value, its places, and where mistakes go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config.mistakes import Mistake
from proxy.config.secrets import reveal
from proxy.config.source import Source
from proxy.config.structure import Structure, section
from proxy.core.model import JsonValue, Pointer


@dataclass(slots=True)
class Context:
    """One reading of one config. Mistakes and notes are collected; nothing is raised until all is read."""

    source: Source
    structure: Structure
    folder: Path
    mistakes: list[Mistake] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def where(self, path: Pointer) -> str:
        """The section a path belongs to, in words."""
        return section(self.structure.value, path)

    def mistake(self, path: Pointer, message: str, hint: str = "", *, key: bool = False) -> None:
        """Notes a mistake about the value at a path, or about its key."""
        self.mistakes.append(self.source.mistake(path, self.where(path), message, hint, key=key))

    def mapping(self, *path: str | int) -> Mapping[str, JsonValue]:
        """The right parts of the mapping at a path; empty where there is none."""
        value = self.structure.entry(*path)
        return value if isinstance(value, dict) else {}

    def entries(self, *path: str | int) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
        """(name, right parts) of every entry of the mapping at a path that is no mistake as a whole."""
        for name in self.mapping(*path):
            entry = self.structure.entry(*path, name)
            if isinstance(entry, dict):
                yield name, entry

    def names(self, section_name: str) -> tuple[str, ...]:
        """Every name written in a section, also of entries that are wrong: they are not unknown for that."""
        value = self.structure.value.get(section_name)
        return tuple(map(reveal, value)) if isinstance(value, dict) else ()
