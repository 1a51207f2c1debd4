"""Finds the documents that a schema refers to. Nothing is fetched over the network.

A `$ref` to another document is resolved against its base URI (RFC 3986). It is looked up among the documents registered
in the config, then among the files below the schema folder. `compile_check` reports references that are found nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from proxy.config.files.source import ConfigSource, Files, describe_failure
from proxy.config.mistakes import ConfigError, Mistake
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import normalise
from proxy.core.schema.drafts import list_subschemas


@value_class
class SchemaDocument:
    """A schema document: its value in JSON Schema, its source, its URI, and the folder its references start from."""

    value: JsonValue
    source: ConfigSource
    uri: str
    folder: Path


def find_references(schema: JsonValue, base: str) -> Iterator[tuple[str, str, Pointer]]:
    """(target document's URI, reference as written, its place) of every `$ref` in a schema."""
    for part, its_base, path in _list_parts(schema, base):
        reference = part.get("$ref")
        if isinstance(reference, str) and (target := _resolve(its_base, reference)) is not None:
            yield target, reference, (*path, "$ref")


def _resolve(base: str, reference: str) -> str | None:
    """The URI of the document that a reference leads to; None for one that is no URI, which compiling reports."""
    try:
        return urldefrag(urljoin(base, reference)).url
    except ValueError:
        return None


def _list_parts(schema: JsonValue, base: str, path: Pointer = ()) -> Iterator[tuple[JsonValue, str, Pointer]]:
    """Every subschema, with the URI that its references start from and its place. These URIs are the names that a
    document gives to itself and to parts of itself."""
    if not isinstance(schema, dict):
        return
    identifier = schema.get("$id", schema.get("id"))
    if isinstance(identifier, str) and not identifier.startswith("#"):
        base = _resolve(base, identifier) or base
    yield schema, base, path
    for step, child in list_subschemas(schema):
        yield from _list_parts(child, base, (*path, *step))


class Collector:
    """Collects the documents that a schema reaches, below `root` and among the registered ones."""

    def __init__(self, files: Files, registered: Mapping[str, ConfigSource], root: Path, where: str) -> None:
        self._files = files
        self._registered = registered
        self._root = root
        self._where = where

    def collect(self, start: SchemaDocument) -> dict[str, SchemaDocument]:
        """URI -> document, for every document that `start` reaches, without itself. Raises ConfigError with each
        dangling one."""
        found: dict[str, SchemaDocument] = {}
        mistakes: list[Mistake] = []
        known = {start.uri, *(base for _, base, _ in _list_parts(start.value, start.uri))}
        waiting = [start]
        while waiting:
            document = waiting.pop()
            for target, reference, path in find_references(document.value, document.uri):
                if target in known or target in found:
                    continue
                try:
                    next_one = self._find(document, target, reference, path)
                except ConfigError as error:
                    mistakes.extend(error.mistakes)
                    continue
                if next_one is not None:
                    found[target] = next_one
                    known.update(base for _, base, _ in _list_parts(next_one.value, target))
                    waiting.append(next_one)
        if mistakes:
            raise ConfigError(mistakes)
        return found

    def _find(self, document: SchemaDocument, target: str, reference: str, path: Pointer) -> SchemaDocument | None:
        if (source := self._registered.get(target)) is not None:
            return SchemaDocument(normalise(source.value)[0], source, target, document.folder)
        parts = urlsplit(reference)
        if parts.scheme or parts.netloc or not parts.path:
            return None
        name = unquote(parts.path)
        file = document.folder / name.lstrip("/")
        if not is_below(file, self._root):
            hint = "only files below the schema folder are read; register others under `documents`"
            raise ConfigError([document.source.mistake(path, self._where, f"$ref {reference!r} leaves it", hint)])
        shown = file.relative_to(self._root) if file.is_relative_to(self._root) else file
        try:
            source = self._files.source(file, shown.as_posix())
        except (OSError, ValueError) as error:
            hint = "paths start at the folder of the file that refers; nothing is ever fetched"
            message = f"$ref {reference!r} cannot be read: {describe_failure(error)}"
            raise ConfigError([document.source.mistake(path, self._where, message, hint)]) from None
        return SchemaDocument(normalise(source.value)[0], source, target, file.parent)


def is_below(path: Path, folder: Path) -> bool:
    """Returns whether a path lies below a folder, with symbolic links followed."""
    return path.resolve().is_relative_to(folder.resolve())
