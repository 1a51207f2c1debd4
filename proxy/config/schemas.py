"""Finds, reads and compiles a tool's schema, and converts it to JSON Schema.

`schema:` is a file (`file.yaml`, `file.json#/pointer`), a schema in place, a flat list of parameters, or an operation
of an OpenAPI description. Paths start at the config file's folder, which is also the schema folder; for a schema file
outside of it, the file's own folder is the schema folder. `references.py` finds the documents that a schema refers to.
`ReadSchema` knows the place of a schema, and each place within it, for mistakes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from proxy.config.context import Context
from proxy.config.files.references import Collector, SchemaDocument, find_references, is_below
from proxy.config.files.secrets import reveal
from proxy.config.files.source import ConfigSource, Files, describe_failure
from proxy.config.mistakes import LISTED_RULES, ConfigError, Mistake, explain_rule
from proxy.config.model import ToolSchema, UnknownKeywords
from proxy.core.check.validation import Check, SchemaError, compile_check, list_schema_faults
from proxy.core.contract.request_rules import RequestForm
from proxy.core.json.jsontext import dumps, find_at_pointer, format_pointer, parse_pointer
from proxy.core.lint.contradictions import list_refused_defaults, list_unsatisfiable
from proxy.core.lint.findings import Finding
from proxy.core.lint.keywords import lint, list_entry_findings
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.facts import list_mistaken_switches
from proxy.core.schema.definitions import find_definition, find_definitions, is_parameter_list, list_entries
from proxy.core.schema.dialects import normalise, suggest_remedy
from proxy.core.schema.drafts import is_conditional
from proxy.core.schema.formats import Formats
from proxy.core.schema.nodes import Schemas
from proxy.plugins import find_requests

# The most remarks about one schema that are shown, and the most faults of one that does not compile.
_MOST_NOTES: Final = 10
_MOST_FAULTS: Final = 20
# The base URI of schema files. The schema folder is its root, so that schemas contain no path of this machine.
BASE: Final = "file:///"


@value_class
class SchemaPlace:
    """The place of a schema: the document, the path in it, and the section of the config it serves."""

    source: ConfigSource
    path: Pointer
    where: str

    def mistake(self, message: str, hint: str = "", inside: Pointer = (), *, key: bool = False) -> Mistake:
        """A mistake about the schema, or about a place within it; `key`: about the key there."""
        return self.source.mistake((*self.path, *inside), self.where, message, hint, key=key)


@value_class
class ReadSchema:
    """A schema as JSON Schema, with everything it refers to. `place` is its place in the file."""

    value: JsonValue
    place: SchemaPlace
    uri: str
    documents: Mapping[str, SchemaDocument] = field(default_factory=dict)
    description: str = ""
    notes: tuple[str, ...] = ()


# --- schemas in documents that are no JSON Schema, which a plugin finds -----------------------------------------------
@value_class
class SourceProblem:
    """The reason why nothing can be taken out of a document, and a remedy."""

    message: str
    hint: str = ""


@value_class
class FoundSchema:
    """A tool in a document: the JSON Schema of its arguments, its description, notes on parts that were read
    differently from how they are written. `request` is the form of its arguments at the document's first server."""

    schema: JsonValue
    description: str
    notes: tuple[str, ...]
    request: RequestForm


