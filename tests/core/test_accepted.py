"""What a schema leaves to do for the values that it accepts: where integers stand, and whether anything is told of."""

from __future__ import annotations

from typing import Final

import pytest

from proxy.core.accepted import Leftover, leftover
from proxy.core.model import JsonValue
from proxy.core.rules import rules_for
from proxy.core.validation import compile_check
from tests.core.repairing import obj, outcome

INT: Final[JsonValue] = {"type": "integer"}
STR: Final[JsonValue] = {"type": "string"}


@pytest.mark.parametrize(
    ("integers", "schema"),
    [
        ((), obj(a=STR, b={"type": "number"})),
        (("a", "c"), obj(a=INT, b=STR, c={"type": ["integer"]})),
        ((), obj(a={"type": ["integer", "null"]})),
        (None, INT),
        (None, obj(a=INT, b={"type": "array", "items": INT})),
        (None, obj(a=obj(b=INT))),
        (None, {**obj(a=INT), "additionalProperties": INT}),
        (None, {**obj(a=INT), "allOf": [obj(b=INT)]}),
        (None, {"properties": {"a": INT, "b": {"$ref": "#/properties/a"}}}),
    ],
)
def test_integers_are_looked_for_where_they_may_stand(integers: tuple[str, ...] | None, schema: JsonValue) -> None:
    found = leftover(compile_check(schema).schemas, rules_for("standard"))

    assert (None if integers is None else set(integers)) == (None if found.integers is None else set(found.integers))


def test_where_no_rule_writes_numbers_anew_none_are_looked_for() -> None:
    assert Leftover((), False) == leftover(compile_check(obj(a=obj(b=INT))).schemas, rules_for("off"))


def test_marks_that_are_told_of_may_stand_anywhere() -> None:
    assert leftover(compile_check(obj(a=obj(b={"deprecated": True}))).schemas, frozenset()).told


@pytest.mark.parametrize("sent", ['{"a":3.0,"b":{"c":3.0}}', '{"a":3e0,"b":{"c":3.0}}'])
def test_a_number_is_written_anew_at_the_root_and_below(sent: str) -> None:
    assert '{"a":3,"b":{"c":3}}' == outcome(obj(a=INT, b=obj(c=INT)), sent)


def test_a_number_at_a_key_that_is_no_integer_stays() -> None:
    assert '{"a":3,"b":3.0}' == outcome(obj(a=INT, b={"type": "number"}), '{"a":3,"b":3.0}')
