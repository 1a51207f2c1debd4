"""Finds parts of a schema without effect: keywords that are not read, and values that the proxy's keywords do not take.
Pure.

JSON Schema ignores keywords that it does not know (2020-12 core 4.3.1), so a misspelt one guards nothing, and nothing
says so. A finding is *grave* if the schema surely means a keyword that it does not have (`requird`, a property map
without `properties`). Any other unknown keyword may be an annotation of its author's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.lint.findings import ASSERTING, KNOWN, SAYING, Finding, count_edits, find_nearest_keyword, fold, show
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.definitions import ENTRY_WORDS, TYPE_NAMES, is_parameter_list, list_entries
from proxy.core.schema.dialects import normalise
from proxy.core.schema.drafts import KNOWN_BY, Draft, knows, list_subschemas
from proxy.core.schema.formats import STRICT, Formats, list_formats
from proxy.core.schema.nodes import Node, Schemas

# --- keywords that refuse nothing in their place ----------------------------------------------------------------------
# The classes of Ajv's strict mode: a keyword of another type (`minimum` with `type: string`), half of a pair (`then`
# without `if`), an unknown format. The last is a keyword among the properties that is not written like a property.

# Type -> the keywords that say something about values of that type only.
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "prefixItems", "additionalItems", "contains", "minItems", "maxItems", "uniqueItems",
              "minContains", "maxContains", "unevaluatedItems"),
    "object": ("properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
               "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
}  # fmt: skip
_TYPE_OF: Final = {keyword: kind for kind, keywords in _OF_TYPE.items() for keyword in keywords}
# Keyword -> what bounds another type in its place.
_BOUNDS: Final[Mapping[str, Mapping[str, str]]] = {
    "string": {"minimum": "minLength", "maximum": "maxLength", "minItems": "minLength", "maxItems": "maxLength"},
    "number": {"minLength": "minimum", "maxLength": "maximum", "minItems": "minimum", "maxItems": "maximum"},
    "array": {"minLength": "minItems", "maxLength": "maxItems", "minimum": "minItems", "maximum": "maxItems",
              "minProperties": "minItems", "maxProperties": "maxItems"},
    "object": {"minItems": "minProperties", "maxItems": "maxProperties"},
}  # fmt: skip
# Keyword -> the keywords of which it needs one beside it.
_NEEDS: Final = {
    "if": ("then", "else"), "then": ("if",), "else": ("if",), "minContains": ("contains",),
    "maxContains": ("contains",),
}  # fmt: skip
# Keywords that take a boolean, and those that take a mapping of names: under `properties` neither is a property.
_SWITCHES: Final = frozenset(
    ["additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems", "uniqueItems",
     "exclusiveMinimum", "exclusiveMaximum"]
)  # fmt: skip
_MAPS: Final = frozenset(["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"])
# Formats of OpenAPI's registry and of common libraries, which are remarks about a value and check nothing.
_REMARKS: Final = frozenset(
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "decimal",
     "decimal128", "byte", "binary", "password", "base64url", "base64", "char", "html", "commonmark", "json",
     "json-string", "markdown", "media-range", "sf-binary", "sf-boolean", "sf-decimal", "sf-integer", "sf-string",
     "sf-token", "http-date", "unixtime", "double-int", "single-quoted", "date-time-local", "time-local"]
)  # fmt: skip
# Names that people give to formats of JSON Schema.
_OTHER_NAMES: Final = {"url": "uri", "guid": "uuid", "ip": "ipv4"}


def list_idle(node: Node, formats: Formats, referenced: Set[int]) -> Iterator[Finding]:
    """The findings about the keywords of one schema. `referenced` are the identities of the nodes to which references
    lead: what is under `then` may be read by one."""
    document, path = node.place.document, node.path
    for keyword, message, hint, is_grave in (
        *_list_inapplicable(node),
        *_list_halves(node, referenced),
        *(_list_formats(node) if formats.asserted and node.get("x-format") != "off" else ()),
    ):
        yield Finding(document, (*path, keyword), message, hint, is_grave)
    for name in list_misplaced(node):
        message = f"{name!r} under `properties` is read as a property of that name and checks nothing"
        yield Finding(document, (*path, "properties", name), message, "write it beside `properties`", True)


def list_misplaced(node: Node) -> Iterator[str]:
    """The keys under `properties` whose values are written as those of the keywords of the same name."""
    properties = node.get("properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        is_map = name in _MAPS and isinstance(value, dict) and bool(value) and value.keys().isdisjoint(KNOWN)
        if (is_map and all(isinstance(each, (dict, bool)) for each in value.values())) or (
            name in _SWITCHES and isinstance(value, bool)
        ):
            yield name


def _list_inapplicable(node: Node) -> Iterator[tuple[str, str, str, bool]]:
    types = node.types
    if not types:
        return
    allowed = "number" if types & {"number", "integer"} else next(iter(types)) if len(types) == 1 else ""
    for keyword, value in node.keywords.items():
        kind = _TYPE_OF.get(keyword)
        if kind is None or kind in types or (kind == "number" and allowed == "number") or not _refuses(keyword, value):
            continue
        message = (
            f"{keyword!r} refuses nothing: it applies to {_PLURAL[kind]}, and the type is {' or '.join(sorted(types))}"
        )
        if kind == "object" and "array" in types:
            hint = f"write `{keyword}` in `items`"
        elif (nearby := _BOUNDS.get(allowed, {}).get(keyword)) is not None:
            hint = f"did you mean {nearby!r}?"
        else:
            hint = f"change the type to {kind!r}, or remove {keyword!r}"
        yield keyword, message, hint, True


_PLURAL: Final = {"number": "numbers", "string": "strings", "array": "arrays", "object": "objects"}


def _refuses(keyword: str, value: JsonValue) -> bool:
    if keyword == "uniqueItems":
        return value is True
    return value not in (True, {}, []) if isinstance(value, (bool, dict, list)) else value != 0


def _list_halves(node: Node, referenced: Set[int]) -> Iterator[tuple[str, str, str, bool]]:
    for keyword, others in _NEEDS.items():
        if not node.has(keyword) or any(map(node.has, others)):
            continue
        if (inner := node.inner(keyword)) is not None and id(inner) in referenced:
            continue
        # The properties that an `if` names count as evaluated.
        if keyword == "if" and not node.schemas.mentioned.isdisjoint(("unevaluatedProperties", "unevaluatedItems")):
            continue
        needed = " or ".join(f"`{other}`" for other in others)
        hint = f"write {needed} beside it"
        if keyword in ("minContains", "maxContains"):
            hint += f", or `{keyword.replace('Contains', 'Items')}` in its place"
        yield keyword, f"{keyword!r} refuses nothing without {needed}", hint, True


def _list_formats(node: Node) -> Iterator[tuple[str, str, str, bool]]:
    name, types = node.get("format"), node.types
    if not isinstance(name, str) or name in _REMARKS or (types is not None and "string" not in types):
        return
    known = list_formats(node.draft)
    if name in known:
        return
    folded = fold(name)
    counted = [(count_edits(folded, fold(other)), other) for other in known]
    edits, nearest = min(counted)
    is_near = edits == 0 or (len(folded) >= 4 and edits <= (2 if len(fold(nearest)) >= 8 else 1))
    nearby = nearest if is_near else _OTHER_NAMES.get(name.lower(), "")
    hint = f"did you mean {nearby!r}?" if nearby else "any text passes: add a `pattern` if not every text is right"
    yield "format", f"the format {name!r} checks nothing", hint, is_near


# --- finds what a schema says in vain ---------------------------------------------------------------------------------
# Names of types that are words of a language too: alone they make no property of a key.
_WORDS: Final = frozenset(["any", "byte", "char", "list", "long", "map", "none", "short", "text", "tuple"])
# Keywords that a property map may be beside: they say nothing about the value of a property.
_BESIDE_MAP: Final = frozenset(["type", "required", "additionalProperties", "minProperties", "maxProperties"])
_SEVERITIES: Final = ("error", "warning", "info")
_LONGEST_SAMPLE: Final = 160


def lint(schemas: Schemas, formats: Formats = STRICT) -> Iterator[Finding]:
    """The findings of everything that a compiled schema can reach, documents it refers to included."""
    nodes = list(schemas.nodes())
    reached = {(node.place.document, node.path) for node in nodes}
    # Schemas that a reference leads to, and values under `properties` that are no schemas of properties.
    referenced = {id(target) for node in nodes for target in node.references}
    misplaced = {(*node.path, "properties", name) for node in nodes for name in list_misplaced(node)}
    found: list[Finding] = []
    for node in nodes:
        if isinstance(node.raw, dict) and node.path not in misplaced:
            found += [*_lint_node(node, node.raw, reached), *list_idle(node, formats, referenced)]
    known: set[str] = set()
    for finding in found:
        if finding.is_grave or finding.message not in known:
            yield finding
        known.add(finding.message)
    yield from _lint_root(schemas, explained=any(finding.is_grave for finding in found))


def _lint_root(schemas: Schemas, *, explained: bool) -> Iterator[Finding]:
    """`explained`: another finding says why the schema refuses nothing."""
    root = schemas.root.raw
    if root is True or (isinstance(root, dict) and not root.keys() & ASSERTING):
        is_grave = not explained and root is not True and any(not key.startswith("x-") for key in root.keys() - KNOWN)
        hint = "write the schema itself, or `validation: off` if every call may pass" if is_grave else ""
        message = "the schema has no keyword that could refuse anything: every call passes"
        yield Finding(schemas.base, (), message, hint, is_grave, is_grave)


def _lint_node(node: Node, raw: Mapping[str, JsonValue], reached: set[tuple[str, Pointer]]) -> Iterator[Finding]:
    """Lints one node. `reached` are the places of schemas. A reference may lead to a place under an unknown keyword,
    which is read then."""
    document, path = node.place.document, node.path
    unread = [key for key in raw if key not in KNOWN and (document, (*path, key)) not in reached]
    declared = tuple(key for key in find_property_map(raw, is_root=not path) if key in unread)
    if declared:
        yield Finding(document, (*path, declared[0]), *word_property_map(raw, declared), is_grave=True, is_keyword=True)
    for key in (*unread, *(key for key in raw if key in KNOWN_BY and not knows(node.draft, key))):
        if key not in declared and (not key.startswith("x-") or find_nearest_keyword(key)):
            yield _judge_keyword(key, raw[key], document, (*path, key), node.draft)
    if node.draft <= Draft.D7 and "$ref" in raw and (beside := sorted(raw.keys() & ASSERTING - {"$ref"})):
        message = f"draft {node.draft.value} ignores {beside[0]!r} beside `$ref`"
        yield Finding(document, (*path, beside[0]), message, "put both under `allOf`", is_keyword=True)
    for message, hint in _list_wrong_switches(raw):
        yield Finding(document, path, message, hint, is_grave=True)
    yield from _list_undeclared(node, raw)


# --- keywords that are not read ---------------------------------------------------------------------------------------
def _judge_keyword(key: str, value: JsonValue, document: str, path: Pointer, draft: Draft) -> Finding:
    if key in KNOWN:
        first, last = KNOWN_BY[key]
        message = f"{key!r} is a keyword of other drafts: draft {draft.value} ignores it"
        return Finding(document, path, message, f"it belongs to drafts {first.value} to {last.value}", is_keyword=True)
    near = find_nearest_keyword(key)
    hint = "call it `x-...` if it is a remark of yours"
    if near is not None:
        hint = f"did you mean {near!r}?"
    elif _is_described(value):
        hint = "a property belongs under `properties`"
    return Finding(document, path, f"unknown keyword {key!r}, which JSON Schema ignores", hint, near is not None, True)


# --- properties without `properties` ----------------------------------------------------------------------------------
def find_property_map(schema: Mapping[str, JsonValue], *, is_root: bool) -> tuple[str, ...]:
    """The keys of a schema that are properties written beside its keywords: `{lat: {type: number}}`, and
    `{lat: number}` if nothing says that it is something else. () beside `properties`."""
    is_object = schema.get("type", "object") in ("object", ["object"])
    if not is_object or schema.keys() & {"properties", "patternProperties"}:
        return ()
    own = [key for key in schema if key not in KNOWN and not key.startswith("x-") and not find_nearest_keyword(key)]
    bare = not schema.keys() & ASSERTING - _BESIDE_MAP
    named = tuple(key for key in own if _is_type_name(schema[key]))
    described = [key for key in own if _is_described(schema[key]) or (bare and _refuses_something(schema[key]))]
    if described:
        return tuple(key for key in own if key in described or key in named)
    if not bare or not named:
        return ()
    if len(named) == len(schema):
        return named
    sure = len(named) == len(own) and all(schema[key].lower() not in _WORDS for key in named)
    if not sure or not (is_root or "type" in schema):
        return ()
    return tuple(key for key in schema if key in named or (key in SAYING and is_root and _is_type_name(schema[key])))


def _is_type_name(value: JsonValue) -> bool:
    return isinstance(value, str) and value.lower() in TYPE_NAMES


def _is_described(value: JsonValue) -> bool:
    """Returns whether a value is written as the schema of a property is."""
    if not isinstance(value, dict):
        return False
    kinds = value.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return isinstance(value.get("properties"), dict) or (bool(kinds) and all(map(_is_type_name, kinds)))


def _refuses_something(value: JsonValue) -> bool:
    """Returns whether a value has a keyword that could refuse something, and no other words than a schema has."""
    return (
        isinstance(value, dict)
        and bool(value.keys() & ASSERTING)
        and all(key in KNOWN or key in ENTRY_WORDS or key.startswith("x-") for key in value)
    )


def word_property_map(schema: Mapping[str, JsonValue], declared: tuple[str, ...]) -> tuple[str, str]:
    """(message, hint) for properties beside the keywords; the hint says the same rightly."""
    first = repr(declared[0]) if len(declared) == 1 else f"{declared[0]!r} and {len(declared) - 1} more"
    properties, required = {}, list(schema["required"]) if isinstance(schema.get("required"), list) else []
    for key in declared:
        written = schema[key] if isinstance(schema[key], dict) else {"type": schema[key]}
        if written.get("required") is True:
            required.append(key)
        kept = {name: value for name, value in written.items() if not (name == "required" and value in (True, False))}
        properties[key] = normalise(kept)[0]
    rest = {key: value for key, value in schema.items() if key not in declared and key not in ("type", "required")}
    whole: dict[str, JsonValue] = {**rest, "type": "object", "properties": properties}
    if required:
        whole["required"] = list(dict.fromkeys(required))
    text = dumps(whole).decode()
    is_shown = len(text) <= _LONGEST_SAMPLE and not any(map(_needs_more, properties.values()))
    sample = text if is_shown else '{"type": "object", "properties": {' + dumps(declared[0]).decode() + ": ...}}"
    message = f"{first} is in the place of a keyword, and guards nothing: a property belongs under `properties`"
    return message, f"write {sample}"


def _needs_more(schema: JsonValue) -> bool:
    """Returns whether a property has mistakes, which a sample would repeat."""
    if not isinstance(schema, dict):
        return False
    own = isinstance(schema.get("required"), bool) or any(map(find_nearest_keyword, schema))
    inner = [child for _, child in list_subschemas(schema)]
    return own or bool(find_property_map(schema, is_root=False)) or any(map(_needs_more, inner))


# --- values -----------------------------------------------------------------------------------------------------------
def _list_wrong_switches(raw: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Values that our own keywords do not take."""
    severity = raw.get("x-severity", "error")
    for written in severity.values() if isinstance(severity, dict) else (severity,):
        if written not in _SEVERITIES:
            yield f"x-severity is none of {', '.join(_SEVERITIES)}: {show(written)}", "say `warning`, `info` or `error`"
    for key in severity if isinstance(severity, dict) else ():
        if key not in ASSERTING:
            yield f"x-severity names no keyword: {key!r}", "its keys are keywords such as `maxLength`"
    if not isinstance(raw.get("x-hint", ""), str):
        yield f"x-hint is not a text: {show(raw['x-hint'])}", "say it in one sentence"
    if not isinstance(raw.get("x-sensitive", False), bool):
        yield f"x-sensitive is neither true nor false: {show(raw['x-sensitive'])}", "say `true`"