# --- the loader -------------------------------------------------------------------------------------------------------
class SchemaLoader:
    """Reads and compiles schemas. A mistake goes to the context, and the method gives None."""

    def __init__(self, context: Context, files: Files) -> None:
        self._files = files
        self._unknown_keywords: UnknownKeywords = context.mapping("schemas").get("unknown_keywords", "misspelt")
        self._folder = context.folder
        self._mistakes = context.mistakes
        self._made: dict[tuple[str, Formats], ToolSchema] = {}
        self._loaded: dict[tuple[str | Pointer, Formats, frozenset[str]], ToolSchema] = {}
        self._imported: dict[tuple[str, str, frozenset[str]], FoundSchema] = {}
        self._registered: dict[str, ConfigSource] = {}
        for uri, name in context.mapping("documents").items():
            try:
                self._registered[uri] = files.source(context.folder / reveal(name), reveal(name))
            except ConfigError as error:
                context.mistakes.extend(error.mistakes)
            except (OSError, ValueError) as error:
                reason, hint = describe_failure(error), "paths start at the config file's folder"
                context.mistake(("documents", uri), f"cannot read {name}: {reason}", hint)

    def load(
        self, written: JsonValue, place: SchemaPlace, *, formats: Formats, provided: frozenset[str] = frozenset()
    ) -> ToolSchema | None:
        """The compiled schema written at a place of the config. `provided`: headers that the route sets itself, which
        are not arguments of an OpenAPI operation. A valid schema is read once, even if many routes use it."""
        at = reveal(written) if isinstance(written, str) else place.path
        key = (at, formats, provided if is_operation(written) else frozenset[str]())
        if (known := self._loaded.get(key)) is not None:
            return known
        try:
            made = self._loaded[key] = self._compile(self._read(written, place, provided), formats)
        except ConfigError as error:
            self._mistakes.extend(error.mistakes)
            return None
        return made

    def request(self, written: JsonValue, place: SchemaPlace, provided: frozenset[str]) -> RequestForm | None:
        """Returns the form of an OpenAPI operation's arguments in an HTTP request; None for every other schema. Its
        path begins with that of the description's first server."""
        if not is_operation(written):
            return None
        try:
            return self._import_operation(written, place, provided).request
        except ConfigError:
            return None  # `load` has reported it

    # --- reading ------------------------------------------------------------------------------------------------------
    def _read(self, written: JsonValue, place: SchemaPlace, provided: frozenset[str]) -> ReadSchema:
        if isinstance(written, str):
            return self._read_file(reveal(written), place)
        if is_operation(written):
            operation = self._import_operation(written, place, provided)
            value, notes = normalise(operation.schema)
            return ReadSchema(value, place, BASE, {}, operation.description, (*operation.notes, *notes))
        inner, remarks = find_definition(written)
        place = replace(place, path=(*place.path, *inner))
        _check_entries(find_at_pointer(written, inner), place)
        value, notes = normalise(find_at_pointer(written, inner))
        start = SchemaDocument(value, place.source.at(place.path), BASE, self._folder)
        documents = Collector(self._files, self._registered, self._folder, place.where).collect(start)
        return ReadSchema(value, place, BASE, documents, "", (*remarks, *notes))

    def _read_file(self, written: str, place: SchemaPlace) -> ReadSchema:
        name, _, fragment = written.partition("#")
        path = self._folder / name
        source = self._read_source(path, name, place)
        root = self._folder if is_below(path, self._folder) else path.parent
        uri = BASE + quote(path.relative_to(root).as_posix())
        # List indexes among the steps are numbers.
        within, steps = source.value, tuple[str | int, ...]()
        try:
            for step in parse_pointer(unquote(fragment)):
                steps = (*steps, int(step) if isinstance(within, list) else step)
                within = find_at_pointer(within, (step,))
        except (ValueError, LookupError):
            hint = "what follows # is a JSON Pointer such as /tools/weather"
            raise ConfigError([place.mistake(f"{written}: the file has nothing there", hint)]) from None
        inner, remarks = find_definition(within)
        steps = (*steps, *inner)
        _check_entries(find_at_pointer(source.value, steps), SchemaPlace(source, steps, place.where))
        names_draft = isinstance(source.value, dict) and "$schema" in source.value
        part, notes = normalise(find_at_pointer(source.value, steps), names_draft=names_draft)
        file = SchemaDocument(_replace_at(source.value, steps, part), source, uri, path.parent)
        documents = Collector(self._files, self._registered, root, place.where).collect(file)
        read = ReadSchema(part, SchemaPlace(source, steps, place.where), uri, documents, "", (*remarks, *notes))
        if not steps or not any(target == uri for target, _, _ in find_references(part, uri)):
            return read
        # The part refers to its own file, so the file becomes a document and the schema a reference into it.
        reference: dict[str, JsonValue] = {"$ref": f"{uri}#{quote(format_pointer(steps))}"}
        for holder in (part, source.value):
            if isinstance(holder, dict) and "$schema" in holder:
                reference.setdefault("$schema", holder["$schema"])
        return replace(read, value=reference, uri=BASE + "?part", documents={**documents, uri: file})

    def _read_source(self, path: Path, name: str, place: SchemaPlace) -> ConfigSource:
        try:
            return self._files.source(path, name)
        except OSError as error:
            hint = "paths start at the config file's folder"
            raise ConfigError([place.mistake(f"cannot read {name}: {error.strerror}", hint)]) from None
        except ValueError as error:
            raise ConfigError([place.mistake(f"cannot read {name}: {error}")]) from None

    def _import_operation(self, written: JsonValue, place: SchemaPlace, provided: frozenset[str]) -> FoundSchema:
        name, operation = reveal(written["openapi"]), reveal(written["operation"])
        key = (name, operation, provided)
        if (known := self._imported.get(key)) is not None:
            return known
        plugin = find_requests()
        if plugin is None:
            raise ConfigError([place.mistake("no plugin that reads OpenAPI descriptions is installed")])
        source = self._read_source(self._folder / name, name, place)
        found = plugin.read_operation(source.value, operation, provided)
        if isinstance(found, SourceProblem):
            raise ConfigError([place.mistake(f"{name}: {found.message}", found.hint)])
        self._imported[key] = found
        return found

    # --- compiling ----------------------------------------------------------------------------------------------------
    def _compile(self, read: ReadSchema, formats: Formats) -> ToolSchema:
        documents = {uri: document.value for uri, document in read.documents.items()}
        schema_id = hash_value({"schema": read.value, "documents": documents})[:12]
        if (made := self._made.get((schema_id, formats))) is not None:
            return made
        mistakes = []
        for uri, document in read.documents.items():
            others = {key: value for key, value in {read.uri: read.value, **documents}.items() if key != uri}
            try:
                compile_check(document.value, documents=others, base=uri)
            except SchemaError as error:
                place = SchemaPlace(document.source, (), read.place.where)
                mistakes.append(describe_unusable(error, document.value, place))
        if mistakes:
            raise ConfigError(mistakes)
        try:
            check = compile_check(read.value, documents=documents, base=read.uri, formats=formats)
        except SchemaError as error:
            raise ConfigError(self._list_mistakes(error, read, documents)) from None
        notes = read.notes
        if not check.linear:
            notes = (*notes, "a pattern needs backtracking: it is matched with a bounded number of steps")
        notes = (*notes, *self.examine(check, read), *list_refused_defaults(check.schemas))
        made = ToolSchema(read.value, check, schema_id, read.description, notes)
        self._made[schema_id, formats] = made
        return made

    def _list_mistakes(
        self, error: SchemaError, read: ReadSchema, documents: Mapping[str, JsonValue]
    ) -> Iterator[Mistake]:
        faults = list_schema_faults(read.value, documents=documents, base=read.uri)[:_MOST_FAULTS] or [error]
        yield from (describe_unusable(fault, read.value, read.place) for fault in faults)
        try:
            found = self.weigh(lint(Schemas(read.value, documents, read.uri)))
        except SchemaError:
            return
        places = {fault.path[:end] for fault in faults for end in range(1, len(fault.path) + 1)}
        if not is_operation_place(read.place):
            yield from (describe_finding(each, read) for each in found if each.is_grave and each.path not in places)

    def examine(self, check: Check, read: ReadSchema) -> Iterator[str]:
        """Returns notes on parts of the schema without effect. Raises ConfigError if such a part is surely an error."""
        if mistakes := list(_check_switches(check, read)):
            raise ConfigError(mistakes)
        contrary = [
            Finding(node.place.document, node.path, message, hint, not is_conditional(node.path))
            for node, message, hint in list_unsatisfiable(check)
        ]
        findings = self.weigh((*lint(check.schemas, check.formats), *contrary))
        is_foreign = is_operation_place(read.place)  # somebody else is its author: noted, and served
        if mistakes := [describe_finding(each, read) for each in findings if each.is_grave and not is_foreign]:
            raise ConfigError(mistakes)
        for each in findings[:_MOST_NOTES]:
            where = f"`{format_pointer(each.path)}`: " if each.path else ""
            yield f"{where}{each.message}" + (f"  ({each.hint})" if each.hint else "")
        if len(findings) > _MOST_NOTES:
            yield f"{len(findings) - _MOST_NOTES} more remarks of this kind"

    def weigh(self, findings: Iterable[Finding]) -> list[Finding]:
        """Returns the findings that count, as the operator weighs them; `note` is for configs from other documents."""
        mode = self._unknown_keywords
        counted = [finding for finding in findings if mode != "off" or not finding.is_keyword]
        if mode == "note":
            return [replace(finding, is_grave=False) for finding in counted]
        return [replace(each, is_grave=each.is_grave or (mode == "refuse" and each.is_keyword)) for each in counted]


