"""What a function says of short texts is remembered: the names of a schema come again with every call.

A text that a client has made up may be as long as its call, and what is made of it is longer still (its words take
twenty times the memory). Such a text is read anew each time, and nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Characters of the longest text that is remembered, and how many texts each function remembers.
LONGEST: Final = 64
MOST: Final = 4096


def remember_short(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Makes a function remember what it gave for the latest texts, where its first argument is short."""
    remembered: Any = lru_cache(maxsize=MOST)(function)

    @wraps(function)
    def find(text: str, /, *others: P.args, **named: P.kwargs) -> T:
        found: T = (remembered if len(text) <= LONGEST else function)(text, *others, **named)
        return found

    return find
