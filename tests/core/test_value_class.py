"""A value is what `@dataclass(slots=True, unsafe_hash=True)` would make, but that all values share their methods."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.core.model.value_class import UNREAD, Lazy, set_later, value_class


def _write_filled() -> type:
    class Written:
        name: str
        secret: str = field(repr=False)
        found: tuple[int, ...] = ()
        notes: dict[str, str] = field(default_factory=dict, hash=False)
        kept: str = field(default="", init=False, repr=False, compare=False)

    return Written


def _write_empty() -> type:
    class Written:
        pass

    return Written


@value_class
class Known:
    """A value that can be pickled by its name."""

    name: str
    found: tuple[int, ...] = ()


@value_class
class Named(Known):
    """One more field, and its own text."""

    more: int = 0

    def __repr__(self) -> str:
        return "its own"


@value_class
class Pair:
    """A value that may contain itself."""

    other: list[Any]


def _make_both(write: Callable[[], type]) -> tuple[Any, Any]:
    """A class as a value, and as the dataclass that the value replaces."""
    return value_class(write()), dataclass(slots=True, unsafe_hash=True)(write())


def test_a_value_shows_and_compares_and_hashes_the_fields_that_a_dataclass_does() -> None:
    value, plain = _make_both(_write_filled)
    for notes in ({}, {"b": "c"}):
        one, other = value("a", "s", (1,), notes), plain("a", "s", (1,), notes)
        assert (repr(other), hash(other)) == (repr(one), hash(one))
    one, same = value("a", "s"), value("a", "s")
    set_later(same, "kept", "later")
    assert one == same
    assert not one != same  # noqa: SIM202 - its own method
    assert one != value("a", "t")
    assert one != plain("a", "s")
    assert value("a", "s", notes={"b": "c"}) != one
    assert hash(value("a", "s", notes={"b": "c"})) == hash(one)


def test_values_without_fields_are_all_the_same() -> None:
    value, plain = _make_both(_write_empty)
    assert (value(), hash(value()), repr(plain())) == (value(), hash(value()), repr(value()))


def test_a_subclass_keeps_its_methods_and_never_equals_its_base() -> None:
    named = Named("a", (1,), 2)
    assert "its own" == repr(named)
    assert named == Named("a", (1,), 2)
    assert named != Named("a", (1,), 3)
    assert Known("a", (1,)) != named


def test_a_value_is_copied_pickled_and_changed_as_a_dataclass_is() -> None:
    known = Known("a", (1, 2))
    assert [known] * 3 == [copy.copy(known), copy.deepcopy(known), pickle.loads(pickle.dumps(known))]  # noqa: S301 - its own
    assert Known("b", (1, 2)) == replace(known, name="b")
    with pytest.raises(AttributeError):
        known.other = 1  # type: ignore[attr-defined]  # it has slots


def test_a_value_that_contains_itself_can_be_shown() -> None:
    pair = Pair([])
    pair.other.append(pair)
    assert "Pair(other=[...])" == repr(pair)


def test_refuses_a_change() -> None:
    known = Known("a")
    with pytest.raises(AttributeError, match="immutable"):
        known.name = "b"  # type: ignore[misc]  # mypy refuses it too
    assert Known("a") == known


class Read(Known):
    """A value whose tuple is read from its name."""

    found = Lazy(Known.found, lambda value: tuple(map(ord, value.name)))


def test_reads_a_lazy_field_once() -> None:
    value = Read("ab", UNREAD)
    copied = pickle.loads(pickle.dumps(value))  # noqa: S301 - its own
    assert (97, 98) == value.found
    assert value.found is value.found
    assert (97, 98) == copied.found
    assert (1,) == Read("ab", (1,)).found
