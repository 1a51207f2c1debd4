"""The spans of values in a JSON text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.json.jsonspan import cut_value, find_span, read_members, replace_values
from proxy.core.model.values import ABSENT, Pointer

TEXT = b' { "a" : [ 1 , {"b\\"c" : "x}]" } , -1.50e+3 ] ,"\\u0061b":null, "":{"":[]}, "z" : "\xc3\xa9\\\\" } '


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), TEXT.strip()),
        (("a",), b'[ 1 , {"b\\"c" : "x}]" } , -1.50e+3 ]'),
        (("a", 0), b"1"),
        (("a", "1", 'b"c'), b'"x}]"'),
        (("a", 2), b"-1.50e+3"),
        (("ab",), b"null"),
        (("", ""), b"[]"),
        (("z",), b'"\xc3\xa9\\\\"'),
    ],
)
def test_a_value_is_found_with_its_exact_text(path: Pointer, found: bytes) -> None:
    start, end = find_span(TEXT, path)
    assert found == TEXT[start:end]


@pytest.mark.parametrize("path", [("b",), ("a", 3), ("a", "x"), ("ab", "c"), ("z", 0), ("a", -1)])
def test_a_missing_place_is_a_lookup_error(path: Pointer) -> None:
    with pytest.raises(LookupError):
        find_span(TEXT, path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


def places(value: object, path: Pointer = ()) -> list[tuple[Pointer, object]]:
    found: list[tuple[Pointer, object]] = [(path, value)]
    if isinstance(value, dict):
        found += [place for key, item in value.items() for place in places(item, (*path, key))]
    elif isinstance(value, list):
        found += [place for index, item in enumerate(value) for place in places(item, (*path, index))]
    return found


@pytest.mark.parametrize("levels", [1, 5_000])
def test_cuts_the_exact_text_of_a_value_however_deep(levels: int) -> None:
    deep = b"[" * levels + b"1.10 " + b"]" * levels
    text = b'{"x":0, "p\\u0061rams" : {"n":1,"arguments" : ' + deep + b" }}"

    assert deep == cut_value(text, ("params", "arguments"))
    with pytest.raises(LookupError):
        cut_value(text, ("params", "missing"))


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_every_value_of_any_text_is_found(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    for path, wanted in places(value):
        start, end = find_span(text, path)
        assert wanted == json.loads(text[start:end])


def test_many_places_are_exchanged_in_one_pass_and_nothing_else() -> None:
    made = replace_values(TEXT, {("a", 0): b"2", ("ab",): b"3", ("a", 2): b"-15", ("", ""): b"{}"})
    expected = TEXT.replace(b"[ 1 ,", b"[ 2 ,").replace(b"null", b"3").replace(b"-1.50e+3", b"-15")
    assert expected.replace(b'"":[]', b'"":{}') == made
    assert b" 5 " == replace_values(b" [1] ", {(): b"5"})
    with pytest.raises(LookupError):
        replace_values(TEXT, {("a", 0): b"2", ("none",): b"3"})


def test_reads_outer_members_whatever_the_others_hold() -> None:
    text = b' {"id": 1, "deep": ' + b"[" * 9_000 + b"]" * 9_000 + b', "na\\u006de": {"a": [1]}, "id": "two"} '
    assert {"id": "two", "deep": ABSENT, "name": {"a": [1]}} == read_members(text, {"id", "name"})
    assert {} == read_members(b"[1, 2]", {"id"})


@given(st.binary() | st.text('{}[]":,\\a1').map(lambda text: b'{"' + text.encode()))
def test_reads_only_named_outer_members_of_any_text(text: bytes) -> None:
    found = read_members(text, {"id"})
    assert {ABSENT} >= {value for name, value in found.items() if name != "id"}
