"""Adds what makes the next call right to an answer with errors: the tool's signature and a valid example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import sanitise_value
from proxy.core.explain.misplaced import find_content, find_renames, find_respelt
from proxy.core.explain.places import find_possible_nodes, find_value
from proxy.core.explain.signature import SHORT_ACCEPTS, Wanted, write_accepts, write_schema
from proxy.core.explain.sketch import WRONG, make_example, put_member
from proxy.core.explain.undeclared import list_candidates
from proxy.core.json.jsontext import are_equal, dumps_known, name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import REQUIRED_MISSING
from proxy.core.model.values import ABSENT, Absent, FeedbackLimits, JsonValue, Pointer, ToolResult, Violation
from proxy.core.rules.facts import applies_always

# What `sanitise_value` puts in the place of a value that is not to be shown.
_HIDDEN: Final = "***"


def add_advice(result: ToolResult, policy: ToolPolicy | None) -> ToolResult:
    """The result with `accepts` and `example`, where arguments broke a schema; any other result comes back unchanged.

    The example keeps what the caller sent well, never what was just refused, by us or by the tool; it is sanitised like
    every other echo of arguments. One that holds a placeholder is not complete: it shows the shape. An answer about a
    tool with many properties may be longer, unless the config says how long.
    """
    check = None if policy is None else policy.check
    limits = _fit_limits(result.limits, check)
    if result.failure.advice is not None:
        accepts, text, complete = result.failure.advice
        return replace(result, limits=limits, accepts=accepts, example=text, example_complete=complete)
    sent, found = result.failure.sent, result.failure.violations
    if check is None or (not found and result.failure.code not in _UNPLACED):
        return result if limits is result.limits else replace(result, limits=limits)
    base = sent if result.failure.mended is ABSENT else result.failure.mended
    accepts = _write_accepts(check, base, found)
    if not found:
        return replace(result, limits=limits, accepts=accepts)
    places = {each.path: each.expected for each in found if each.path and each.code is REQUIRED_MISSING}
    # An example shows the members with a wrong value: left out, the user's wish would be lost.
    named = (REQUIRED_MISSING, codes.UNKNOWN_FIELD)
    refused = [each for each in found if each.code not in named and each.value not in _NOTHING]
    wrong = {place: each.expected for each in refused if (place := _find_member(each.path))}
    places |= wrong
    shown = make_example(check, _keep_good(check, base, found, wrong), places)
    safe = sanitise_value(shown.value, limits)
    text = dumps_known(safe).decode()
    if f'"{_HIDDEN}"' in text:  # the type stands in the place of each value that is hidden
        safe = _show_types(safe, shown.value)
        text = dumps_known(safe).decode()
    complete = shown.complete and are_equal(safe, shown.value) and not ('"<' in text and _holds_placeholder(safe))
    # What was refused is no example, nor are arguments without a key that may stand for another.
    is_refused = sent is not ABSENT and are_equal(safe, sent)
    if shown.value is ABSENT or is_refused or (complete and any(map(_is_open, found))):
        text, complete = "", False
    return ToolResult(  # `replace` takes several times as long
        result.call, result.failure, result.attempt, result.escalated, result.repeated, result.history, accepts, text,
        complete, result.extra, result.repairs, limits, result.finalising,
    )  # fmt: skip


# Failures by which a tool refuses its arguments without saying which: the answer says all the same what it takes.
_UNPLACED: Final = (codes.UPSTREAM_REJECTED_ARGUMENTS, codes.INVALID_REQUEST)
# With more properties than this an answer may have so many characters, where the config leaves `max_chars` as it is.
_MANY: Final = 25
_LARGE: Final = 3000
_USUAL: Final = FeedbackLimits().max_chars
_LOOKED_AT: Final = 200


def _fit_limits(limits: FeedbackLimits, check: Check | None) -> FeedbackLimits:
    """The limits of an answer about a tool, by how many properties it declares, those of nested objects among them."""
    if check is None or limits.max_chars != _USUAL:
        return limits
    memo: dict[str, bool] = check.schemas.memos.setdefault("many properties", {})
    known = memo.get("")
    if known is None:
        count, seen = 0, {id(check.root)}
        queue = [check.root]
        for node in queue:
            for part in applies_always(node):
                inner = [*part.properties.values(), *part.any_of, *part.one_of]
                inner += [part.items] if part.items is not None else []
                count += len(part.properties)
                queue += [each for each in inner if id(each) not in seen]
                seen.update(map(id, inner))
            if count > _MANY or len(queue) > _LOOKED_AT:
                break
        known = memo[""] = count > _MANY
    return replace(limits, max_chars=_LARGE) if known else limits


def _write_accepts(check: Check, sent: JsonValue, found: Iterable[Violation]) -> tuple[str, ...]:
    """What the tool takes, in several sizes: the schema itself, where it is shorter than its description."""
    shown: list[Pointer] = []
    missing: list[Pointer] = []
    undeclared: list[Pointer] = []
    around = set[Pointer]()
    for violation in found:
        path = violation.path
        if violation.code is REQUIRED_MISSING and path and isinstance(path[-1], str):
            (missing if find_possible_nodes(check, path) else undeclared).append(path)
            around.add(path[:-1])
        elif violation.code is codes.UNKNOWN_FIELD and path:
            around.add(path[:-1])
        elif path:
            shown.append(path)
    candidates = [(*place, key) for place in around for key in _list_candidate_fields(check, sent, place)]
    sizes = write_accepts(check.root, Wanted(tuple(shown), tuple(missing), tuple(undeclared), tuple(candidates)))
    schema = write_schema(check.root) if len(sizes[0]) > SHORT_ACCEPTS else ""
    return (f"JSON Schema {schema}", *sizes) if schema and len(schema) < len(sizes[0]) else sizes


def _list_candidate_fields(check: Check, sent: JsonValue, place: Pointer) -> list[str]:
    """The fields that unknown keys of an object may stand for."""
    holder = find_value(sent, place)
    if not isinstance(holder, dict):
        return []
    declared = {key: member for node in find_possible_nodes(check, place) for key, member in node.properties.items()}
    unsent = {key: member for key, member in declared.items() if key not in holder}
    return sorted(
        {
            candidate
            for key in islice((key for key in holder if key not in declared), _MOST_KEYS)
            for candidate in list_candidates(key, unsent)
        }
    )


_MOST_KEYS: Final = 12


def _keep_good(check: Check, sent: JsonValue, found: Iterable[Violation], wrong: Iterable[Pointer]) -> JsonValue:
    """What was sent without what is wrong in it, each value under the name and at the place that it belongs to. `wrong`
    are the places that an example shows."""
    content = find_content(check, sent)
    if content is not sent:
        return content
    kept = _without(sent, [violation.path for violation in found])
    if isinstance(kept, dict):
        kept = {**kept, **{path[0]: WRONG for path in wrong if len(path) == 1}}
    for path in wrong:
        if len(path) > 1 or not isinstance(kept, dict):
            kept = put_member(kept, path, WRONG)
    for target, source in (find_renames(check, sent, found) | find_respelt(check, kept)).items():
        kept = put_member(_drop_member(kept, source), target, find_value(sent, source))
        if len(source) > 1 and find_value(kept, source[:-1]) == {} and not find_possible_nodes(check, source[:-1]):
            kept = _drop_member(kept, source[:-1])  # a wrapper that holds nothing more
    return kept


def _is_open(violation: Violation) -> bool:
    """Whether it is open which field an unknown key stands for."""
    asks = ("There is no such field: if", "Did you", "Name it so")
    return violation.code is codes.UNKNOWN_FIELD and violation.hint.startswith(asks)


# What asks for nothing where it is sent.
_NOTHING: Final = (None, "", ABSENT)


def _find_member(path: Pointer) -> Pointer:
    """The last member of an object on the way to a place; () where there is none."""
    while path and not isinstance(path[-1], str):
        path = path[:-1]
    return path


def _without(sent: JsonValue, places: Iterable[Pointer]) -> JsonValue:
    """A value without the members at these places; an item of a list takes the list with it, and a text outside of any
    object takes the whole value."""
    dropped: set[str | int] = set()
    for path in places:
        place = _find_member(path)
        if len(place) == 1:
            dropped.add(place[0])
        elif place:
            sent = _drop_member(sent, place)
        elif isinstance(find_value(sent, path), str):
            sent = ABSENT
    return {key: item for key, item in sent.items() if key not in dropped} if isinstance(sent, dict) else sent


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
