"""A tool's schema: found, read, brought to JSON Schema, compiled.

`schema:` is a file (`file.yaml`, `file.json#/pointer`), a schema in place, a flat list of parameters, or an operation
of an OpenAPI description. Paths start at the config file's folder, which is the schema folder too; a schema file that
lies elsewhere brings its own. What a schema refers to is found by `references.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from proxy.config.mistakes import ConfigError, Mistake, did_you_mean
from proxy.config.model import ToolSchema
from proxy.config.references import Collector, Document, is_below, references
from proxy.config.secrets import reveal
from proxy.config.source import Files, Source
from proxy.core.dialects import normalise, remedy
from proxy.core.jsontext import at_pointer, dumps, format_pointer, parse_pointer
from proxy.core.model import JsonValue, Pointer
from proxy.core.rules import RULES
from proxy.core.sites import mistaken_switches
from proxy.core.validation import Check, SchemaError, compile_check

if TYPE_CHECKING:
    from proxy.core.openapi import ImportedOperation

# The base URI of schema files: the schema folder is its root, so that no path of the machine is in a schema.
_BASE: Final = "file:///"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a schema is written: the document, the path in it, and the section of the config it serves."""

    source: Source
    path: Pointer
    where: str

    def mistake(self, message: str, hint: str = "", inside: Pointer = ()) -> Mistake:
        """A mistake about the schema, or about a place inside it."""
        return self.source.mistake((*self.path, *inside), self.where, message, hint)


@dataclass(frozen=True, slots=True)
class _Read:
    """A schema, read and in JSON Schema, with all it refers to. `place` is where it is written."""

    value: JsonValue
    place: Place
    uri: str
    documents: Mapping[str, Document] = field(default_factory=dict)
    description: str = ""
    notes: tuple[str, ...] = ()


class Schemas:
    """Reads and compiles schemas. What is wrong goes to `report`, and None comes back; it is reported once."""

    def __init__(
        self, files: Files, folder: Path, registered: Mapping[str, Source], report: Callable[[Mistake], None]
    ) -> None:
        self._files = files
        self._folder = folder
        self._registered = registered
        self._report = report
        self._made: dict[tuple[str, bool], ToolSchema] = {}

    def load(self, written: JsonValue, place: Place, *, formats: bool) -> ToolSchema | None:
        """The schema written at a place of the config, compiled."""
        try:
            return self._compiled(self._read(written, place), formats)
        except ConfigError as error:
            for mistake in error.mistakes:
                self._report(mistake)
            return None

    def check_parameters(self, written: JsonValue, place: Place, provided: frozenset[str]) -> None:
        """Reports an OpenAPI operation that needs more than its body and what the route provides."""
        if not is_openapi(written):
            return
        try:
            self._operation(written, place, None)
        except ConfigError:
            return  # `load` has said so
        try:
            self._operation(written, place, provided)
        except ConfigError as error:
            for mistake in error.mistakes:
                self._report(mistake)

    # --- reading ------------------------------------------------------------------------------------------------------
    def _read(self, written: JsonValue, place: Place) -> _Read:
        if isinstance(written, str):
            return self._read_file(reveal(written), place)
        if is_openapi(written):
            operation = self._operation(written, place, None)
            value, notes = normalise(operation.schema)
            return _Read(value, place, _BASE, {}, operation.description, (*operation.notes, *notes))
        value, notes = normalise(written)
        documents = self._collector(self._folder, place).collect(
            Document(value, _below_path(place), _BASE, self._folder)
        )
        return _Read(value, place, _BASE, documents, "", notes)

    def _read_file(self, written: str, place: Place) -> _Read:
        name, _, fragment = written.partition("#")
        path = self._folder / name
        source = self._source(path, name, place)
        root = self._folder if is_below(path, self._folder) else path.parent
        uri = _BASE + quote(path.relative_to(root).as_posix())
        steps = self._steps_to(source, fragment, written, place)
        part, notes = normalise(at_pointer(source.value, steps))
        file = Document(_with(source.value, steps, part), source, uri, path.parent)
        documents = dict(self._collector(root, place).collect(file))
        read = _Read(part, Place(source, steps, place.where), uri, documents, "", notes)
        if not steps or not any(target == uri for target, _, _ in references(part, uri)):
            return read
        # The part refers to its own file: then the file is the document, and the schema a reference into it.
        reference: dict[str, JsonValue] = {"$ref": f"{uri}#{quote(format_pointer(steps))}"}
        for holder in (part, source.value):
            if isinstance(holder, dict) and "$schema" in holder:
                reference.setdefault("$schema", holder["$schema"])
        return replace(read, value=reference, uri=_BASE + "?part", documents={**documents, uri: file})

    def _collector(self, root: Path, place: Place) -> Collector:
        return Collector(self._files, self._registered, root, place.where)

    def _source(self, path: Path, name: str, place: Place) -> Source:
        try:
            return self._files.source(path, name)
        except OSError as error:
            hint = "paths start at the config file's folder"
            raise ConfigError([place.mistake(f"cannot read {name}: {error.strerror}", hint)]) from None
        except ValueError as error:
            raise ConfigError([place.mistake(f"cannot read {name}: {error}")]) from None

    def _steps_to(self, source: Source, fragment: str, written: str, place: Place) -> Pointer:
        """The steps of a pointer into a file, list indexes as numbers."""
        value, steps = source.value, []
        try:
            for step in parse_pointer(unquote(fragment)):
                steps.append(int(step) if isinstance(value, list) else step)
                value = at_pointer(value, (step,))
        except (ValueError, LookupError):
            hint = "what follows # is a JSON Pointer such as /tools/weather"
            raise ConfigError([place.mistake(f"{written}: the file has nothing there", hint)]) from None
        return tuple(steps)

    def _operation(self, written: JsonValue, place: Place, provided: frozenset[str] | None) -> ImportedOperation:
        from proxy.core.openapi import OpenApiError, import_operation  # only here: not every config has a description

        name = reveal(written["openapi"])
        source = self._source(self._folder / name, name, place)
        try:
            return import_operation(source.value, reveal(written["operation"]), provided)
        except OpenApiError as error:
            raise ConfigError([place.mistake(f"{name}: {error.message}", error.hint)]) from None

    # --- compiling ----------------------------------------------------------------------------------------------------
    def _compiled(self, read: _Read, formats: bool) -> ToolSchema:
        documents = {uri: document.value for uri, document in read.documents.items()}
        schema_id = fingerprint({"schema": read.value, "documents": documents})[:12]
        if (made := self._made.get((schema_id, formats))) is not None:
            return made
        mistakes = [
            mistake
            for uri, document in read.documents.items()
            for mistake in _try(
                document.value, {read.uri: read.value, **documents}, uri, Place(document.source, (), read.place.where)
            )
        ]
        if mistakes:
            raise ConfigError(mistakes)
        check = _check(read, documents, formats)
        notes = read.notes
        if not check.linear:
            notes = (*notes, "a pattern needs backtracking: it is matched with a bounded number of steps")
        made = ToolSchema(read.value, check, schema_id, read.description, notes)
        self._made[schema_id, formats] = made
        return made


