"""What is said of one broken keyword: a table from the keyword to the function that words it.

Messages follow the templates of Acode 007.b ("Error Codes"); hints are ours. A message never holds a long value or a
secret one: what was sent is shown shortened and masked, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from proxy.core import codes
from proxy.core.codes import Severity, ViolationCode
from proxy.core.graphemes import cut
from proxy.core.guidance import bound, expectation, listed, literal
from proxy.core.jsontext import json_type
from proxy.core.misplaced import LOOKED_AT, unknown_violation
from proxy.core.model import ABSENT, FeedbackLimits, JsonValue, Pointer, Violation
from proxy.core.names import nearest
from proxy.core.preview import is_secret_path, preview, shown_text
from proxy.core.schema import Node
from proxy.core.sites import applies_always, facts
from proxy.core.validation import BrokenKeyword

Word = Callable[[BrokenKeyword, JsonValue], Iterator[Violation]]


# Code points of a value, a name or a limit that stands inside a message.
_SHORT: Final = 60
_LONG: Final = 120


def name_in(path: Pointer) -> str:
    """The last step of a path, for use inside a message."""
    return shown_text(str(path[-1]), _SHORT) if path else ""


def _shown(value: JsonValue, path: Pointer, node: Node) -> str:
    """A short, masked form of a value for use inside a message."""
    secret = is_sensitive(node) or is_secret_path(path, FeedbackLimits())
    if isinstance(value, str) and not secret:
        return f"'{shown_text(value, _SHORT)}'"
    return preview(value, path=path, sensitive=secret)


def is_sensitive(node: Node) -> bool:
    """Whether a schema marks its values as secret."""
    return node.get("writeOnly") is True or node.get("format") == "password" or node.get("x-sensitive") is True


def _required(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    names = [broken.detail] if isinstance(broken.detail, str) else list(broken.node.required)
    for name in names:
        if isinstance(value, dict) and name in value:
            continue
        member = _declared(broken.node, name)
        expected = expectation(member) if member is not None else ""
        yield missing((*broken.path, name), expected)


def missing(path: Pointer, expected: str = "", hint: str = "") -> Violation:
    """VAL-001 for a key that must be there."""
    return Violation(codes.REQUIRED_MISSING, path, f"Required field '{name_in(path)}' is missing", expected, hint)


def _dependent(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    asked = broken.node.get(broken.keyword)
    for key, names in asked.items() if isinstance(asked, dict) and isinstance(value, dict) else ():
        for name in names if key in value and isinstance(names, list) else ():
            if name not in value:
                hint = f"It is needed because '{name_in((key,))}' is given."
                yield missing((*broken.path, name), hint=hint)


def _declared(node: Node, name: str) -> Node | None:
    return next((part.properties[name] for part in applies_always(node) if name in part.properties), None)


# (sent, asked) -> what to do about it; "" stands for any type
_TYPE_HINTS: Final = {
    ("null", ""): "null is not allowed here: send a value.",
    ("string", "integer"): "Send a whole number without quotes or units.",
    ("string", "number"): "Send the bare number, without quotes, units or separators.",
    ("string", "boolean"): "Send true or false without quotes.",
    ("string", "array"): "Send a JSON array, not text.",
    ("string", "object"): "Send a JSON object, not text.",
    ("number", "integer"): "Send a whole number; it is not rounded for you.",
    ("array", "object"): "Send one object, not a list.",
    ("array", ""): "Send one value, not a list.",
    ("object", "string"): "Send text, not an object.",
    ("object", "array"): "Send a JSON array.",
    ("boolean", "string"): "Send text in quotes.",
}


def _type(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    yield type_violation(broken.path, value, broken.node)


def type_violation(path: Pointer, value: JsonValue, node: Node) -> Violation:
    """VAL-002 for a value of a type the node does not take."""
    actual = json_type(value)
    memo: dict[tuple[int, str], tuple[str, str, str]] = node.schemas.memos.setdefault("type words", {})
    words = memo.get((id(node), actual))
    if words is None:
        words = memo[id(node), actual] = _type_words(node, actual)
    return Violation(codes.TYPE_MISMATCH, path, *words, value=value)


def _type_words(node: Node, actual: str) -> tuple[str, str, str]:
    """Message, expectation and hint, of which none depends on the value but for its type."""
    expected, types = expectation(node), facts(node).site.types
    asked = "number" if "number" in types else next(iter(sorted(types)), "")
    hint = _TYPE_HINTS.get((actual, asked)) or _TYPE_HINTS.get((actual, ""), "")
    return f"Type mismatch: expected {expected.split(' (')[0]}, got {actual}", expected, hint


def _choice(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    yield choice_violation(broken.path, value, broken.node, facts(broken.node).site.choices or ())


def choice_violation(path: Pointer, value: JsonValue, node: Node, choices: tuple[JsonValue, ...]) -> Violation:
    """VAL-008 for a value that is none of those listed; VAL-002 where it is not even of their kind."""
    if isinstance(value, dict | list) or value is None:
        return type_violation(path, value, node)
    meant = (
        nearest(value, [choice for choice in choices[:LOOKED_AT] if isinstance(choice, str)])
        if isinstance(value, str)
        else None
    )
    hint = f"Did you mean {cut(literal(meant), _SHORT)}?" if meant is not None else ""
    message = f"Invalid enum value {_shown(value, path, node)}"
    return Violation(codes.ENUM_MISMATCH, path, message, listed(choices), hint, value=value)


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


def _bound(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    code, template = _BOUNDS[broken.keyword]
    limit = broken.node.get(broken.keyword)
    if isinstance(limit, bool):  # draft 4 spells exclusiveMinimum as a switch beside minimum
        limit = broken.node.get("minimum" if "Min" in broken.keyword else "maximum")
    size = len(value) if isinstance(value, str | list | dict) else 0
    shown = cut(limit if isinstance(limit, str) else bound(limit), _LONG)
    yield Violation(code, broken.path, template.format(limit=shown, size=size), expectation(broken.node), value=value)


def _repeated(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    message = "Array items are not unique"
    yield Violation(codes.ARRAY_LENGTH, broken.path, message, "an array without equal items", value=value)


def _contains(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    schema = broken.node.descend(("contains",)) if broken.node.has("contains") else None
    expected = f"an array that contains {expectation(schema)}" if schema is not None else ""
    yield Violation(codes.ARRAY_LENGTH, broken.path, "Array does not contain what it must", expected, value=value)


def _unknown(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    known = sorted({key for part in applies_always(broken.node) for key in part.properties})
    names = broken.detail if isinstance(broken.detail, list) else []
    for name in names:
        if isinstance(name, int):
            message = f"Array has an item too many at position {name}"
            yield Violation(codes.ARRAY_LENGTH, (*broken.path, name), message)
            continue
        sent = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
        yield unknown_violation((*broken.path, name), sent, known, Severity.ERROR)


def _names(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    path = (*broken.path, broken.detail) if isinstance(broken.detail, str) else broken.path
    rule = broken.node.inner("propertyNames")
    expected = f"field names: {expectation(rule).removeprefix('any value ')}" if rule is not None else ""
    yield Violation(codes.UNKNOWN_FIELD, path, f"Field name '{name_in(path)}' is not allowed", expected)
    del value


def _forbidden(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    yield Violation(codes.CONSTRAINT, broken.path, "Value is one of those that are not allowed", value=value)


def other(broken: BrokenKeyword, value: JsonValue) -> Iterator[Violation]:
    """What is said of a keyword that the table does not know, and of the schema `false`."""
    if broken.node.never and broken.path:
        message = f"Field '{name_in(broken.path)}' is not allowed"
        yield Violation(codes.UNKNOWN_FIELD, broken.path, message, hint="Leave it out.")
        return
    message = "No value is allowed here" if broken.node.never else f"Value breaks the schema's {broken.keyword!r} rule"
    yield Violation(codes.CONSTRAINT, broken.path, message, expectation(broken.node), value=value)


WORDS: Final[Mapping[str, Word]] = {
    "required": _required,
    "dependentRequired": _dependent,
    "dependencies": _dependent,
    "type": _type,
    "enum": _choice,
    "const": _choice,
    "uniqueItems": _repeated,
    "contains": _contains,
    "minContains": _contains,
    "maxContains": _contains,
    "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown,
    "additionalItems": _unknown,
    "items": _unknown,
    "unevaluatedItems": _unknown,
    "propertyNames": _names,
    "not": _forbidden,
    **dict.fromkeys(_BOUNDS, _bound),
}
