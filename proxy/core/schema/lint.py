"""Finds what a schema says in vain: keywords that nobody reads, values that keywords of ours do not take, limits that
exclude each other. Pure.

JSON Schema ignores keywords that it does not know (2020-12 core 4.3.1), so a misspelt one guards nothing, and nothing
says so. `lint` tells two kinds apart. A finding is *grave* where the schema surely means a keyword that it does not
have (`requird`, a property map without `properties`): whoever serves it serves a tool that is unguarded there. Any
other unknown keyword may be an annotation of its author's, and is mentioned.

Only places that hold schemas are examined: what stands in `enum`, `const`, `default` and `examples` is data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsontext import FRACTIONS, JSON_TYPES, dumps, format_pointer, make_decimal
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import ENTRY_WORDS, TYPE_NAMES, is_parameter_list
from proxy.core.schema.drafts import KNOWN_BY, Draft, knows
from proxy.core.schema.nodes import Node, Schemas

# Keywords that can refuse a value, in all drafts.
ASSERTING: Final = frozenset(
    ["type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
     "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "contains", "maxContains", "minContains",
     "maxProperties", "minProperties", "required", "dependentRequired", "dependentSchemas", "dependencies", "allOf",
     "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "additionalItems", "unevaluatedItems",
     "properties", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties", "format",
     "$ref", "$dynamicRef", "$recursiveRef"]
)  # fmt: skip
# Keywords that say something and refuse nothing: of all drafts, and of OpenAPI's schemas (3.0, "Schema Object").
_SAYING: Final = frozenset(
    ["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs",
     "definitions", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "contentEncoding", "contentMediaType", "contentSchema", "nullable", "discriminator", "xml", "externalDocs",
     "example"]
)  # fmt: skip
_KNOWN: Final = ASSERTING | _SAYING
# Words that people write in schemas on purpose, and that are near an asserting keyword.
_OWN_WORDS: Final = frozenset(
    ["allow", "container", "cost", "count", "dtype", "form", "host", "multiple", "note", "notes", "num", "option",
     "options", "unit", "units", "when"]
)  # fmt: skip
# Limits that exclude each other where the first is above the second, and the types they speak of. Where one of them
# excludes its own number, they may not be equal either.
_OF_NUMBERS: Final = ("number", "integer")
_LIMITS: Final = (
    ("minimum", "maximum", _OF_NUMBERS),
    ("exclusiveMinimum", "maximum", _OF_NUMBERS),
    ("minimum", "exclusiveMaximum", _OF_NUMBERS),
    ("exclusiveMinimum", "exclusiveMaximum", _OF_NUMBERS),
    ("minLength", "maxLength", ("string",)),
    ("minItems", "maxItems", ("array",)),
    ("minContains", "maxContains", ("array",)),
    ("minProperties", "maxProperties", ("object",)),
)
_SEVERITIES: Final = ("error", "warning", "info")
_LONGEST_SAMPLE: Final = 160


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a schema says in vain: its document and place, what is wrong, and what to write instead.

    `is_grave`: the schema surely means more than it guards. `is_keyword`: it is about an unknown keyword, so that the
    operator's `schemas.unknown_keywords` decides.
    """

    document: str
    path: Pointer
    message: str
    hint: str = ""
    is_grave: bool = False
    is_keyword: bool = False


def lint(schemas: Schemas) -> Iterator[Finding]:
    """The findings of everything that a compiled schema can reach, documents it refers to included."""
    for node in schemas.nodes():
        if isinstance(node.raw, dict):
            yield from _lint_node(node, node.raw)
    if not any(isinstance(node.raw, bool) or node.raw.keys() & ASSERTING for node in (schemas.root,)):
        yield Finding(schemas.base, (), "the schema has no keyword that could refuse anything: every call passes")


def describe_grave(schemas: Schemas) -> str:
    """What a schema of somebody else's surely means and does not guard, in one line of at most three remarks; '' where
    there is nothing of the kind."""
    grave = [finding for finding in lint(schemas) if finding.is_grave]
    remarks = [f"{format_pointer(each.path)}: {each.message} ({each.hint})"[:300] for each in grave[:3]]
    return "; ".join(remarks) + (f"; and {len(grave) - 3} more" if len(grave) > 3 else "")


def _lint_node(node: Node, raw: Mapping[str, JsonValue]) -> Iterator[Finding]:
    document, path = node.place.document, node.path
    unknown = [key for key in raw if key not in _KNOWN and not key.startswith("x-")]
    unknown += [key for key in raw if key in KNOWN_BY and not knows(node.draft, key)]
    declared = find_property_map(raw, is_root=not path)
    if declared:
        yield Finding(document, (*path, declared[0]), *word_property_map(raw, declared), is_grave=True, is_keyword=True)
    for key in unknown:
        if key not in declared:
            yield _judge_keyword(key, document, (*path, key), node.draft)
    for message, hint in _list_wrong_switches(raw):
        yield Finding(document, path, message, hint, is_grave=True)
    for message in _list_contrary_limits(raw):
        yield Finding(document, path, message, "change one of the two", is_grave=True)
    yield from _list_undeclared(node, raw)