def hash_value(value: JsonValue) -> str:
    """SHA-256, in hexadecimal, of a JSON value, independent of the order of keys."""
    return hashlib.sha256(dumps(_sort_keys(value))).hexdigest()


def _sort_keys(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sort_keys(item) for item in value]
    return reveal(value) if isinstance(value, str) else value


def _replace_at(value: JsonValue, steps: Pointer, part: JsonValue) -> JsonValue:
    if not steps:
        return part
    first, *rest = steps
    changed = value.copy()
    changed[first] = _replace_at(value[first], tuple(rest), part)
    return changed


# --- what is wrong in a schema, told at the line where it is written --------------------------------------------------
def is_operation(written: JsonValue) -> bool:
    """Returns whether a written schema names an operation of an OpenAPI description."""
    return isinstance(written, dict) and isinstance(written.get("openapi"), str)


def _check_switches(check: Check, read: ReadSchema) -> Iterator[Mistake]:
    """Finds unknown rules in `x-repair`, and unknown values of `x-null`."""
    own = None if is_operation_place(read.place) else read.uri
    for node, keyword, names in list_mistaken_switches(check.schemas):
        inside = (*node.path, keyword) if node.place.document == own else ()
        for name in names:
            message, hint = f"x-null is neither drop nor refuse: '{name}'", "say `drop` or `refuse`"
            if keyword == "x-repair":
                message, hint = explain_rule(name, f"x-repair names no repair rule: '{name}'", LISTED_RULES)
            yield read.place.mistake(message, hint, inside)


