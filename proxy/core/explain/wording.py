"""The message about one broken keyword: a table from the keyword to the function that words it.

Messages follow the templates of Acode 007.b ("Error Codes"); hints are the proxy's. A message never holds a long value
or a secret one: what was sent is shown shortened and masked, or not at all.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from proxy.core.check.validation import BrokenKeyword
from proxy.core.display.graphemes import cut
from proxy.core.display.preview import clean_text, is_secret_path, write_preview
from proxy.core.display.secrets import is_sensitive
from proxy.core.display.suggestions import find_nearest, split_words
from proxy.core.explain.expectation import (
    describe_expectation,
    describe_types,
    find_declared,
    list_choices,
    list_unlisted_types,
    may_take,
    takes_nothing,
    write_bound,
    write_default,
    write_literal,
)
from proxy.core.explain.undeclared import LOOKED_AT, make_unknown_violation
from proxy.core.json.jsontext import dumps, make_decimal, name_json_type
from proxy.core.lint.contradictions import list_refused_keys
from proxy.core.model import codes
from proxy.core.model.codes import Severity, ViolationCode
from proxy.core.model.values import JsonValue, Pointer, Violation
from proxy.core.rules.facts import read_facts
from proxy.core.rules.proposals import string_to_integer, string_to_number
from proxy.core.schema.nodes import Node

Word = Callable[[BrokenKeyword, JsonValue], Iterable[Violation]]


# Code points of a value, a name or a limit inside a message.
_SHORT: Final = 60
_LONG: Final = 120


def name_last_step(path: Pointer) -> str:
    """The last step of a path, for use inside a message."""
    return clean_text(str(path[-1]), _SHORT) if path else ""


def _word_required(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    names = [broken.detail] if isinstance(broken.detail, str) else list(broken.node.required)
    for name in names:
        if isinstance(value, dict) and name in value:
            continue
        member = find_declared(broken.node, name)
        expected = describe_expectation(member) if member is not None else ""
        hint = write_default(member) or _allow_empty(member) if member is not None else ""
        if name in list_refused_keys(broken.node):
            hint = "The schema requires this field and refuses it, so no arguments are valid: tell the user."
        yield make_missing_violation((*broken.path, name), expected, hint)


def _allow_empty(member: Node) -> str:
    """Says of a list that it may be empty: a model that has nothing to send invents an item."""
    parts = member.always
    is_open = all(not part.get("minItems") and not part.has("contains") for part in parts)
    is_list = read_facts(member).site.types == {"array"} and read_facts(member).site.choices is None
    return "Add it, and do not guess its value: an empty list [] is allowed." if is_list and is_open else ""


def make_missing_violation(path: Pointer, expected: str = "", hint: str = "") -> Violation:
    """VAL-001 for a key that must be there."""
    return Violation(
        codes.REQUIRED_MISSING, path, f"Required field '{name_last_step(path)}' is missing", expected, hint
    )


def _dependent(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    dependents = broken.node.get(broken.keyword)
    for key, names in dependents.items() if isinstance(dependents, dict) and isinstance(value, dict) else ():
        for name in names if key in value and isinstance(names, list) else ():
            if name not in value:
                hint = f"It is needed because '{name_last_step((key,))}' is given."
                yield make_missing_violation((*broken.path, name), hint=hint)


# (sent, expected) -> the remedy; "" means any type
_TYPE_HINTS: Final = {
    ("null", ""): "null is not allowed here: send a value, or leave an optional field out.",
    ("string", "integer"): "Send a whole number without quotes or units.",
    ("string", "number"): "Send the bare number, without quotes, units or separators.",
    ("string", "boolean"): "Send true or false without quotes.", ("string", "array"): "Send a JSON array, not text.",
    ("string", "object"): "Send a JSON object, not text.",
    ("number", "integer"): "Send a whole number; it is not rounded for you.",
    ("array", "object"): "Send one object, not a list.", ("array", ""): "Send one value, not a list.",
    ("object", "string"): "Send text, not an object.", ("object", "array"): "Send a JSON array.",
    ("boolean", "string"): "Send text in quotes.",
}  # fmt: skip

# The hint that replaces another where a list holds several values.
_OF_SEVERAL: Final = {
    "Send one object, not a list.": "One object goes into one call: make one call for each.",
    "Send one value, not a list.": "One value goes into one call: make one call for each.",
}


def make_type_violation(path: Pointer, value: JsonValue, node: Node) -> Violation:
    """VAL-002 for a value of a type the node does not take."""
    actual = name_json_type(value)
    memo: dict[tuple[int, str], tuple[str, str, str]] = node.schemas.memos.setdefault("type words", {})
    words = memo.get((id(node), actual))
    if words is None:  # none of them depends on the value but for its type
        expected, site = describe_expectation(node), read_facts(node).site
        expected_type = "number" if "number" in site.types else min(site.types, default="")
        hint = _TYPE_HINTS.get((actual, expected_type)) or _TYPE_HINTS.get((actual, ""), "")
        is_listed = site.choices is not None and not site.free_text
        wanted = describe_types(site) if is_listed else expected.split(" (")[0]
        message = f"Type mismatch: expected {wanted}, got {actual}"
        words = memo[id(node), actual] = message, expected, _IMPOSSIBLE if takes_nothing(node) else hint
    message, expected, hint = words
    if isinstance(value, str) and (pieces := _list_pieces(path, value, node)):
        hint = f"{hint.removesuffix('.')}: {dumps(pieces).decode()}, if the commas part its items."
    elif isinstance(value, str) and (bound := _find_bound(value, node)):
        hint = f"{hint} As a number it is out of range: it {bound}."
    if isinstance(value, list) and hint in _OF_SEVERAL:
        if not all(may_take(node, item) for item in value):
            hint = "Send one of what is expected, not a list."
        elif len(value) > 1 and len(path) < 2:
            hint = _OF_SEVERAL[hint]  # a deeper value cannot be in a separate call
    return Violation(codes.TYPE_MISMATCH, path, message, expected, _or_leave_out(hint, value), value=value)


def _find_bound(value: str, node: Node) -> str:
    """The bound that the number breaks which a text spells, in words; '' for none."""
    site = read_facts(node).site
    read = string_to_number(value, site) or string_to_integer(value, site)
    for part in node.always if read is not None else ():
        for keyword, is_broken in _BROKEN_BY.items():
            limit = part.get(keyword)
            if read is None or name_json_type(limit) not in ("integer", "number"):
                continue
            if is_broken(make_decimal(read[0]), make_decimal(limit)):
                return _BOUNDS[keyword][1].format(limit=write_bound(limit)).partition(": ")[2]
    return ""


_BROKEN_BY: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": operator.lt, "exclusiveMinimum": operator.le, "maximum": operator.gt, "exclusiveMaximum": operator.ge,
}  # fmt: skip


def _list_pieces(path: Pointer, value: str, node: Node) -> list[JsonValue]:
    """Returns the pieces between the commas of a text, if a list of them is taken here and may be shown, or none."""
    if "," not in value or len(value) > _LONG or is_secret_path(path) or is_sensitive(node):
        return []
    pieces: list[JsonValue] = [piece.strip() for piece in value.split(",")]
    is_plain = all(pieces) and value.isprintable() and not value.strip().startswith(("[", "{"))
    items = [part.items for part in node.always if part.items is not None]
    takes = is_plain and bool(items) and all(may_take(item, piece) for item in items for piece in pieces)
    return pieces if takes and "array" in read_facts(node).site.types and clean_text(value, _LONG) == value else []


# Texts that models send for "not given".
_NO_VALUE: Final = ("", "null", "None", "undefined")


def _or_leave_out(hint: str, value: JsonValue) -> str:
    """The hint, with the other way where an empty text or a word for nothing was sent."""
    if hint == _IMPOSSIBLE or not isinstance(value, str) or value.strip() not in _NO_VALUE:
        return hint
    if not hint:
        return "Send a value, or leave an optional field out."
    return f"{hint.removesuffix('.')}, or leave an optional field out."


_IMPOSSIBLE: Final = (
    "The tool's schema takes no value at all here: leave an optional field out, else tell the user that this tool "
    "cannot be called."
)


def _choice(broken: BrokenKeyword, value: JsonValue) -> tuple[Violation]:
    return (make_choice_violation(broken.path, value, broken.node, read_facts(broken.node).site.choices or ()),)


def make_choice_violation(path: Pointer, value: JsonValue, node: Node, choices: tuple[JsonValue, ...]) -> Violation:
    """VAL-008 for a value that is not listed; VAL-002 for one whose type no listed value has."""
    if isinstance(value, (dict, list)) or value is None:
        return make_type_violation(path, value, node)
    texts, every, listed, exactly = _read_choices(node, choices)
    nearest = find_nearest(value, texts, slip=True) if isinstance(value, str) else None
    if nearest is not None and len(nearest) > _LONGEST_SUGGESTION:
        nearest = None
    hint = f"Did you mean {write_literal(nearest)}?" if nearest is not None else _or_leave_out(exactly, value)
    parts = value.split(",") if isinstance(value, str) and len(path) < 2 else []
    if len(parts) > 1 and all(part.strip() in choices for part in parts):
        hint = _OF_SEVERAL["Send one value, not a list."]
    if exactly == _IMPOSSIBLE:
        hint = _IMPOSSIBLE
    is_secret = is_sensitive(node) or is_secret_path(path)
    if isinstance(value, str) and not is_secret:
        shown = f"'{clean_text(value, _SHORT)}'"
    else:
        shown = write_preview(value, path=path, sensitive=is_secret)
    if isinstance(value, str) and len(choices) > _FEW_CHOICES:  # those like what was sent are listed first
        words, start = split_words(value), value.casefold()[:3]
        near = [text for text in texts if words & split_words(text) or text.casefold().startswith(start)]
        listed = list_choices(choices, near[:_FEW_CHOICES]) + listed.removeprefix(every)
    message = f"Invalid enum value {shown}"
    return Violation(codes.ENUM_MISMATCH, path, message, listed, hint, value=value, quoted=shown)


def _read_choices(node: Node, choices: tuple[JsonValue, ...]) -> tuple[list[str], str, str, str]:
    """The texts among a place's choices; all choices in words, without and with other types; and what to send."""
    memo: dict[int, tuple[Any, list[str], str, str, str]] = node.schemas.memos.setdefault("choices", {})
    known = memo.get(id(node))
    if known is None or known[0] is not choices:
        texts = [choice for choice in choices[:LOOKED_AT] if isinstance(choice, str)]
        every, exactly, site = list_choices(choices), EXACTLY[len(choices) != 1], read_facts(node).site
        listed = every
        if choices == site.choices and (rest := list_unlisted_types(site)):  # the list is one alternative among others
            listed, exactly = f"{every} or {describe_types(replace(site, types=rest))}", OR_ANOTHER
        exactly = _IMPOSSIBLE if takes_nothing(node) else exactly
        known = memo[id(node)] = choices, texts, every, listed, exactly
    return known[1:]