# --- keywords that nobody reads ---------------------------------------------------------------------------------------
def _judge_keyword(key: str, document: str, path: Pointer, draft: Draft) -> Finding:
    if key in _KNOWN:
        first = KNOWN_BY[key]
        message = f"{key!r} is a keyword of other drafts: draft {draft.value} ignores it"
        return Finding(
            document, path, message, f"it belongs to drafts {first[0].value} to {first[1].value}", False, True
        )
    meant = find_meant_keyword(key)
    message = f"unknown keyword {key!r}, which JSON Schema ignores"
    if meant is None:
        return Finding(document, path, message, "call it `x-...` if it is a remark of yours", False, True)
    return Finding(document, path, message, f"did you mean {meant!r}?", True, True)


def find_meant_keyword(key: str) -> str | None:
    """The asserting keyword that a misspelt one is surely meant for: one edit away, or two from eight letters on,
    whatever the case and the separators. None for keywords that exist, and for words that people write on purpose."""
    folded = _fold(key)
    if key in _KNOWN or key.startswith("x-") or folded in _OWN_WORDS or folded in _FOLDED_SAYING:
        return None
    near = [
        (distance, keyword)
        for keyword, letters in _FOLDED_ASSERTING
        if (distance := _count_edits(folded, letters)) <= (2 if len(letters) >= 8 else 1)
    ]
    return min(near)[1] if near else None


def _fold(key: str) -> str:
    return "".join(letter for letter in key.lower() if letter.isalnum() or letter == "$")


_FOLDED_SAYING: Final = frozenset(map(_fold, _SAYING))
_FOLDED_ASSERTING: Final = tuple((key, _fold(key)) for key in sorted(ASSERTING) if len(key) >= 4 and key[0] != "$")


def _count_edits(one: str, other: str) -> int:
    """The letters to insert, drop, exchange or swap (optimal string alignment); 3 stands for three and more."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                row[j] = min(row[j], last[j - 2] + 1)
    return min(row[-1], 3)


# --- properties without `properties` ----------------------------------------------------------------------------------
def find_property_map(schema: Mapping[str, JsonValue], *, is_root: bool) -> tuple[str, ...]:
    """The keys of a schema that are properties written beside its keywords: `{lat: {type: number}}`, and
    `{lat: number}` where nothing else stands beside them. () where `properties` or another keyword says what holds."""
    if schema.keys() & ASSERTING - {"type", "required", "additionalProperties"} or not _may_be_object(schema):
        return ()
    own = [key for key in schema if key not in _KNOWN and not key.startswith("x-") and not find_meant_keyword(key)]
    described = tuple(key for key in own if _is_described(schema[key]))
    named = tuple(key for key in own if isinstance(value := schema[key], str) and value.lower() in TYPE_NAMES)
    if described:
        return tuple(key for key in own if key in described or key in named)
    alone = len(named) == len(schema) or (is_root and len(named) == len(own) and schema.keys() & {"type", "required"})
    return named if alone else ()


def _may_be_object(schema: Mapping[str, JsonValue]) -> bool:
    return schema.get("type", "object") in ("object", ["object"])


def _is_described(value: JsonValue) -> bool:
    """Whether a value is written as the schema of a property is."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind.lower() in TYPE_NAMES


def word_property_map(schema: Mapping[str, JsonValue], declared: tuple[str, ...]) -> tuple[str, str]:
    """(message, hint) for properties beside the keywords; the hint says the same rightly."""
    first = repr(declared[0]) if len(declared) == 1 else f"{declared[0]!r} and {len(declared) - 1} more"
    properties, required = {}, list(schema["required"]) if isinstance(schema.get("required"), list) else []
    for key in declared:
        written = schema[key] if isinstance(schema[key], dict) else {"type": schema[key]}
        if written.get("required") is True:
            required.append(key)
        properties[key] = {
            name: value for name, value in written.items() if not (name == "required" and value in (True, False))
        }
        kind = properties[key]["type"].lower()
        properties[key]["type"] = TYPE_NAMES[kind] or kind
        if TYPE_NAMES[kind] is None:
            del properties[key]["type"]
    whole: dict[str, JsonValue] = {"type": "object", "properties": properties}
    if required:
        whole["required"] = list(dict.fromkeys(required))
    text = dumps(whole).decode()
    sample = text if len(text) <= _LONGEST_SAMPLE else '{"type": "object", "properties": {"' + declared[0] + '": ...}}'
    return (
        f"{first} stands where keywords stand, and guards nothing: a property belongs under `properties`",
        f"write {sample}",
    )


