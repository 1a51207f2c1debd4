"""The one currency in which work is counted: reading, judging, repairing, explaining and writing spend from a budget.

One unit is one or two microseconds of an ordinary machine:

    1 value read, judged or visited
    100 characters of a text read or matched; digits are characters
    1 microsecond of a pattern that has to backtrack
    1 broken keyword inside the branches of a union
    10 words of an enum in which a member is looked for
    a fifth of a name compared for a suggestion

The count depends on how much is examined, not on the time it took, so the same call always stops at the same place.
The values of a text are counted while it is read; its first verdict, and writing it, cost as much again. Each later
stage may spend its share; `share_work` opens the budget of a whole call, and then all of them together may spend
no more than that. If a stage stops, its result is the cautious one: a call is refused, a hint is left out.

`remember` saves work, because every call has the same names and places of its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from proxy.core.model.values import JsonValue

K = TypeVar("K")
T = TypeVar("T")

# Characters of text that cost as much as one value.
CHARACTERS: Final = 100

# The budget of a call that is judged on the event loop, at most 50 ms: a child process judges one that takes more.
ON_EVENT_LOOP: Final = 20_000
# The budget of the largest call: two to four seconds of an ordinary machine, less than a child process has for it.
CALL: Final = 2_000_000
# The most work of any call, at most a fifth of a second, and the work that it may take beside for each of its values. A
# schema that makes few values expensive takes no more than this.
FEW_VALUES: Final = 100_000
EACH_VALUE: Final = 40
# The values of one text, unless a config says otherwise.
READING: Final = 100_000
# The share of each stage.
REPAIRING: Final = 300_000
RESPELLING: Final = 500_000
EXPLAINING: Final = 500_000
MATCHING: Final = 50_000
REPORTING_BRANCHES: Final = 1_000
# An example or a signature in an answer has to be short, and is made while a client waits.
SKETCHING: Final = 20_000
WRITING_SIGNATURE: Final = 500


# The types whose values always cost one unit.
SINGLE: Final = frozenset((bool, int, float, type(None)))


class TooMuchWorkError(Exception):
    """The value and the schema together take more work than one call may cost."""


class Work:
    """The work that may still be done. `spend` and `look` raise TooMuchWorkError when nothing is left."""

    __slots__ = ("_sizes", "left")

    def __init__(self, limit: int) -> None:
        self.left = limit
        # Keyed by identity. Each container is stored beside its size, so that its id is not used again.
        self._sizes: dict[int, tuple[JsonValue, int]] = {}

    def spend(self, amount: int) -> None:
        """Uses up `amount` units."""
        self.left -= amount
        if self.left < 0:
            raise TooMuchWorkError

    def look(self, value: JsonValue) -> None:
        """Uses up the cost of examining a whole value once."""
        self.left -= 1 if type(value) in SINGLE else self.size(value)
        if self.left < 0:
            raise TooMuchWorkError

    def size(self, value: JsonValue) -> int:
        """Values inside a value, itself included; long text counts for several."""
        kind = type(value)
        if kind is str:
            return 1 + len(value) // CHARACTERS
        if kind is not dict and kind is not list:
            return 1
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1]
        total = 1 + len(value)
        for item in value.values() if kind is dict else value:
            inner = item.__class__
            if inner is str:
                if len(item) >= CHARACTERS:
                    total += len(item) // CHARACTERS
            elif inner is dict or inner is list:
                total += self.size(item) - 1
        self._sizes[id(value)] = (value, total)
        return total


@dataclass(slots=True)
class CallBudget:
    """The remaining work of all stages of a call."""

    left: int


call_budget: Final[ContextVar[CallBudget | None]] = ContextVar("call_budget", default=None)


@contextmanager
def share_work(limit: int) -> Iterator[None]:
    """Opens the budget of a call: whatever is borrowed inside comes out of it."""
    token = call_budget.set(CallBudget(limit))
    try:
        yield
    finally:
        call_budget.reset(token)


def find_budget(value: JsonValue) -> int:
    """Returns what a call with this value may cost: by how much it holds, and not by its schema."""
    return min(CALL, FEW_VALUES + EACH_VALUE * Work(0).size(value))


def afford_work(amount: int) -> bool:
    """Takes a little work out of the call's budget, if there is one. False: it is spent, so the work is left out."""
    budget = call_budget.get()
    if budget is None:
        return True
    budget.left -= amount
    return budget.left >= 0


class borrow_work:  # noqa: N801 - a context manager; one made of a generator costs more
    """The work of one stage: its share, or what is left of the call's budget, out of which it is paid at its end."""

    __slots__ = ("_budget", "_lent", "_work")

    def __init__(self, share: int) -> None:
        self._budget = budget = call_budget.get()
        self._lent = share if budget is None else max(0, min(share, budget.left))
        self._work = Work(self._lent)

    def __enter__(self) -> Work:
        return self._work

    def __exit__(self, *_: object) -> None:
        if self._budget is not None:
            self._budget.left -= self._lent - max(0, self._work.left)


# --- what is said of short texts --------------------------------------------------------------------------------------
# Characters of the longest text that is remembered, and how many results of each function. A text that a client
# has made up may be as long as its call, and what is made of it takes up to twenty times the memory.
LONGEST: Final = 64
MOST: Final = 4096


def remember_short(function: Callable[[str], T]) -> Callable[[str], T]:
    """Makes a function remember its results for short texts."""
    return remember(function, lambda text, _: len(text) <= LONGEST)


def remember(function: Callable[[K], T], is_kept: Callable[[K, T], bool]) -> Callable[[K], T]:
    """Makes a function remember results for which `is_kept` is true. The function becomes a look-up in a table, and is
    called for arguments that are not there."""
    return _Remembered(function, is_kept).__getitem__


class _Remembered(dict[K, T]):
    """The results of a function, by its argument."""

    def __init__(self, function: Callable[[K], T], is_kept: Callable[[K, T], bool]) -> None:
        self.function, self.is_kept = function, is_kept

    def __missing__(self, argument: K) -> T:
        found = self.function(argument)
        if self.is_kept(argument, found):
            if len(self) >= MOST:
                self.clear()
            self[argument] = found
        return found
