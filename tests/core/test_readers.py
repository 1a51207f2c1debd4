"""The quick reader beside the strict one: of any text the same value, number for number, or the same problem."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import (
    DEFAULT_LIMITS,
    LosslessFloat,
    TextLimits,
    dumps,
    is_integral,
    make_decimal,
    name_json_type,
    parse,
    write_number,
)
from proxy.core.json.strictreader import read_strictly
from proxy.core.model.values import Conversation, Document, JsonProblem, JsonValue, Rung, ToolCall
from proxy.core.rules.rules import LEVELS, select_rules
from tests.core.test_properties import compiled, sendings
from tests.generated import examples
from tests.tables import each_row

MANY = settings(max_examples=examples(400), deadline=None)

NUMBERS = (
    "0", "-0", "0.0", "-0.0", "1", "-7", "1.0", "1.10", "0.1", "1e2", "1E2", "1e+2", "100.0", "1e22", "1e16", "1e400",
    "1e-400", "5e-324", "0.00001", "1e-5", "1e-05", "9007199254740993", "9007199254740993.0", "18446744073709551615",
    "18446744073709551616", "-9223372036854775809", "0.30000000000000004", "1.7976931348623157e308", "9" * 400,
    "123456789.123456789123456789", "0e5", "01", "1.", ".5", "-", "+1", "NaN", "Infinity", "1_0", "0x1",
)  # fmt: skip
TEXTS = (
    '""', '"a"', '"a b"', '"a: b"', '", "', '"\\":"', '"\\u0041"', '"\\u003a"', '"\\/"', '"/"', '"é"', '"\\u00e9"',
    '"\\ud83d\\ude00"', '"\\ud800"', '"\\n"', '"\\u000a"', '"\t"', '"\\u001F"', '"\\u001f"', '"\\b"', '"\\\\"',
    '"\x7f"',
)  # fmt: skip
KEYS = ('"a"', '"b"', '"a b"', '"ab"', '"\\u0061"', '""', '"a:"', '"é"', "a")
leaves = st.sampled_from((*NUMBERS, *TEXTS, "null", "true", "false", "nul"))
gaps = st.sampled_from(("", "", "", "", " ", "\n  ", "\t", "\x0c"))


@st.composite
def containers(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    """Text of an array or object, often with a duplicate key, and with white space in legal and illegal places."""
    items = draw(st.lists(inner, max_size=4))
    around = draw(gaps)
    between = around + draw(st.sampled_from((",",) * 9 + (" ",))) + draw(gaps)
    if draw(st.booleans()):
        return f"[{around}{between.join(items)}{around}]"
    colon = draw(gaps) + ":" + draw(gaps)
    members = between.join(draw(st.sampled_from(KEYS)) + colon + item for item in items)
    return f"{{{around}{members}{around}}}"


documents = st.recursive(leaves, containers, max_leaves=12)


def exact(value: JsonValue) -> Any:
    """A value in which the text of each number identifies it, and 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [exact(item) for item in value]
    is_number = isinstance(value, int | float | LosslessFloat) and not isinstance(value, bool)
    return ("number", write_number(value)) if is_number else value


def both_read_the_same(text: bytes, limits: TextLimits = DEFAULT_LIMITS) -> None:
    assert exact(read_strictly(text, limits)) == exact(parse(text, limits))


@MANY
@given(documents, st.sampled_from(["", "", " ", "\n", "x", "\ufeff", ",1", "\x00"]), st.booleans())
def test_both_readers_say_the_same_of_any_text(text: str, more: str, in_front: bool) -> None:
    both_read_the_same((more + text if in_front else text + more).encode())