# The remedies for a value that is not listed: one value is, several are, or other types are taken as well.
EXACTLY: Final = ("Send it exactly so.", "Send one of these, exactly as written.")
OR_ANOTHER: Final = "Send a listed value exactly as written, or another type that is expected."
_LONGEST_SUGGESTION: Final = 200
_FEW_CHOICES: Final = 12

# keyword -> (code, what the limit means); `{limit}` is the keyword's value, `{size}` how much was sent
_BOUNDS: Final[dict[str, tuple[ViolationCode, str]]] = {
    "minimum": (codes.CONSTRAINT, "Value out of range: must be at least {limit}"),
    "maximum": (codes.CONSTRAINT, "Value out of range: must be at most {limit}"),
    "exclusiveMinimum": (codes.CONSTRAINT, "Value out of range: must be greater than {limit}"),
    "exclusiveMaximum": (codes.CONSTRAINT, "Value out of range: must be less than {limit}"),
    "multipleOf": (codes.CONSTRAINT, "Value out of range: must be a multiple of {limit}"),
    "minProperties": (codes.CONSTRAINT, "Number of fields {size} is below minimum {limit}"),
    "maxProperties": (codes.CONSTRAINT, "Number of fields {size} exceeds maximum {limit}"),
    "minLength": (codes.STRING_LENGTH, "String length {size} is below minimum {limit}"),
    "maxLength": (codes.STRING_LENGTH, "String length {size} exceeds maximum {limit}"),
    "minItems": (codes.ARRAY_LENGTH, "Array length {size} is below minimum {limit}"),
    "maxItems": (codes.ARRAY_LENGTH, "Array length {size} exceeds maximum {limit}"),
    "pattern": (codes.PATTERN_MISMATCH, "Value doesn't match pattern: {limit}"),
    "format": (codes.FORMAT_MISMATCH, "Invalid format: {limit}"),
}


