"""The text that a model sees of arguments, and the changes that it may return: secrets stay here, and right values stay
right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import FeedbackLimits, Pointer
from proxy.extensions.correction.trajectory import (
    find_changes,
    find_out_of_scope,
    hide_secrets,
    holds_mask,
    lay_over,
    restore_secrets,
)

LIMITS = FeedbackLimits(secret_names=frozenset({"pin_of_card"}))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "password", "token", "b c"]), inner)
    ),
    max_leaves=15,
)


def test_secrets_are_masked_by_name_by_schema_and_by_look() -> None:
    sent = {
        "user": "eva",
        "password": "hunter2",
        "pin_of_card": 1234,
        "note": "use ghp_0123456789abcdefghijABCDEFGHIJ0123",
    }
    assert {"user": "eva", "password": "***", "pin_of_card": "***", "note": "use ***"} == hide_secrets(sent, LIMITS)


@given(values)
def test_restores_the_original_of_a_repeated_mask(value: Any) -> None:
    assert value == restore_secrets(hide_secrets(value, LIMITS), hide_secrets(value, LIMITS), value)


def test_a_repeated_number_keeps_its_text() -> None:
    sent = parse(b'{"price": 1.10, "unit": "x"}')
    answer = parse(b'{"price": 1.1, "unit": "y"}')
    assert b'{"price":1.10,"unit":"y"}' == dumps(restore_secrets(answer, hide_secrets(sent, LIMITS), sent))


def test_secrets_inside_lists_and_objects_come_back() -> None:
    sent = {"users": [{"name": "a", "password": "1"}, {"name": "b", "password": "2"}]}
    answer = {"users": [{"name": "A", "password": "***"}, {"name": "b", "password": "***"}]}
    expected = {"users": [{"name": "A", "password": "1"}, {"name": "b", "password": "2"}]}
    assert expected == restore_secrets(answer, hide_secrets(sent, LIMITS), sent)


USERS = {"users": [{"name": "a", "password": "1"}, {"name": "b", "password": "2"}]}
SHOWN_A, SHOWN_B = ({"name": name, "password": "***"} for name in "ab")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([SHOWN_B, SHOWN_A], [USERS["users"][1], USERS["users"][0]]),
        ([SHOWN_B], [USERS["users"][1]]),
        ([SHOWN_A, SHOWN_B, {"name": "c"}], [*USERS["users"], {"name": "c"}]),
        ([SHOWN_B | {"name": "B"}, SHOWN_A | {"name": "A"}], [SHOWN_B | {"name": "B"}, SHOWN_A | {"name": "A"}]),
        ([SHOWN_A | {"name": "A"}], [SHOWN_A | {"name": "A"}]),
    ],
)
def test_a_secret_never_ends_up_with_another_item(answer: list[Any], expected: list[Any]) -> None:
    assert {"users": expected} == restore_secrets({"users": answer}, hide_secrets(USERS, LIMITS), USERS)


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4, "d": 3}}, [("b", "c")]),
        ({"a": 1}, {"b": 1}, [("a",), ("b",)]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [("a", 1)]),
        ({"a": [1, 2]}, {"a": [1]}, [("a",)]),
        ({"a": True}, {"a": 1}, [("a",)]),
        ({"a": None}, {}, [("a",)]),
        ([], {}, [()]),
    ],
)
def test_the_changed_places_are_named_as_deep_as_they_go(before: Any, after: Any, paths: list[Pointer]) -> None:
    assert paths == find_changes(before, after)


@given(values, values)
def test_finds_a_change_exactly_if_the_values_differ(one: Any, other: Any) -> None:
    assert [] == find_changes(one, one)
    assert bool(find_changes(one, other)) == (dumps(one) != dumps(other) and not _same_json(one, other))


def _same_json(one: Any, other: Any) -> bool:
    return bool(dumps(_sorted(one)) == dumps(_sorted(other)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("paths", "failing", "beyond"),
    [
        ([("a",)], [("a",)], []),
        ([("a", "b")], [("a",)], []),
        ([("a",)], [("a", "b")], [("a",)]),
        ([("a", 0)], [("a", "0")], []),
        ([("ab",)], [("a",)], [("ab",)]),
        ([("x",)], [()], []),
        ([("x",)], [], []),
    ],
)
def test_accepts_a_change_only_at_or_below_a_failing_place(
    paths: list[Pointer], failing: list[tuple[str, ...]], beyond: list[Pointer]
) -> None:
    assert beyond == find_out_of_scope(paths, failing)


def test_changes_are_laid_over_the_arguments() -> None:
    assert {"a": 1, "b": {"c": 2, "d": 9}, "e": 3} == lay_over({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 9}, "e": 3})


def test_a_mask_at_a_changed_place_is_found() -> None:
    assert holds_mask({"a": [{"b": "Bearer ***"}]}, ("a",))
    assert not holds_mask({"a": "***", "b": 1}, ("b",))
    assert not holds_mask({"a": 1}, ("gone", "x"))
