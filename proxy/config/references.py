"""The documents a schema refers to: which they are, and where they come from. Nothing is ever fetched.

A `$ref` to another document is resolved against the base URI it stands under (RFC 3986), then looked for among the
documents the config registers, then among the files below the schema folder. What is found nowhere is left to
`compile_check`, which says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from proxy.config.mistakes import ConfigError
from proxy.config.source import Files, Source
from proxy.core.dialects import normalise
from proxy.core.model import JsonValue, Pointer
from proxy.core.schema import subschemas


@dataclass(frozen=True, slots=True)
class Document:
    """A schema document: its value in JSON Schema, its source, its URI, and the folder its references start from."""

    value: JsonValue
    source: Source
    uri: str
    folder: Path


def references(schema: JsonValue, base: str, path: Pointer = ()) -> Iterator[tuple[str, str, Pointer]]:
    """(target document's URI, reference as written, its place) of every `$ref` in a schema."""
    if not isinstance(schema, dict):
        return
    identifier = schema.get("$id", schema.get("id"))
    if isinstance(identifier, str) and not identifier.startswith("#"):
        base = urldefrag(urljoin(base, identifier)).url
    if isinstance(reference := schema.get("$ref"), str):
        yield urldefrag(urljoin(base, reference)).url, reference, (*path, "$ref")
    for step, child in subschemas(schema):
        yield from references(child, base, (*path, *step))


def identifiers(schema: JsonValue, base: str) -> Iterator[str]:
    """The URIs a document gives to itself and to parts of itself."""
    if not isinstance(schema, dict):
        return
    identifier = schema.get("$id", schema.get("id"))
    if isinstance(identifier, str):
        base = urldefrag(urljoin(base, identifier)).url
        yield base
    for _, child in subschemas(schema):
        yield from identifiers(child, base)


class Collector:
    """Finds the documents below `root` and among the registered ones that a schema leads to."""

    def __init__(self, files: Files, registered: Mapping[str, Source], root: Path, where: str) -> None:
        self._files = files
        self._registered = registered
        self._root = root
        self._where = where

    def collect(self, start: Document) -> dict[str, Document]:
        """Every document that can be reached, by URI, the first one left out. Raises ConfigError."""
        found: dict[str, Document] = {}
        known = {start.uri, *identifiers(start.value, start.uri)}
        waiting = [start]
        while waiting:
            document = waiting.pop()
            for target, reference, path in references(document.value, document.uri):
                if target in known or target in found:
                    continue
                if (next_one := self._find(document, target, reference, path)) is not None:
                    found[target] = next_one
                    known |= set(identifiers(next_one.value, target))
                    waiting.append(next_one)
        return found

    def _find(self, document: Document, target: str, reference: str, path: Pointer) -> Document | None:
        if (source := self._registered.get(target)) is not None:
            return Document(normalise(source.value)[0], source, target, document.folder)
        parts = urlsplit(reference)
        if parts.scheme or parts.netloc or not parts.path:
            return None
        name = unquote(parts.path)
        file = document.folder / name.lstrip("/")
        if not is_below(file, self._root):
            hint = "only files below the schema folder are read; register others under `documents`"
            raise ConfigError([document.source.mistake(path, self._where, f"$ref {reference!r} leaves it", hint)])
        try:
            source = self._files.source(file, shown(file, self._root))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = "paths start at the folder of the file that refers; nothing is ever fetched"
            message = f"$ref {reference!r} cannot be read: {reason}"
            raise ConfigError([document.source.mistake(path, self._where, message, hint)]) from None
        return Document(normalise(source.value)[0], source, target, file.parent)


def is_below(path: Path, folder: Path) -> bool:
    """Whether a path, symbolic links followed, lies below a folder."""
    return path.resolve().is_relative_to(folder.resolve())


def shown(path: Path, root: Path) -> str:
    """A file's name in messages: from the schema folder on where it lies below it."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
