"""Strict JSON in, exact JSON out: RFC 8259 with every doubt refused, numbers by their own text."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.check.metaschema import make_exact
from proxy.core.json import fast_json
from proxy.core.json.jsontext import (
    LosslessFloat,
    TextLimits,
    are_equal,
    dumps,
    dumps_known,
    find_at_pointer,
    format_pointer,
    make_decimal,
    name_json_type,
    parse,
    parse_pointer,
)
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue
from proxy.core.schema.drafts import Draft


# --- reading --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        b"1.10", b"1e3", b"1E+3", b"-0", b"-0.0", b"0e5", b"9007199254740993", b"1" * 4300, b"1e-400",
        b"123456789012345678901234567890.123456789012345678901234567890", b"1e-999999999", b"0e-000000000000000000001",
    ],
)  # fmt: skip
def test_a_number_keeps_its_text(text: bytes) -> None:
    assert text == dumps(parse(text))


def test_an_exponent_beyond_all_arithmetic_can_still_be_asked_for_its_value() -> None:
    """The reader refuses such a number (it could not be distinguished from another), but a schema's number never passed
    the reader."""
    near, zero = LosslessFloat(b"1e-99999999999999999999"), LosslessFloat(b"0e99999999999999999999")
    assert (False, True) == (make_decimal(near) == 0, make_exact([zero], Draft.D2020) == [0])
    assert ("number", "integer") == (name_json_type(near), name_json_type(zero))


def test_a_plain_integer_is_an_int_at_any_size_and_every_other_number_is_not() -> None:
    assert 9007199254740993 == parse(b"9007199254740993")
    assert float is type(parse(b"1.0"))
    assert LosslessFloat is type(parse(b"1.00"))
    assert LosslessFloat is type(parse(b"1e2"))


def test_a_float_is_written_in_the_digits_it_was_read_from() -> None:
    assert b"[0.00003,1e+22,-0.0,0.1]" == dumps(parse(b"[0.00003, 1e+22, -0.0, 0.1]"))
    assert [float] * 4 == [type(parse(text)) for text in (b"0.00003", b"1e+22", b"-0.0", b"0.1")]


@pytest.mark.parametrize(
    ("text", "reason", "line", "column"),
    [
        (b"", "EOF while parsing a value", 1, 1),
        (b'{"a":1}x', "trailing characters", 1, 8),
        (b'{\n"a":1,\n"a":2}', 'duplicate key "a"', 3, 5),
        (b'{"x":{"a":1,"a":2}}', 'duplicate key "a"', 1, 17),
        (b"[1e400]", "number out of range", 1, 2),
        (b"[\n -1e999999999999]", "number out of range", 2, 2),
        (b"[1e-1000000000]", "number out of range", 1, 2),
        (b"[0, 0E+99999999999999999999]", "number out of range", 1, 5),
        (b'["' + b"x" * 5000 + b'", 1e-99999999999999999999]', "number out of range", 1, 5006),
        (b"9" * 309 + b".5", "number out of range", 1, 1),
        (b"NaN", "expected value", 1, 1),
        (b"[Infinity]", "expected value", 1, 2),
        (b"\xef\xbb\xbf{}", "expected value", 1, 1),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64 levels", 1, 65),
        (b"[" + b"1," * 100_000 + b"1]", "more than 100000 values", 1, 1),
    ],
)
def test_rejects_text_that_two_parsers_could_read_differently_with_its_place(
    text: bytes, reason: str, line: int, column: int
) -> None:
    problem = parse(text)
    assert isinstance(problem, JsonProblem)
    assert (reason, line, column) == (problem.reason, problem.line, problem.column)


@pytest.mark.parametrize(
    "text", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"a\nb"', b'"\x00"']
)
def test_invalid_text_inside_a_string_is_refused(text: bytes) -> None:
    assert isinstance(parse(text), JsonProblem)


def test_an_integer_of_more_than_4300_digits_is_refused() -> None:
    assert isinstance(parse(b"1" * 4301), JsonProblem)
    assert isinstance(parse(b"[-" + b"9" * 5000 + b"]"), JsonProblem)


@pytest.mark.parametrize("text", [b'{"a":1', b'{"a":"x', b"[1,", b'{"a"', b'"\\u00', b"[[[["])
def test_a_text_that_ends_in_the_middle_looks_truncated(text: bytes) -> None:
    problem = parse(text)
    assert isinstance(problem, JsonProblem)
    assert problem.truncated


@pytest.mark.parametrize("text", [b"", b"   ", b"{]", b"nulx", b"{'a':1}"])
def test_a_text_that_is_wrong_in_another_way_does_not(text: bytes) -> None:
    problem = parse(text)
    assert isinstance(problem, JsonProblem)
    assert not problem.truncated


def test_brackets_inside_strings_are_no_depth() -> None:
    assert ["[" * 100] == parse(b'["' + b"[" * 100 + b'"]')


def test_limits_can_be_set_lower() -> None:
    assert [[1]] == parse(b"[[1]]", TextLimits(depth=2))
    assert isinstance(parse(b"[[1]]", TextLimits(depth=1)), JsonProblem)
    assert isinstance(parse(b"[1,2,3]", TextLimits(nodes=3)), JsonProblem)


# --- writing --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (b'{"b":1,"a":[true,false,null]}', {"b": 1, "a": [True, False, None]}),
        (b"[]", []),
        (b"{}", {}),
        ('"é\U0001f600"'.encode(), "é\U0001f600"),
        (b'"\\"\\\\\\b\\f\\n\\r\\t\\u0001"', '"\\\b\f\n\r\t\x01'),
        (b"[1.5,0.1]", [1.5, Decimal("0.1")]),
    ],
)
def test_values_are_written_compactly_and_in_order(expected: bytes, value: JsonValue) -> None:
    assert expected == dumps(value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES, st.sampled_from([b"1.50", b"1e3", b"-0", b"0.10", b"123456789012345678901234567890"]))
def test_the_quick_way_and_the_general_one_write_a_read_value_alike(value: JsonValue, number: bytes) -> None:
    read = parse(b"[" + dumps(value) + b"," + number + b"]")

    assert not isinstance(read, JsonProblem)
    assert dumps(read) == dumps_known(read)
    assert dumps_known(read).endswith(b"," + number + b"]")


@pytest.mark.parametrize(
    "text", [b'{"a":[1,2.5,"x",null]}', b"[1.50,-0,1e3,12345678901234567890123]", b'{"a":1,"a":2}', b"[1,"]
)
def test_reading_and_writing_do_the_same_with_the_quick_way_switched_off(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = parse(text)
    written = None if isinstance(read, JsonProblem) else dumps_known(read)
    monkeypatch.setattr(fast_json, "read", lambda *_: ABSENT)
    monkeypatch.setattr(fast_json, "write", lambda *_: None)
    again = parse(text)
    if written is None:
        assert read == again
    else:
        assert (written, written) == (dumps_known(again), dumps_known(read))


@given(st.lists(st.sampled_from([b".", b"0", b".0", b",", b"ab" * 60]), max_size=90), st.sampled_from([0, 5000]))
def test_finds_a_pair_of_bytes_wherever_it_is(parts: list[bytes], more: int) -> None:
    for text in (b"".join(parts) + b"x" * more, b"x" * more + b"".join(parts)):
        assert (b".0" in text) == fast_json.has_pair(text, b".0")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_writes_no_value_that_is_no_number_in_either_way(value: float) -> None:
    for write in (dumps, dumps_known):
        with pytest.raises(ValueError, match="is not JSON"):
            write({"depth": [value]})


def test_a_text_deeper_than_the_quick_writer_goes_is_written_by_the_general_way() -> None:
    value: JsonValue = 0
    for _ in range(300):
        value = [value]

    assert b"[" * 300 + b"0" + b"]" * 300 == dumps_known(value)


def test_cannot_write_a_value_that_is_not_json() -> None:
    with pytest.raises(TypeError, match="set is not JSON"):
        dumps({1, 2})


# --- values ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("null", b"null"), ("boolean", b"true"), ("integer", b"1"), ("integer", b"1.0"), ("integer", b"1e3"),
        ("number", b"1.5"), ("string", b'"1"'), ("array", b"[]"), ("object", b"{}"), ("integer",
         b"0e999999999"),
        ("number", b"1e-999999999"),
    ],
)  # fmt: skip
def test_the_json_type_of_a_number_depends_on_its_value(expected: str, text: bytes) -> None:
    assert expected == name_json_type(parse(text))


@pytest.mark.parametrize(
    ("left", "right"),
    [(b"1", b"1.0"), (b"1e2", b"100"), (b'{"a":1,"b":2}', b'{"b":2,"a":1.0}'), (b"[0]", b"[-0]"), (b"0.1", b"1e-1")],
)
def test_values_are_equal_by_meaning(left: bytes, right: bytes) -> None:
    assert are_equal(parse(left), parse(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [(b"1", b"true"), (b"0", b"false"), (b"null", b"false"), (b'"1"', b"1"), (b"[1]", b"[true]"), (b"[]", b"{}"),
     (b"9007199254740993", b"9007199254740992.0"), (b'{"a":1}', b'{"b":1}'), (b"[1]", b"[1,1]")],
)  # fmt: skip
def test_values_of_different_meaning_are_not_equal_whatever_python_says(left: bytes, right: bytes) -> None:
    assert not are_equal(parse(left), parse(right))


def test_numbers_become_exact_decimals() -> None:
    assert Decimal("1.10") == make_decimal(parse(b"1.10"))
    assert Decimal("0.1") == make_decimal(parse(b"0.1"))
    assert {"a": [Decimal("1.10"), 1]} == make_exact(parse(b'{"a":[1.10,1]}'), Draft.D2020)


def test_an_exact_number_keeps_its_digits() -> None:
    value = parse(b"[1.0, 1e2, 0.10, -0, 1e-5, 12345678901234567890.5]")
    assert [
        "[1, 100, Decimal('0.10'), 0, Decimal('0.00001'), Decimal('12345678901234567890.5')]",
        "[Decimal('1.0'), Decimal('1E+2'), Decimal('0.10'), 0, Decimal('0.00001'), Decimal('12345678901234567890.5')]",
    ] == [str(make_exact(value, draft)) for draft in (Draft.D7, Draft.D4)]


# --- pointers -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "text"), [((), ""), (("a", 0), "/a/0"), (("a/b", "m~n", ""), "/a~1b/m~0n/"), (("~1",), "/~01")]
)
def test_a_pointer_is_escaped_as_rfc_6901_says(path: tuple[str | int, ...], text: str) -> None:
    assert text == format_pointer(path)
    assert tuple(map(str, path)) == parse_pointer(text)


def test_a_pointer_without_its_slash_is_none() -> None:
    with pytest.raises(ValueError, match="starts with '/'"):
        parse_pointer("a")


def test_a_pointer_finds_members_and_items() -> None:
    assert 2 == find_at_pointer({"a": [1, 2]}, ("a", "1"))
    for path in (("b",), ("a", "9"), ("a", "x"), ("a", "0", "c")):
        with pytest.raises(LookupError):
            find_at_pointer({"a": [1, 2]}, path)
