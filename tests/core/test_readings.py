"""An adversary for every family of rules: a value that can be read in two ways that the schema accepts is rejected.

The readings are listed here by themselves, from what people write and not from what the rules do. A call that continues
changed has to be the one reading of what was sent.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import permutations
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.check.validation import Check, compile_check
from proxy.core.json.jsontext import are_equal, dumps, parse
from proxy.core.model.values import JsonValue
from tests.core.repairing import LEVELS, obj, outcome
from tests.generated import examples

pytestmark = pytest.mark.large

THOROUGH = settings(max_examples=examples(200), deadline=None)

INT: Final[JsonValue] = {"type": "integer"}
STR: Final[JsonValue] = {"type": "string"}
PERSON: Final[JsonValue] = {**obj(name=STR, age=INT, boss={}), "additionalProperties": False}
COLOURS: Final[JsonValue] = {"enum": ["red", "green", "red, green"]}
PLACES: Final[tuple[JsonValue, ...]] = (
    INT, STR, {"type": "boolean"}, {"type": ["boolean", "integer"]}, {"enum": ["True", "true", "false"]}, COLOURS,
    {**STR, "description": "JSON text"}, PERSON,
    *({"type": "array", "items": item} for item in (STR, INT, PERSON, COLOURS, {"type": "object"})),
    *({"type": "array", "items": {"type": "array", "items": item}} for item in (STR, INT, PERSON)),
)  # fmt: skip
LEVEL: Final = st.sampled_from(LEVELS)


def accepted(check: Check, readings: list[JsonValue]) -> list[JsonValue]:
    """The different readings that the schema accepts at `a`."""
    found: list[JsonValue] = []
    for reading in readings:
        value = parse(json.dumps(reading).encode())
        if check.accepts({"a": value}) and not any(are_equal(value, other) for other in found):
            found.append(value)
    return found


def hold(place: JsonValue, sent: JsonValue, readings: list[JsonValue], level: str) -> None:
    """Holds the outcome of `{"a": sent}` against its readings."""
    schema: JsonValue = {**obj(a=place), "required": ["a"]}
    check, text = compile_check(schema), json.dumps({"a": sent})
    made = outcome(schema, text, level)
    if made.startswith("VAL-0") or made == text:
        return
    value = parse(made.encode())
    meanings = accepted(check, readings)
    assert [value] == [{"a": meaning} for meaning in meanings], (place, sent, level, made, meanings)


# --- one and many -----------------------------------------------------------------------------------------------------
WORDS: Final = ("x", "Ann Lee", "5", "12", "red", "green", "a@b.co", "San Francisco", "1", "true", "250")
SEPARATORS: Final = (", ", ",", "; ", "|", "\t", "\n", "、", "，", "، ", " and ", " y ", " und ", " / ")
TEXTS: Final = st.builds(
    str.join, st.sampled_from(SEPARATORS), st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)
)


def readings_of_text(text: str) -> list[JsonValue]:
    """Returns what a text may mean: itself, a number, one item, or the items that a separator parts."""
    found: list[JsonValue] = [text]
    if re.fullmatch(r"[0-9]+", text):
        found += [int(text), [int(text)], [[int(text)]]]
    found += [word for word in (True, False) if text.lower() in (str(word).lower(), str(int(word)))]
    if not re.fullmatch(r"[^\s,]+(,[^\s,]+)+", text):  # words strung on commas are a list, never a phrase
        found += [[text], [[text]]]
    if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", text):
        found += [int(text.replace(",", "")), [int(text.replace(",", ""))]]
    for separator in SEPARATORS:
        parts = [part.strip() for part in text.split(separator.strip() or separator)]
        if len(parts) > 1:
            numbers = [int(part) for part in parts if re.fullmatch(r"[0-9]+", part)]
            found += [parts, [parts], numbers, [numbers]]
    return found


@THOROUGH
@given(st.sampled_from(PLACES), TEXTS, LEVEL)
@example({"type": "array", "items": INT}, "1,234,567", "lenient")
@example({"type": "array", "items": STR}, "San Francisco, CA", "lenient")
def test_a_text_is_one_value_or_a_list_but_never_either(place: JsonValue, text: str, level: str) -> None:
    hold(place, text, readings_of_text(text), level)


ITEMS: Final = st.sampled_from(["x", "one\n", "5", 5, 7, {"name": "x"}, {"age": 3}, {"boss": {"name": "y"}}])
LISTS: Final = st.recursive(ITEMS, lambda inner: st.lists(inner, max_size=3), max_leaves=4).filter(
    lambda value: isinstance(value, list)
)


def respelt(value: JsonValue) -> list[JsonValue]:
    """A value as it is, with its numbers as texts, and with its texts as numbers."""
    return [value, respell(value, str), respell(value, int)]


def respell(value: JsonValue, kind: type[str] | type[int]) -> JsonValue:
    """A value with every number, or text of a number, of one kind."""
    if isinstance(value, list):
        return [respell(item, kind) for item in value]
    is_number = isinstance(value, int) or (isinstance(value, str) and value.isdecimal())
    return kind(value) if is_number else value


def readings_of_list(value: list[Any], *, takes_list: bool) -> list[JsonValue]:
    """Returns what a list may mean: itself, one row, one column, its only item, its items without one level, its
    texts."""
    texts = [item for item in value if isinstance(item, str)]
    found: list[JsonValue] = [value, [value], [[item] for item in value]]
    if not takes_list:  # else it is the list that is meant
        found += value[: len(value) == 1]
    found.append([part for item in value for part in (item if isinstance(item, list) else [item])])
    if len(texts) == len(value) > 1 and not all(text.endswith("\n") for text in texts[:-1]):
        found += ["".join(texts), ", ".join(texts), "\n".join(texts)]
    elif texts and len(texts) == len(value):
        found.append("".join(texts))
    for reading in list(found):
        found += respelt(reading)
    return found


@THOROUGH
@given(st.sampled_from(PLACES), LISTS, LEVEL)
@example({"type": "array", "items": {"type": "array", "items": STR}}, ["x", "5"], "standard")
@example({"type": "array", "items": {"type": "array", "items": INT}}, [[5], 7], "standard")
@example({"type": "array", "items": INT}, ["5", 7], "standard")
@example({"type": "array", "items": STR}, [["one\n", "x"]], "lenient")
@example({"type": "array", "items": STR}, [["one\n", "x"], "y"], "lenient")
def test_a_list_is_a_row_or_a_column_but_never_either(place: JsonValue, value: list[Any], level: str) -> None:
    takes_list = "array" in json.dumps(place)
    hold(place, value, readings_of_list(value, takes_list=takes_list), level)


SHELLS: Final = st.sampled_from(["a", "item", "name", "boss", "ann", "value"])
OBJECTS: Final = st.recursive(
    st.sampled_from(["x", 5, "5"]),
    lambda inner: (
        st.dictionaries(SHELLS, inner, min_size=1, max_size=2)
        | inner.map(lambda item: {"type": "string", "value": item})
        | st.sampled_from(["string", "str"]).map(lambda kind: {"type": kind, "description": "x"})
    ),
    max_leaves=3,
).filter(lambda value: isinstance(value, dict))


def readings_of_object(value: dict[str, Any], *, json_text: bool) -> list[JsonValue]:
    """Returns what an object may mean: itself, one item, its values, its only value, what a shell holds, its JSON
    text."""
    found: list[JsonValue] = [value, [value], list(value.values())]
    shells = {"a": {"a"}, "value": {"type", "value"}, "description": {"type", "description"}}
    inner = [value[key] for key, keys in shells.items() if value.keys() == keys]
    found += [[value["item"]]] if "item" in value else []
    for item in (value, *inner, *(item["a"] for item in inner if isinstance(item, dict) and "a" in item)):
        found += [item, [item], dumps(item).decode() if json_text and isinstance(item, dict) else item, *respelt(item)]
    return found


@THOROUGH
@given(st.sampled_from(PLACES), OBJECTS, LEVEL)
@example({"type": "array", "items": PERSON}, {"boss": {"name": "x"}}, "standard")
@example({**STR, "description": "JSON text"}, {"a": "x"}, "lenient")
def test_an_object_is_an_item_a_map_or_a_shell_but_never_either(
    place: JsonValue, value: dict[str, Any], level: str
) -> None:
    hold(place, value, readings_of_object(value, json_text="description" in place), level)


# --- numbers ----------------------------------------------------------------------------------------------------------
@THOROUGH
@given(st.from_regex(r"[+-]?[0-9]{1,7}([.,][0-9]{1,4}){0,2}(e[0-9]{1,3})?", fullmatch=True), LEVEL)
def test_a_number_in_a_text_is_no_thousands_no_octal_and_no_code(text: str, level: str) -> None:
    readings: list[JsonValue] = []
    if "," not in text and text.count(".") < 2:
        exact = Decimal(text)
        readings = [int(exact)] if exact.adjusted() < 400 and exact == exact.to_integral_value() else []
    if re.fullmatch(r"[+-]?[0-9]{1,3}([.,][0-9]{3})+", text):
        readings.append(int(re.sub("[.,]", "", text)))
    if re.fullmatch(r"[+-]?0[0-9]{2,}", text):
        readings += [int(re.sub("[89]", "7", text), 8), -1]
    hold(INT, text, readings, level)


# --- names whose case is their meaning --------------------------------------------------------------------------------
UNITS: Final = ("1m", "1M", "5m", "5M", "mW", "MW", "Mb", "MB", "mb", "mg", "Mg", "mA", "MA", "ms", "Ms", "red", "Red")


@THOROUGH
@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=5, unique=True), st.sampled_from(UNITS), LEVEL)
def test_a_unit_in_another_case_is_another_unit(members: list[str], sent: str, level: str) -> None:
    made = outcome({**obj(a={"enum": members}), "required": ["a"]}, json.dumps({"a": sent}), level)
    if sent in members:
        assert json.dumps({"a": sent}) == made
    else:
        folded = [member for member in members if member.lower() == sent.lower() == "red"]
        assert made == f'{{"a":"{folded[0]}"}}' if len(folded) == 1 and level in LEVELS[2:] else "VAL-008 /a" == made


# --- keys -------------------------------------------------------------------------------------------------------------
KEYS: Final = ("_from", "from", "From", "_class", "class", "startDate", "start_date", "start-date", "mA", "MA", "x")


@THOROUGH
@given(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True),
    st.booleans(),
    LEVEL,
)
@example(["_from", "_class"], ["from", "class"], False, "standard")
@example(["startDate", "start_date"], ["start-date"], True, "standard")
def test_a_key_is_renamed_with_all_its_kin_or_not_at_all(
    declared: list[str], sent: list[str], closed: bool, level: str
) -> None:
    schema: JsonValue = {
        "type": "object", "properties": dict.fromkeys(declared, INT), "required": declared[:1],
        "additionalProperties": not closed,
    }  # fmt: skip
    text = json.dumps({key: number for number, key in enumerate(sent)})
    made = outcome(schema, text, level)
    if made.startswith("VAL-0") or made == text:
        return
    value = json.loads(made)
    assert sorted(value.values()) == list(range(len(sent)))
    unknown = [key for key in value if key not in declared]
    assert [] == [
        key for key in unknown if any(_folded(key) == _folded(name) for name in declared if name not in ("mA", "MA"))
    ]
    for key, number in value.items():
        assert _folded(key) == _folded(sent[number])
        kin = [name for name in declared if _folded(name) == _folded(key)]
        assert key == sent[number] or kin == [key]


def _folded(key: str) -> str:
    return re.sub("[-_ ]", "", key).lower()


# --- nothing, where it may mean "clear this" --------------------------------------------------------------------------
@pytest.mark.parametrize(("first", "second"), list(permutations(["null", '""', '"None"', '"undefined"'], 2)))
@pytest.mark.parametrize("level", LEVELS)
def test_rejects_a_text_that_means_no_value(first: str, second: str, level: str) -> None:
    schema = obj(a=INT, b={"type": "array", "items": INT})
    assert "VAL-002" in outcome(schema, f'{{"a":{first},"b":{second}}}', level)