def is_openapi(written: JsonValue) -> bool:
    """Whether a written schema names an operation of an OpenAPI description."""
    return isinstance(written, dict) and isinstance(written.get("openapi"), str)


def fingerprint(value: JsonValue) -> str:
    """SHA-256, in hexadecimal, of a JSON value; the order of keys does not count."""
    return hashlib.sha256(dumps(_sorted(value))).hexdigest()


def _sorted(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return reveal(value) if isinstance(value, str) else value


def _check(read: _Read, documents: Mapping[str, JsonValue], formats: bool) -> Check:
    try:
        check = compile_check(read.value, documents=documents, base=read.uri, formats=formats)
    except SchemaError as error:
        raise ConfigError([_unusable(error, read.value, read.place)]) from None
    if mistakes := list(_switches(check, read)):
        raise ConfigError(mistakes)
    return check


def _switches(check: Check, read: _Read) -> Iterator[Mistake]:
    """`x-repair` lists that name no rule."""
    for node, names in mistaken_switches(check.schemas):
        inside = (
            (*node.path, "x-repair") if node.place.document == read.uri and not is_openapi_place(read.place) else ()
        )
        for name in names:
            hint = did_you_mean(name, RULES) or "docs/repair.md lists the rules"
            yield read.place.mistake(f"x-repair names no repair rule: '{name}'", hint, inside)


def _try(value: JsonValue, documents: Mapping[str, JsonValue], uri: str, place: Place) -> list[Mistake]:
    """What is wrong with a document that a schema refers to."""
    others = {key: other for key, other in documents.items() if key != uri}
    try:
        compile_check(value, documents=others, base=uri)
    except SchemaError as error:
        return [_unusable(error, value, place)]
    return []


def _unusable(error: SchemaError, value: JsonValue, place: Place) -> Mistake:
    if is_openapi_place(place):
        return place.mistake(f"the imported schema does not compile: {_at(error)}", remedy(value, error.path))
    return place.mistake(f"the schema does not compile: {_at(error)}", remedy(value, error.path), error.path)


def _at(error: SchemaError) -> str:
    return f"{format_pointer(error.path)}: {error.message}" if error.path else error.message


def is_openapi_place(place: Place) -> bool:
    """Whether a place in the config holds a reference to an OpenAPI operation and not the schema itself."""
    try:
        return is_openapi(at_pointer(place.source.value, place.path))
    except LookupError:
        return False


def _with(value: JsonValue, steps: Pointer, part: JsonValue) -> JsonValue:
    """A copy of a document with another value at a path."""
    if not steps:
        return part
    first, *rest = steps
    changed = value.copy()
    changed[first] = _with(value[first], tuple(rest), part)
    return changed


def _below_path(place: Place) -> Source:
    """A source whose paths start at a place, for a schema written inside the config."""
    return Source(place.source.file, at_pointer(place.source.value, place.path), _Below(place.source, place.path))


@dataclass(frozen=True, slots=True)
class _Below:
    source: Source
    path: Pointer

    def at(self, path: Pointer) -> tuple[int, int]:
        return self.source.places.at((*self.path, *path))

    def key_at(self, path: Pointer) -> tuple[int, int]:
        return self.source.places.key_at((*self.path, *path))
