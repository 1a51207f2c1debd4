"""The shared state of one reading of a config: the checked value, its places, and the mistakes found so far."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config.files.secrets import restore_written, reveal
from proxy.config.files.source import ConfigSource, Files, describe_failure
from proxy.config.files.structure import Structure, describe_section
from proxy.config.mistakes import Mistake
from proxy.config.model import RouteEntry, UpstreamConfig
from proxy.core.model.values import JsonValue, Pointer
from proxy.plugin import AddsKeys
from proxy.plugins import find_plugins, list_keys


@dataclass(slots=True)
class Context:
    """One reading of one config. It collects mistakes and notes, and raises nothing."""

    source: ConfigSource
    structure: Structure
    folder: Path
    mistakes: list[Mistake] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Upstreams that routes and sections of plugins use.
    used_upstreams: set[str] = field(default_factory=set)
    # If set, secrets and files outside the config's folder may be missing.
    config_only: bool = False

    def where(self, path: Pointer) -> str:
        """The section a path belongs to, in words."""
        return describe_section(self.structure.value, path)

    def mistake(self, path: Pointer, message: str, hint: str = "", *, key: bool = False) -> None:
        """Records a mistake about the value at a path, or about its key."""
        self.mistakes.append(self.source.mistake(path, self.where(path), message, hint, key=key))

    def may_lack(self, path: Path) -> bool:
        """Returns whether a missing file is accepted: with `config_only`, one outside the config's folder."""
        inside = Path(os.path.normpath(path.absolute())).is_relative_to(self.folder.absolute())
        return self.config_only and not inside and not path.exists()

    def mapping(self, *path: str | int) -> Mapping[str, JsonValue]:
        """The valid parts of the mapping at a path; empty where there is none."""
        value = self.structure.entry(*path)
        return value if isinstance(value, dict) else {}

    def entries(self, *path: str | int) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
        """(name, valid parts) of every entry of the mapping at a path, without entries that are invalid as a whole."""
        for name in self.mapping(*path):
            entry = self.structure.entry(*path, name)
            if isinstance(entry, dict):
                yield name, entry

    def names(self, section_name: str) -> tuple[str, ...]:
        """Every name in a section, invalid entries included: a reference to one of them is not unknown."""
        value = self.structure.value.get(section_name)
        return tuple(map(reveal, value)) if isinstance(value, dict) else ()


def read_named_text(
    context: Context, files: Files, at: Pointer, name: JsonValue, hint: str = "paths start at the config file's folder"
) -> str | None:
    """Returns the text of a file that the config names. If it cannot be read, reports that and returns None."""
    try:
        return files.text(context.folder / reveal(name)).decode()
    except (OSError, ValueError) as error:
        context.mistake(at, f"cannot read {restore_written(name)}: {describe_failure(error)}", hint)
        return None


def read_sections(context: Context, files: Files, upstreams: Mapping[str, UpstreamConfig]) -> dict[str, object]:
    """The values of the plugins' sections, by key. Mistakes are recorded in `context`."""
    structure = context.structure
    return {
        key: plugin.read_section(key, context, files, upstreams)
        for plugin in find_plugins(AddsKeys)
        for key in plugin.sections
        if key in structure.value and (key,) not in structure.bad
    }


def list_mappings(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """The mappings among the entries of a mapping or a list."""
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (entry for entry in entries if isinstance(entry, dict))


def check_added_keys(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Has each plugin of which a key is written check its own keys together with the rest of the config."""
    # The keys of sections, those that `defaults`, tools and routes have, and those of their `limits`.
    value = context.structure.value
    used = set(value)
    for layers in ([value.get("defaults")], value.get("tools"), value.get("routes")):
        for layer in list_mappings(layers):
            listed = (tool for within in list_mappings(layer) for tool in list_mappings(within.get("tools")))
            for each in (layer, *listed):
                used.update(each, each["limits"] if isinstance(each.get("limits"), dict) else ())
    for plugin in find_plugins(AddsKeys):
        if not used.isdisjoint(list_keys(plugin)):
            plugin.check_keys(context, routes)
