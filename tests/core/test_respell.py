"""Numbers of accepted values that are rewritten, and the places that are searched for them."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.check.validation import compile_check
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.repair.respell import INTEGRAL_FRACTION, has_integral_float, list_integer_keys
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
def test_searches_integers_only_in_places_that_may_hold_one(
    integers: tuple[str, ...] | None, schema: JsonValue
) -> None:
    found = list_integer_keys(compile_check(schema))

    assert (None if integers is None else set(integers)) == (None if found is None else set(found))


@pytest.mark.parametrize("sent", ['{"a":3.0,"b":{"c":3.0}}', '{"a":3.00,"b":{"c":3.0}}'])
def test_rewrites_a_number_at_the_root_and_below(sent: str) -> None:
    assert '{"a":3,"b":{"c":3}}' == outcome(obj(a=INT, b=obj(c=INT)), sent)


def test_a_number_at_a_key_that_is_no_integer_stays() -> None:
    assert '{"a":3,"b":3.0}' == outcome(obj(a=INT, b={"type": "number"}), '{"a":3,"b":3.0}')


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,4}|\.0{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_finds_every_rewritable_number_by_its_text(text: str) -> None:
    value = parse(text.encode())

    assert not isinstance(value, JsonProblem)
    assert INTEGRAL_FRACTION in text.encode() or not has_integral_float(value)
