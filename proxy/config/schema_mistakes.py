"""What is wrong in a written schema, told at the line where it is written.

A schema is written in the config, in a file, as a flat list of parameters, or as an operation of an OpenAPI
description; `ReadSchema` knows which, and where a place within it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from proxy.config.files.references import SchemaDocument
from proxy.config.files.secrets import reveal
from proxy.config.files.source import ConfigSource
from proxy.config.mistakes import ConfigError, Mistake, suggest_word
from proxy.core.check.validation import Check, SchemaError
from proxy.core.json.jsontext import find_at_pointer, format_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.facts import list_mistaken_null_switches, list_mistaken_switches
from proxy.core.rules.rules import RULES
from proxy.core.schema.dialects import find_definitions, is_parameter_list, suggest_remedy
from proxy.core.schema.lint import Finding, list_entry_findings


@value_class
class SchemaPlace:
    """Where a schema is written: the document, the path in it, and the section of the config it serves."""

    source: ConfigSource
    path: Pointer
    where: str

    def mistake(self, message: str, hint: str = "", inside: Pointer = (), *, key: bool = False) -> Mistake:
        """A mistake about the schema, or about a place within it; `key`: about the key there."""
        return self.source.mistake((*self.path, *inside), self.where, message, hint, key=key)


@value_class
class ReadSchema:
    """A schema as JSON Schema, with everything it refers to. `place` is where it is written."""

    value: JsonValue
    place: SchemaPlace
    uri: str
    documents: Mapping[str, SchemaDocument] = field(default_factory=dict)
    description: str = ""
    notes: tuple[str, ...] = ()


def is_openapi(written: JsonValue) -> bool:
    """Whether a written schema names an operation of an OpenAPI description."""
    return isinstance(written, dict) and isinstance(written.get("openapi"), str)


def check_switches(check: Check, read: ReadSchema) -> Iterator[Mistake]:
    """Finds unknown rules in `x-repair`, and unknown values of `x-null`."""
    own = None if is_openapi_place(read.place) else read.uri
    for node, names in list_mistaken_switches(check.schemas):
        inside = (*node.path, "x-repair") if node.place.document == own else ()
        for name in names:
            hint = suggest_word(name, RULES) or "docs/reference/rules.md lists the rules"
            yield read.place.mistake(f"x-repair names no repair rule: '{name}'", hint, inside)
    for node, written in list_mistaken_null_switches(check.schemas):
        inside = (*node.path, "x-null") if node.place.document == own else ()
        yield read.place.mistake(f"x-null is neither drop nor refuse: '{written}'", "say `drop` or `refuse`", inside)


def check_entries(written: JsonValue, place: SchemaPlace) -> None:
    """Raises ConfigError for a list that is not a flat list of parameters, and for a list of tools."""
    if listed := find_definitions(written):
        name = format_pointer(listed[0])
        hint = f"name one of them: the file and `#{name}`, or write what stands at {name} in its place"
        raise ConfigError([place.mistake("this is a list of tools, and one tool takes one schema", hint)])
    if not isinstance(written, list):
        return
    if not written and find_at_pointer(place.source.value, place.path):
        raise ConfigError([])  # its entries are no mappings, which is reported already
    if found := list(list_entry_findings(written)):
        raise ConfigError([place.mistake(each.message, each.hint, each.path) for each in found])


def describe_finding(finding: Finding, read: ReadSchema) -> Mistake:
    """A finding as a mistake, at the line where it is written."""
    place, inside = read.place, finding.path
    if finding.document in read.documents:
        place = SchemaPlace(read.documents[finding.document].source, (), read.place.where)
    else:
        entries = find_at_pointer(place.source.value, place.path)
        if is_parameter_list(entries) and inside[:1] == ("properties",):
            names: list[JsonValue] = [reveal(entry["name"]) for entry in entries]
            inside = (names.index(inside[1]), *inside[2:])
    return place.mistake(finding.message, finding.hint, inside, key=finding.is_keyword)


def describe_unusable(error: SchemaError, value: JsonValue, place: SchemaPlace) -> Mistake:
    """A schema that does not compile, as a mistake with its remedy."""
    subject, inside = ("the imported schema", ()) if is_openapi_place(place) else ("the schema", error.path)
    message = f"{subject} does not compile: {word_error(error)}"
    return place.mistake(message, suggest_remedy(value, error.path), inside)


def word_error(error: SchemaError) -> str:
    """The place within the schema, and what is wrong there."""
    return f"{format_pointer(error.path)}: {error.message}" if error.path else error.message


def is_openapi_place(place: SchemaPlace) -> bool:
    """Whether a place in the config holds a reference to an OpenAPI operation and not the schema itself."""
    try:
        return is_openapi(find_at_pointer(place.source.value, place.path))
    except LookupError:
        return False
