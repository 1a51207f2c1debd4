"""Makes a value: a frozen struct of msgspec with the fields of a dataclass; all values share their methods.

`@dataclass(frozen=True, slots=True)` writes and compiles six functions for each class: over the main job's values that
took 75 ms of each start, and 1.3 MB that stayed. It also sets each field by its own call. A struct is created in C, in
half the time of a slotted dataclass that is not frozen, and its class in half the time too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, Generic, TypeVar, dataclass_transform

import msgspec
from msgspec import NODEFAULT

T = TypeVar("T")

UNREAD: Final[Any] = msgspec.UNSET
"""The content of a `Lazy` field before it is read."""
set_later: Final[Callable[[Any, str, object], None]] = msgspec.structs.force_setattr
"""Sets a field of a value that is computed on first use."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Makes a frozen struct of a class, compared and hashed by its fields. `dataclasses.replace` makes a changed
    copy of a value."""
    found = _list_fields(cls)
    compared = [each.name for each in found.values() if each.compare]
    hashed = [each.name for each in found.values() if (each.compare if each.hash is None else each.hash)]
    # Of values without such fields the class is read.
    read = {"_compared": attrgetter(*compared or ["__class__"]), "_hashed": attrgetter(*hashed or ["__class__"])}
    namespace = {
        name: made
        for name, made in cls.__dict__.items()
        if name not in _MADE_ANEW and name not in found and not name.startswith("__struct_")
    }
    namespace |= {name: made for name, made in {**read, **_SHARED}.items() if cls.__dict__.get(name) is None}
    own = [found[name] for name in get_annotations(cls) if name in found]
    made: Any = msgspec.defstruct(
        cls.__name__,
        [(each.name, Any, *_list_defaults(each)) for each in own],
        bases=tuple(base for base in cls.__bases__ if base not in {object, msgspec.Struct}) or None,
        namespace={**namespace, "__dataclass_fields__": found},
        module=cls.__module__,
        eq=False,
        frozen=True,
        kw_only=bool(own) and all(each.kw_only for each in own),
    )
    made.__qualname__ = cls.__qualname__
    return made  # type: ignore[no-any-return]


def _list_fields(cls: type) -> dict[str, Any]:
    """The fields of a class as `dataclasses` reads them, after those of its bases."""
    annotations, written = get_annotations(cls), dict(cls.__dict__)
    if isinstance(cls, msgspec.StructMeta):  # its base is a value, so what it was given have become defaults
        defaults = cls.__struct_defaults__
        written = dict(zip(cls.__struct_fields__[-len(defaults) :], defaults, strict=True)) if defaults else {}
    written = {name: written[name] for name in annotations if written.get(name, NODEFAULT) is not NODEFAULT}
    # A class without a text would get one, for which its signature is read.
    plain = type(
        cls.__name__, (), {"__annotations__": annotations, "__module__": cls.__module__, "__doc__": "-", **written}
    )
    own: Any = dataclass(init=False, repr=False, eq=False, match_args=False)(plain)
    inherited = [getattr(base, "__dataclass_fields__", {}) for base in reversed(cls.__mro__[1:])]
    return {name: each for known in (*inherited, own.__dataclass_fields__) for name, each in known.items()}


def _list_defaults(each: Any) -> tuple[Any, ...]:
    """The default of a field for a struct; none if a caller has to give its value."""
    if each.default_factory is not MISSING:
        return (msgspec.field(default_factory=each.default_factory),)
    if each.default is MISSING:
        return () if each.init else (None,)
    return (msgspec.field(default=each.default),)


# Attributes that each class gets again.
_MADE_ANEW: Final = frozenset({"__annotations__", "__dict__", "__match_args__", "__slots__", "__weakref__"})


class Lazy(Generic[T]):
    """A field of a value that a subclass reads when somebody first asks. `slot` is that field of the value's class, and
    holds UNREAD until then."""

    def __init__(self, slot: Any, read: Callable[[Any], T]) -> None:
        self._slot = slot
        self._read = read

    def __get__(self, value: Any, owner: type | None = None) -> T:
        held: Any = self._slot.__get__(value)
        if held is UNREAD:
            held = self._read(value)
            self._slot.__set__(value, held)
        return held  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def share(names: frozenset[str]) -> frozenset[str]:
    """The first of equal sets: what thousands of routes hold alike is kept once."""
    return names


def _is_equal(self: Any, other: Any) -> Any:
    return self._compared(self) == other._compared(other) if other.__class__ is self.__class__ else NotImplemented


def _is_unequal(self: Any, other: Any) -> Any:  # a struct has its own, which does not ask `__eq__`
    return self._compared(self) != other._compared(other) if other.__class__ is self.__class__ else NotImplemented


@recursive_repr()
def _show(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


_SHARED: Final = {
    "__eq__": _is_equal, "__ne__": _is_unequal, "__hash__": lambda self: hash(self._hashed(self)), "__repr__": _show
}  # fmt: skip