def _word_bound(broken: BrokenKeyword, value: JsonValue) -> tuple[Violation]:
    node, keyword = broken.node, broken.keyword
    memo: dict[tuple[int, str], tuple[JsonValue, str, str]] = node.schemas.memos.setdefault("bound words", {})
    words = memo.get((id(node), keyword))
    if words is None:
        limit = node.get(keyword)
        if isinstance(limit, bool):  # draft 4 spells exclusiveMinimum as a switch beside minimum
            limit = node.get("minimum" if "Min" in keyword else "maximum")
        shown = cut(limit if isinstance(limit, str) else write_bound(limit), _LONG)
        words = memo[id(node), keyword] = limit, shown, describe_expectation(node)
    limit, shown, expected = words
    code, template = _BOUNDS[keyword]
    message = template.format(limit=shown, size=len(value) if isinstance(value, (str, list, dict)) else 0)
    hint = _or_leave_out(_bound_hint(keyword, limit, value), value)
    return (Violation(code, broken.path, message, expected, hint, value=value, keyword=keyword, limit=limit),)


def _word_repeated(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    message = "Array items are not unique"
    yield Violation(
        codes.ARRAY_LENGTH, broken.path, message, "an array without equal items", "Send each item once.", value=value
    )


def _contains(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    schema = broken.node.descend(("contains",)) if broken.node.has("contains") else None
    expected = f"an array that contains {describe_expectation(schema)}" if schema is not None else ""
    message, hint = "Array does not contain what it must", "Add such an item."
    if broken.keyword == "maxContains":
        message, hint = "Array contains too many of what it must contain", "Leave some of them out."
    yield Violation(codes.ARRAY_LENGTH, broken.path, message, expected, hint, value=value)


def _unknown(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    names = broken.detail if isinstance(broken.detail, list) else []
    for name in names:
        path = (*broken.path, name)
        if isinstance(name, int):
            yield Violation(codes.ARRAY_LENGTH, path, f"Array has an item too many at position {name}")
        else:
            yield make_unknown_violation(path, value, broken.node.always, Severity.ERROR)


def _names(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    path = (*broken.path, broken.detail) if isinstance(broken.detail, str) else broken.path
    rule = broken.node.inner("propertyNames")
    expected = f"field names: {describe_expectation(rule).removeprefix('any value ')}" if rule is not None else ""
    yield Violation(codes.UNKNOWN_FIELD, path, f"Field name '{name_last_step(path)}' is not allowed", expected)
    del value


def _forbidden(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    inner = broken.node.inner("not")
    refused = describe_expectation(inner) if inner is not None else "any value"
    expected = f"anything but {refused}" if refused != "any value" else ""
    yield Violation(codes.CONSTRAINT, broken.path, "Value is one of those that are not allowed", expected, value=value)


def make_other_violation(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    """The violation of a keyword that the table does not know, and of the schema `false`."""
    if broken.node.never and broken.path:
        message = f"Field '{name_last_step(broken.path)}' is not allowed"
        yield Violation(codes.UNKNOWN_FIELD, broken.path, message, hint="Leave it out.")
        return
    message = "No value is allowed here" if broken.node.never else f"Value breaks the schema's {broken.keyword!r} rule"
    yield Violation(codes.CONSTRAINT, broken.path, message, describe_expectation(broken.node), value=value)


# --- the schema's own words -----------------------------------------------------------------------------------------
# Keywords about one value: for these, the schema's own words about that value help.
OWN_WORDS: Final = frozenset({"required", "type", "enum", "const", *_BOUNDS})
# format -> what a value of it looks like, and what is often missing
_FORMATS: Final = {
    "date-time": "For example 2026-12-01T09:00:00Z.", "date": "For example 2026-12-01.",
    "time": "For example 09:00:00Z.", "duration": "For example PT1H30M.", "email": "For example ann@example.org.",
    "idn-email": "For example ann@example.org.", "hostname": "For example www.example.org.",
    "idn-hostname": "For example www.example.org.", "ipv4": "For example 192.0.2.1.",
    "ipv6": "For example 2001:db8::1.", "uri": "For example https://example.org/path: begin with the scheme.",
    "uri-reference": "For example /path or https://example.org/path.",
    "iri": "For example https://example.org/path: begin with the scheme.",
    "iri-reference": "For example /path or https://example.org/path.", "uri-template": "For example /users/{id}.",
    "uuid": "For example 123e4567-e89b-12d3-a456-426614174000.", "json-pointer": "For example /items/0.",
    "relative-json-pointer": "For example 1/name.", "regex": "For example ^[a-z]+$.",
}  # fmt: skip
_ZONE: Final = "Add a time zone: Z or +01:00."
_HAS_ZONE: Final = re.compile(r"(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})$")


# keyword -> what to do about a value beyond its limit
_BOUND_HINTS: Final = {
    "minItems": "Send more items.",
    "maxItems": "Send fewer items.",
    "minProperties": "Send more fields.",
    "maxProperties": "Send fewer fields.",
}


def _bound_hint(keyword: str, limit: JsonValue, value: JsonValue) -> str:
    if keyword == "format":  # an example of it, and the time zone if that is missing
        shown = _FORMATS.get(limit, "") if isinstance(limit, str) else ""
        clock = limit in ("date-time", "time") and isinstance(value, str) and ":" in value
        return f"{_ZONE} {shown}" if clock and not _HAS_ZONE.search(str(value).strip()) else shown
    if keyword in ("minLength", "maxLength") and isinstance(value, str) and isinstance(limit, int):
        many = abs(len(value) - limit)
        return (
            f"{'Shorten' if keyword == 'maxLength' else 'Lengthen'} it by {many} character{'' if many == 1 else 's'}."
        )
    return _BOUND_HINTS.get(keyword, "")


WORDS: Final[Mapping[str, Word]] = {
    "required": _word_required, "dependentRequired": _dependent, "dependencies": _dependent,
    "type": lambda broken, value: (make_type_violation(broken.path, value, broken.node),),
    "enum": _choice, "const": _choice, "uniqueItems": _word_repeated, "propertyNames": _names, "not": _forbidden,
    **dict.fromkeys(("contains", "minContains", "maxContains"), _contains),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), _unknown),
    **dict.fromkeys(("additionalItems", "items", "unevaluatedItems"), _unknown),
    **dict.fromkeys(_BOUNDS, _word_bound),
}  # fmt: skip