# --- values and limits ------------------------------------------------------------------------------------------------
def _list_wrong_switches(raw: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Values that our own keywords do not take."""
    severity = raw.get("x-severity", "error")
    for written in severity.values() if isinstance(severity, dict) else (severity,):
        if written not in _SEVERITIES:
            yield f"x-severity is none of {', '.join(_SEVERITIES)}: {show(written)}", "say `warning`, `info` or `error`"
    if isinstance(severity, dict):
        for key in severity:
            if key not in ASSERTING:
                yield f"x-severity names no keyword: {key!r}", "its keys are keywords such as `maxLength`"
    if not isinstance(raw.get("x-hint", ""), str):
        yield f"x-hint is not a text: {show(raw['x-hint'])}", "say it in one sentence"
    if not isinstance(raw.get("x-sensitive", False), bool):
        yield f"x-sensitive is neither true nor false: {show(raw['x-sensitive'])}", "say `true`"


def show(value: JsonValue) -> str:
    """A value of a config in a message, as YAML and JSON spell it and cut to 40 characters."""
    text = dumps(value).decode()
    return text if len(text) <= 40 else text[:39] + "…"


def _list_contrary_limits(raw: Mapping[str, JsonValue]) -> Iterator[str]:
    types = raw.get("type", list(JSON_TYPES))
    named = types if isinstance(types, list) else [types]
    for least, most, kinds in _LIMITS:
        low, high = raw.get(least), raw.get(most)
        if not _is_number(low) or not _is_number(high) or not any(kind in named for kind in kinds):
            continue
        gap = make_decimal(high) - make_decimal(low)
        if gap < 0 or (gap == 0 and "exclusive" in least + most):
            excluded = f"`{least}: {show(low)}` and `{most}: {show(high)}` exclude each other"
            yield f"no {kinds[0]} can satisfy it, {excluded}"


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, (int, *FRACTIONS)) and not isinstance(value, bool)


def _list_undeclared(node: Node, raw: Mapping[str, JsonValue]) -> Iterator[Finding]:
    """Names that an open object requires and nothing describes: nobody judges their values."""
    required = raw.get("required")
    if not isinstance(required, list) or not isinstance(raw.get("properties"), dict):
        return
    if raw.keys() & {"additionalProperties", "patternProperties", "unevaluatedProperties"} or any(
        key in raw for key in ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas")
    ):
        return
    for name in required:
        if isinstance(name, str) and name not in raw["properties"]:
            message = f"{format_pointer((name,))[1:]!r} is required and not among `properties`: its value is not judged"
            yield Finding(node.place.document, (*node.path, "required"), message, "declare it, or take it out")


# --- flat lists of parameters -----------------------------------------------------------------------------------------
def list_entry_findings(entries: list[JsonValue]) -> Iterator[Finding]:
    """What is wrong with a list that stands in place of a schema; nothing for a flat list of parameters."""
    sound = True
    for index, entry in enumerate(entries):
        for finding in _judge_entry(entry, index):
            sound = False
            yield finding
    if sound and not is_parameter_list(entries):
        message = "a list of parameters needs an entry for each, and every name once"
        yield Finding("", (), message, "write `- {name: lat, type: number, required: true}`", is_grave=True)


def _judge_entry(entry: JsonValue, index: int) -> Iterator[Finding]:
    sample = "write `- {name: lat, type: number, required: true}`"
    if not isinstance(entry, dict):
        yield Finding("", (index,), f"a parameter is a mapping, and this is {show(entry)}", sample, is_grave=True)
        return
    for key in entry:
        if key in _KNOWN or key in ENTRY_WORDS or key.startswith("x-"):
            continue
        meant = next((word for word in sorted(ENTRY_WORDS) if _count_edits(_fold(key), word) <= 1), None)
        meant = meant or find_meant_keyword(key)
        hint = f"did you mean {meant!r}?" if meant else "an entry takes `name`, `required` and the keywords of a schema"
        yield Finding("", (index, key), f"unknown key {key!r} of a parameter", hint, is_grave=True)
    for key, kind, wanted in (("name", str, "a text"), ("required", bool, "true or false")):
        if key in entry and not isinstance(entry[key], kind):
            yield Finding(
                "", (index, key), f"`{key}` of a parameter is {wanted}, not {show(entry[key])}", "", is_grave=True
            )
    if "name" not in entry and not any(_count_edits(_fold(key), "name") <= 1 for key in entry):
        yield Finding("", (index,), "this parameter has no `name`", sample, is_grave=True)