@MANY
@given(documents, st.integers(0, 60), st.binary(min_size=1, max_size=2))
def test_both_readers_say_the_same_of_text_with_stray_bytes(text: str, place: int, stray: bytes) -> None:
    whole = text.encode()
    both_read_the_same(whole[:place] + stray + whole[place:])
    both_read_the_same(whole[:place] + stray + whole[place + 1 :])


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("size", [0, 10, 200, 5000])
@pytest.mark.parametrize("text", ['"a":1,"a":1', '"a":1,"b":{"c":[{"d":1,"d":2}]}', '"a":100000.0,"a":1e5'])
def test_rejects_a_duplicate_key_at_any_depth_and_size(text: str, size: int, spaced: bool) -> None:
    whole = '{"f":"' + "x" * size + '",' + text + "}"
    found = parse((whole.replace(":", " : ").replace(",", " , ") if spaced else whole).encode())
    assert isinstance(found, JsonProblem)
    assert found.reason.startswith("duplicate key ")


@each_row("depth", [1, 2, 63, 64, 65, 66, 130, 260, 1100])
@each_row(("start", "inner", "end"), [("[", "", "]"), ("[", "1", "]"), ('{"a":', "1", "}"), ('{"a":', "[]", "}")])
@each_row("beside", ["", "[" + "1," * 600 + "1]"])
def test_both_readers_keep_to_the_depth(depth: int, start: str, inner: str, end: str, beside: str) -> None:
    text = start * depth + inner + end * depth
    both_read_the_same((f"[{beside},{text}]" if beside else text).encode())


@each_row("nodes", [1, 2, 3, 4, 5, 6, 7, 8, 40])
@each_row("text", ["1", "[]", "[1,2,3]", '{"a":[1,{"b":2}],"c":[]}', "[[],[],[[]]]"])
def test_both_readers_keep_to_the_number_of_values(nodes: int, text: str) -> None:
    both_read_the_same(text.encode(), TextLimits(nodes=nodes))
    both_read_the_same(text.replace("1", '"' + "x" * 500 + '"').encode(), TextLimits(nodes=nodes))


@pytest.mark.parametrize("begins", ['{"a":"\\n', '{"a":"n', "[1.5,", '{"t":"\\"\\n'])
def test_a_large_text_is_read_the_same_however_it_begins(begins: str) -> None:
    close = '"}' if begins.startswith("{") else "]"
    filling = "\\n line: x" * 900 if close == '"}' else "1.50," * 1500 + "2"
    both_read_the_same((begins + filling + close).encode())
    both_read_the_same((begins + filling.replace("1.50", "1.5") + close).encode())


@MANY
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_says_exactly_what_its_text_says(number: float) -> None:
    text = write_number(number)
    kept = LosslessFloat(text.encode())
    assert (number, text) == (parse(text.encode()), write_number(kept))
    assert (make_decimal(kept), name_json_type(kept)) == (make_decimal(number), name_json_type(number))
    assert is_integral(Decimal(text)) == number.is_integer()


WHOLE: JsonValue = {"type": "object", "properties": {"a": {"type": "integer"}}}
TEXT: JsonValue = {"type": "object", "properties": {"a": {"type": "string"}}}


@settings(max_examples=examples(100), deadline=None)
@given(sendings(), st.sampled_from(LEVELS))
@example((WHOLE, {"a": 3.0}), "standard")
@example((TEXT, {"a": 3.5}), "standard")
def test_a_call_is_decided_the_same_whichever_reader_has_read_it(
    drawn: tuple[JsonValue, JsonValue], level: str
) -> None:
    schema, sent = drawn
    policy = ToolPolicy("tool", compiled(schema), "f", repair=RepairPolicy(select_rules(level, {})))
    text = dumps(sent)
    quick, strict = (
        decide(ToolCall("tool", Document(text, value), "1", Conversation("c", Rung.HEADER), text), policy)
        for value in (parse(text), read_strictly(text, DEFAULT_LIMITS))
    )
    assert told(strict) == told(quick)


def told(decision: Any) -> Any:
    """Everything that is done or said of a call."""
    if hasattr(decision, "failure"):
        return repr(decision.failure), [repr(found) for found in decision.failure.violations]
    return decision.checked.arguments, decision.checked.repairs, repr(decision.checked.warnings)