def _list_undeclared(node: Node, raw: Mapping[str, JsonValue]) -> Iterator[Finding]:
    """Names that an open object requires and nothing describes: their values are not judged."""
    required = raw.get("required")
    if not isinstance(required, list) or not isinstance(raw.get("properties"), dict):
        return
    judged = any(raw.get(key, True) is not True for key in ("additionalProperties", "unevaluatedProperties"))
    judged |= bool(raw.keys() & {"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"})
    for name in () if judged else required:
        if isinstance(name, str) and name not in raw["properties"]:
            message = f"{format_pointer((name,))[1:]!r} is required and not among `properties`: its value is not judged"
            yield Finding(node.place.document, (*node.path, "required"), message, "declare it, or take it out")


# --- flat lists of parameters -----------------------------------------------------------------------------------------
_SAMPLE: Final = "`- {name: lat, type: number, required: true}`"


def list_entry_findings(written: JsonValue) -> Iterator[Finding]:
    """The mistakes in a list of parameters, or in GoMind's lists of fields; none for another value."""
    entries = list_entries(written)
    findings = [finding for place, entry in entries for finding in _judge_entry(entry, place)]
    yield from findings
    if (
        not findings
        and isinstance(written, (list, dict))
        and (entries or written == [])
        and not is_parameter_list(written)
    ):
        message = "a list of parameters needs an entry for each, and every name once"
        yield Finding("", (), message, f"write {_SAMPLE}", is_grave=True)


def _judge_entry(entry: JsonValue, place: Pointer) -> Iterator[Finding]:
    if not isinstance(entry, dict):
        message = f"a parameter is a mapping, and this is {show(entry)}"
        yield Finding("", place, message, f"write {_SAMPLE}", is_grave=True)
        return
    for key in entry:
        if key in KNOWN or key in ENTRY_WORDS or key.startswith("x-"):
            continue
        near = next((word for word in sorted(ENTRY_WORDS) if count_edits(fold(key), word) <= 1), None)
        near = near or find_nearest_keyword(key)
        hint = f"did you mean {near!r}?" if near else "an entry takes `name`, `required` and the keywords of a schema"
        yield Finding("", (*place, key), f"unknown key {key!r} of a parameter", hint, is_grave=True)
    for key, kind, wanted in (("name", str, "a text"), ("required", bool, "true or false")):
        if key in entry and not isinstance(entry[key], kind):
            message = f"`{key}` of a parameter is {wanted}, not {show(entry[key])}"
            yield Finding("", (*place, key), message, is_grave=True)
    if "name" not in entry and not any(count_edits(fold(key), "name") <= 1 for key in entry):
        yield Finding("", place, "this parameter has no `name`", f"write {_SAMPLE}", is_grave=True)
