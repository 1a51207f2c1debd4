"""Adds what makes the next call right to an answer with errors: the tool's signature and a valid example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import sanitise_value
from proxy.core.explain.examples import make_example, put_member
from proxy.core.explain.expectation import write_signature
from proxy.core.explain.misplaced import find_renames, find_value
from proxy.core.json.jsontext import are_equal, dumps, name_json_type
from proxy.core.model.codes import REQUIRED_MISSING
from proxy.core.model.values import ABSENT, Absent, JsonValue, Pointer, ToolResult

# What `sanitise_value` puts in the place of a value that is not to be shown.
_HIDDEN: Final = "***"


def add_advice(result: ToolResult, policy: ToolPolicy | None) -> ToolResult:
    """The result with `accepts` and `example`, where arguments broke a schema; any other result comes back unchanged.

    The example keeps what the caller sent well, never what was just refused, by us or by the tool; it is sanitised like
    every other echo of arguments. One that holds a placeholder is not complete: it shows the shape.
    """
    if result.failure.advice is not None:
        accepts, text, complete = result.failure.advice
        return replace(result, accepts=accepts, example=text, example_complete=complete)
    if policy is None or policy.check is None or not result.failure.violations:
        return result
    check, sent, found = policy.check, result.failure.sent, result.failure.violations
    missing = [violation.path for violation in found if violation.code is REQUIRED_MISSING and violation.path]
    accepts = write_signature(check.root, asked=frozenset(str(path[0]) for path in missing if len(path) == 1))
    kept = _without(sent, [violation.path for violation in found])
    for target, source in find_renames(check, sent, found).items():
        kept = put_member(_drop_member(kept, source), target, find_value(sent, source))
    shown = make_example(check, kept, missing)
    if shown.value is ABSENT or are_equal(shown.value, sent):  # what was refused is no example
        return replace(result, accepts=accepts, example="", example_complete=False)
    safe = _show_types(sanitise_value(shown.value, result.limits), shown.value)
    complete = shown.complete and are_equal(safe, shown.value) and not _holds_placeholder(safe)
    return replace(result, accepts=accepts, example=dumps(safe).decode(), example_complete=complete)


def _without(sent: JsonValue, places: Iterable[Pointer]) -> JsonValue:
    """A value without the members at these places; an item of a list takes the list with it, and a text outside of any
    object takes the whole value."""
    for path in places:
        keys = [index for index, step in enumerate(path) if isinstance(step, str)]
        if keys:
            sent = _drop_member(sent, path[: keys[-1] + 1])
        elif isinstance(find_value(sent, path), str):
            sent = ABSENT
    return sent


def _drop_member(value: JsonValue, path: Pointer) -> JsonValue:
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step in value:
        if not rest:
            return {key: item for key, item in value.items() if key != step}
        return {key: _drop_member(item, rest) if key == step else item for key, item in value.items()}
    if isinstance(value, list) and isinstance(step, int) and step < len(value) and rest:
        return [_drop_member(item, rest) if index == step else item for index, item in enumerate(value)]
    return value


def _show_types(safe: JsonValue, value: JsonValue) -> JsonValue:
    """The sanitised value with the type in the place of each value that is hidden: masking hides values, not types."""
    if safe == _HIDDEN and not isinstance(value, Absent):
        return value if _is_placeholder(value) else f"<{name_json_type(value)}>"
    if isinstance(safe, dict) and isinstance(value, dict):
        return {key: _show_types(item, value.get(key, ABSENT)) for key, item in safe.items()}
    if isinstance(safe, list) and isinstance(value, list) and len(safe) == len(value):
        return [_show_types(*pair) for pair in zip(safe, value, strict=True)]
    return safe


def _is_placeholder(value: JsonValue) -> bool:
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def _holds_placeholder(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(_holds_placeholder(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_placeholder(item) for item in value)
    return _is_placeholder(value)
