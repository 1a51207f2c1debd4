"""`@noun`: the values of which every call makes some. mypy refuses to change one; nothing stands guard at run time.

A dataclass that is frozen at run time sets each field by a call of its own: six times the price of the same value
without that guard, and a fourth of what a clean call cost between its two connections. So what a call makes anew is
frozen for mypy alone (`make types`, strict over the whole tree), and foreign code, which mypy does not see, gets views
or copies (hooks/running.py, formatters.py). What is made once, for a config, is `@dataclass(frozen=True, slots=True)`
as everywhere. Either is compared and hashed by its fields, and a change makes a new value (`dataclasses.replace`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def noun(cls: type[T]) -> type[T]:
    """Makes a slotted dataclass of a class, compared and hashed by its fields, that mypy takes for a frozen one."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