def _check_entries(written: JsonValue, place: SchemaPlace) -> None:
    """Raises ConfigError for a list that is not a flat list of parameters, and for a list of tools."""
    if listed := find_definitions(written):
        name = format_pointer(listed[0])
        hint = f"name one of them: the file and `#{name}`, or write the content of {name} in its place"
        raise ConfigError([place.mistake("this is a list of tools, and one tool takes one schema", hint)])
    if written == [] and find_at_pointer(place.source.value, place.path):
        raise ConfigError([])  # its entries are no mappings, which is reported already
    if found := list(list_entry_findings(written)):
        raise ConfigError([place.mistake(each.message, each.hint, each.path) for each in found])


def describe_finding(finding: Finding, read: ReadSchema) -> Mistake:
    """Returns a finding as a mistake, at its line in the file."""
    place, inside = read.place, finding.path
    if finding.document in read.documents:
        place = SchemaPlace(read.documents[finding.document].source, (), read.place.where)
    else:
        inside = _find_written(place, inside)
    return place.mistake(finding.message, finding.hint, inside, key=finding.is_keyword)


def _find_written(place: SchemaPlace, inside: Pointer) -> Pointer:
    """The place in the text of a place in the schema: a property of a list of parameters is one of its entries."""
    written = find_at_pointer(place.source.value, place.path)
    if len(inside) < 2 or not is_parameter_list(written):
        return inside
    named = (at for at, entry in list_entries(written) if reveal(entry["name"]) == inside[1])
    return (*next(named, ()), *inside[2:])


def describe_unusable(error: SchemaError, value: JsonValue, place: SchemaPlace) -> Mistake:
    """A schema that does not compile, as a mistake with its remedy."""
    subject, inside = ("the imported schema", ()) if is_operation_place(place) else ("the schema", error.path)
    message = f"{subject} does not compile: {word_error(error)}"
    return place.mistake(message, suggest_remedy(value, error.path), _find_written(place, inside))


def word_error(error: SchemaError) -> str:
    """The place within the schema, and what is wrong there."""
    return f"{format_pointer(error.path)}: {error.message}" if error.path else error.message


def is_operation_place(place: SchemaPlace) -> bool:
    """Returns whether a place in the config holds a reference to an OpenAPI operation and not the schema itself."""
    try:
        return is_operation(find_at_pointer(place.source.value, place.path))
    except LookupError:
        return False
