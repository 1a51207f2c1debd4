"""How a value is made: a slotted dataclass with an `__init__` of its own; what else it can, all values share.

`@dataclass(frozen=True, slots=True)` writes and compiles six functions for each class: over the main job's values that
took 75 ms of each start, and 1.3 MB that stayed. So a value is frozen for mypy alone (strict, over the whole tree). A
dataclass that is frozen at run time also sets each field by its own call: a value of seven fields takes 2.2 us
instead of 0.5. Code that mypy does not see gets values of its own (hooks/api.py) or copies (formatters.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Makes a slotted dataclass of a class that mypy takes for a frozen one, compared and hashed by its fields.
    `dataclasses.replace` makes a changed copy of a value."""
    made = dataclass(slots=True, repr=False, eq=False)(cls)
    found = fields(made)  # type: ignore[arg-type]  # mypy does not see a dataclass in a `type[T]`
    compared = [each.name for each in found if each.compare]
    hashed = [each.name for each in found if (each.compare if each.hash is None else each.hash)]
    # Of values without such fields the class is read.
    read = {"_compared": attrgetter(*compared or ["__class__"]), "_hashed": attrgetter(*hashed or ["__class__"])}
    for name, shared in {**read, **_SHARED}.items():
        if cls.__dict__.get(name) is None:
            setattr(made, name, shared)
    return made


def _is_equal(self: Any, other: Any) -> Any:
    return self._compared(self) == other._compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._hashed(self))


@recursive_repr()
def _show(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


_SHARED: Final = {"__eq__": _is_equal, "__hash__": _hash, "__repr__": _show}
