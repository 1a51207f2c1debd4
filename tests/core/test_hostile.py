"""Hostile bodies and schemas: the work of one call is bounded, and a call beyond the bound is rejected with that
reason.

The tests assert structure (work counted, rejections, sizes of answers), never time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import UnknownKeys
from proxy.core.decide import decide
from proxy.core.explain.advice import add_advice
from proxy.core.explain.explain import MAX_VIOLATIONS
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Forward, JsonValue, Reject, ToolResult
from proxy.core.model.work import REPAIRING, TooMuchWorkError, Work
from proxy.core.repair.engine import repair
from proxy.core.rules.facts import is_match, read_facts
from tests.core.repairing import call, obj, policy

INT: Final[JsonValue] = {"type": "integer"}


def nested(depth: int, leaf: JsonValue, step: Callable[[JsonValue], JsonValue]) -> JsonValue:
    for _ in range(depth):
        leaf = step(leaf)
    return leaf


def levels(depth: int, make: Callable[[str], JsonValue], last: JsonValue) -> JsonValue:
    """A schema whose definitions n0, n1 ... each refer to the next; `make` gets the reference to the next."""
    made = {f"n{number}": make(f"#/$defs/n{number + 1}") for number in range(depth)}
    return {"$ref": "#/$defs/n0", "$defs": {**made, f"n{depth}": last}}


TREE: Final[JsonValue] = {
    "$ref": "#/$defs/t",
    "$defs": {"t": {"anyOf": [INT, {"type": "array", "items": {"$ref": "#/$defs/t"}}, obj(l={"$ref": "#/$defs/t"})]}},
}
TWICE: Final = levels(
    30, lambda ref: {"allOf": [obj(x={"$ref": ref}), {"properties": {"x": {"allOf": [{"$ref": ref}]}}}]}, INT
)
FORKS: Final = levels(
    30, lambda ref: obj(x={"anyOf": [{"$ref": ref}, {"allOf": [{"$ref": ref}, {"properties": {"y": INT}}]}]}), INT
)

# what is hostile about it -> (schema, arguments)
CASES: Final[dict[str, tuple[JsonValue, JsonValue]]] = {
    "99,000 numbers in text": ({"items": INT}, [str(number) for number in range(99_000)]),
    "99,000 words in another case": ({"items": {"enum": ["a", "b"]}}, ["A", "B"] * 49_500),
    "20,000 objects with wrong members": ({"items": obj(a=INT, b=INT)}, [{"a": "1", "b": "x"}] * 20_000),
    "50,000 unknown keys beside 2,000 known ones": (
        {**obj(**{f"key_{number}": INT for number in range(2000)}), "additionalProperties": False},
        {f"Key-{number}": 1 for number in range(50_000)},
    ),
    "20,000 keys held against 30 patterns": (
        {"patternProperties": {f"^a{{{number}}}x": INT for number in range(1, 31)}, "additionalProperties": False},
        {f"aaa{number}": "1" for number in range(20_000)},
    ),
    "a union at each of 60 levels": (TREE, nested(60, "1", lambda leaf: [leaf, "1"])),
    "a wide list at each of 60 levels": (TREE, nested(60, "x", lambda leaf: [leaf, *["1"] * 1500])),
    "a tree of 2^12 leaves in unions": (TREE, nested(12, "x", lambda leaf: [leaf, leaf])),
    "every level reached twice": (TWICE, nested(30, "x", lambda leaf: {"x": leaf})),
    "every level reached by two branches": (FORKS, nested(30, "x", lambda leaf: {"x": leaf, "y": "1"})),
    "a union of 200 objects": (
        {"items": {"anyOf": [{**obj(**{f"k{n}": INT}), "required": [f"k{n}"]} for n in range(200)]}},
        [{f"k{number % 200}": "x"} for number in range(1000)],
    ),
    "JSON text inside JSON text inside JSON text": (
        {"$ref": "#/$defs/t", "$defs": {"t": obj(a={"$ref": "#/$defs/t"})}},
        nested(15, "x", lambda leaf: {"a": dumps(leaf).decode()}),
    ),
    "4,000 lists in text": (
        {"additionalProperties": {"type": "array", "items": INT}},
        {f"k{n}": json.dumps(["1"] * 30) for n in range(4000)}
    ),
    "Python text made of brackets": (
        {"additionalProperties": {"type": "array"}}, {f"k{number}": "[" * 40_000 for number in range(10)}
    ),
    "Python text made of words": (
        {"additionalProperties": {"type": "array", "items": INT}}, {f"k{n}": "['a', " * 9000 for n in range(10)}
    ),
    "2,000 missing keys beside 9,000 unknown ones": (
        {**obj(**{f"req_{n}": INT for n in range(2000)}), "required": [f"req_{n}" for n in range(2000)]},
        {"x" * 50 + str(number): 1 for number in range(9000)},
    ),
    "keys of 50,000 characters": (
        {**obj(abc=INT), "required": ["abc"], "additionalProperties": False}, {"x" * 50_000 + str(n):
        1 for n in range(20)}
    ),
    "a text of a million characters": (obj(a=INT), {"a": "9" * 1_000_000}),
    "items that must differ": ({"items": INT, "uniqueItems": True}, [*map(str, range(30_000)), "1"]),
}  # fmt: skip


@pytest.mark.large
@pytest.mark.parametrize("hostile", CASES)
def test_a_hostile_call_is_validated_within_the_bounds(hostile: str) -> None:
    schema, arguments = CASES[hostile]
    under = policy(schema, "lenient", unknown_keys=UnknownKeys.REFUSE)
    sent = call(dumps(arguments), under.repair.rules)
    decision = decide(sent, under)
    if isinstance(decision, Forward):
        assert under.check is not None
        assert under.check.accepts(parse(decision.checked.arguments))
        return
    assert 0 < len(decision.failure.violations) <= 2 * MAX_VIOLATIONS
    told = add_advice(ToolResult(sent, decision.failure), under)
    assert len(told.accepts) < 50_000
    assert sum(len(v.message) + len(v.hint) + len(v.expected) for v in decision.failure.violations) < 200_000


@pytest.mark.parametrize("hostile", CASES)
def test_the_engine_takes_no_more_work_than_the_limit(hostile: str) -> None:
    schema, arguments = CASES[hostile]
    under = policy(schema, "lenient")
    assert under.check is not None
    made = repair(under.check, parse(dumps(arguments)), under.repair, REPAIRING // 10)
    again = repair(under.check, parse(dumps(arguments)), under.repair, REPAIRING // 10)
    assert (made.accepted, made.exhausted, made.repairs) == (again.accepted, again.exhausted, again.repairs)
    assert not made.exhausted or made.repairs == ()


def test_an_answer_says_that_a_call_was_too_much_to_repair() -> None:
    decision = decide(call(dumps(["1"] * 90_000)), policy({"items": {"anyOf": [INT, obj()]}}))
    assert isinstance(decision, Reject)
    assert "too large or too deeply nested to be repaired" in decision.failure.hint


def test_unions_of_unions_are_looked_at_once_each() -> None:
    check = compile_check(FORKS)
    assert frozenset({"object"}) == read_facts(check.root).site.types
    wide = levels(300, lambda ref: obj(x={"anyOf": [{"$ref": ref}, {"oneOf": [{"$ref": ref}, {"type": "null"}]}]}), INT)
    root = compile_check(wide).root
    assert read_facts(root) is read_facts(root)


def test_a_pattern_that_backtracks_is_given_up_not_waited_for() -> None:
    work = Work(1000)
    assert is_match("^(a+)+$", "a" * 5000, work)
    assert not is_match("^(a+)+$", "a" * 5000 + "b", work)
    with pytest.raises(TooMuchWorkError):
        is_match(r"^(?=a)(a|aa)+\1$", "a" * 60 + "b", work)


def test_work_is_counted_by_what_is_looked_at() -> None:
    work = Work(100)
    assert (1, 1, 3, 101) == (work.size(1), work.size("x" * 99), work.size([1, 2]), work.size("x" * 10_000))
    work.look([1, {"a": 2}])
    assert 96 == work.left
    with pytest.raises(TooMuchWorkError):
        work.look("x" * 10_000)
