"""Matches texts against patterns: with RE2 in linear time, or with `regex` within a budget where a pattern backtracks.

One `Matcher` exists for each pattern. All schemas that hold the pattern share it, and it goes with the last of them.
RE2 takes at most `MAX_MEMORY` for a pattern, its automaton included, and time in proportion to the text. A pattern that
needs more memory is matched by `regex` too. One with lookaround or a reference to a group may take exponential time, so
each search has a limit, and all searches of one call share a `SearchBudget`. A search that runs into either raises
`SearchGivenUp`: the value counts as refused wherever the pattern is, even under `not`.

The patterns of our own files and of meta-schemas (`trust_patterns`) are matched by `re`. So a config whose tools have
no patterns does without RE2 and the C++ library below it (2 MB).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakValueDictionary

from proxy.core.model.work import MATCHING, Work, borrow_work
from proxy.core.schema.drafts import SchemaError
from proxy.core.schema.patterns import Pattern, PatternError, PatternTooLargeError, read_pattern

# Bytes for the program and the automaton of one pattern.
MAX_MEMORY: Final = 8 << 20
# Instructions of a program times bytes of a text: the bound for a search whose automaton outgrows its memory.
MAX_STEPS: Final = 2_000_000_000
# Microseconds of processor time for one backtracking search: it is repeated with the next if one is too short.
LIMITS: Final = (20, 200, 2_000, 10_000)
# A backtracking pattern of more characters is not compiled: its compiler is written in Python.
MAX_BACKTRACKING: Final = 2_000
# Nor is one with more atoms, counted repetitions written out: its engine may write them out, in memory without a bound.
MAX_ATOMS: Final = 100_000
_ATOMS: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)

# References to groups (`\1`, `\k<name>`), named groups and flags: patterns with them are not joined with others.
_NOT_JOINED: Final = re.compile(r"\\[1-9k]|\(\?(?:[a-zA-Z-]|P?<[^=!])")


class SearchGivenUp(Exception):  # noqa: N818 - a verdict, not a mistake
    """A pattern ran into its limit. The value counts as refused, wherever the pattern is (even under `not`)."""

    def __init__(self, pattern: str, text: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern
        self.text = text


class SearchBudget:
    """The work that the backtracking searches of one call may still do. `is_reported`: a report has already named a
    text that could not be searched, because nothing was left."""

    __slots__ = ("is_reported", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.is_reported = False


_budget: Final[ContextVar[SearchBudget | None]] = ContextVar("budget", default=None)


@contextmanager
def share_search_budget() -> Iterator[None]:
    """Yields all backtracking searches inside one shared budget; inside another such block, that block's budget."""
    with start_search_budget() if _budget.get() is None else nullcontext():
        yield


@contextmanager
def start_search_budget() -> Iterator[None]:
    """Yields all searches inside a separate budget: a report must be able to repeat a verdict that ran out."""
    with borrow_work(MATCHING) as work:
        token = _budget.set(SearchBudget(work))
        try:
            yield
        finally:
            _budget.reset(token)


def search_for_report(search: Callable[[str], bool], text: str) -> bool:
    """Searches with a pattern that may run into its limit, which counts as no match. Once the whole budget is spent,
    one text is reported and all others are skipped."""
    try:
        return search(text)
    except SearchGivenUp:
        budget = _budget.get()
        if budget is None or budget.work.left > 0:
            return False
        was_reported, budget.is_reported = budget.is_reported, True
        return was_reported


class Matcher:
    """One compiled pattern. `search(text) -> bool` says whether the pattern is found; `linear`, whether in linear time:
    only another may raise SearchGivenUp. `size` is the number of instructions of the program."""

    __slots__ = ("__weakref__", "_backtracking", "_length", "_linear", "linear", "pattern", "search", "size")

    search: Callable[[str], bool]
    _linear: Any
    _backtracking: Any

    def __init__(self, pattern: str, *, is_ours: bool = False) -> None:
        self.pattern = pattern
        self.size = 0
        try:
            read = read_pattern(pattern)
        except PatternError as error:
            kind = "beyond the matcher" if isinstance(error, PatternTooLargeError) else "not a regular expression"
            raise SchemaError(f"{_cut(pattern)} is {kind}: {error}") from None
        self._length = read.length
        self.linear = read.linear is not None
        if is_ours:
            matched = re.compile(read.backtracking).search
            self.search = lambda text: matched(text) is not None
        else:
            compile_read = self._compile_backtracking if read.linear is None else self._compile_linear
            self.search = compile_read(read)

    def _compile_linear(self, read: Pattern) -> Callable[[str], bool]:
        import re2  # type: ignore[import-untyped]  # imported here, because a simple config does not need it

        options = re2.Options()
        options.max_mem, options.never_capture, options.log_errors = MAX_MEMORY, True, False
        try:
            self._linear = re2.compile((read.linear or "").encode("utf-8", "surrogatepass"), options)
        except re2.error as error:
            if len(self.pattern) <= MAX_BACKTRACKING and _count_atoms(self.pattern) <= MAX_ATOMS:
                self.linear = False
                return self._compile_backtracking(read)
            detail = error.args[0] if error.args else b""
            reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
            raise SchemaError(
                f"{_cut(self.pattern)} is legal but beyond the matcher: {reason}; its program may take "
                f"{MAX_MEMORY >> 20} MB, so repeat less, or count with maxLength"
            ) from None
        finally:
            re2.purge()  # else the engine's own cache would keep unused patterns
        self.size = self._linear.programsize
        return self._search_linear if self._length is None else self._search_counted

    def _search_linear(self, text: str) -> bool:
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) * self.size > MAX_STEPS:
            raise SearchGivenUp(self.pattern, text)
        return self._linear.search(encoded) is not None

    def _search_counted(self, text: str) -> bool:
        least, most = self._length or (0, None)
        return len(text) >= least and (most is None or len(text) <= most) and self._search_linear(text)

    def _compile_backtracking(self, read: Pattern) -> Callable[[str], bool]:
        import regex  # type: ignore[import-untyped]  # imported here, because few schemas need it

        if len(self.pattern) > MAX_BACKTRACKING:
            raise SchemaError(
                f"{_cut(self.pattern)} is legal but beyond the matcher: with lookaround or references to groups a "
                f"pattern has at most {MAX_BACKTRACKING:,} characters"
            )
        if _count_atoms(self.pattern) > MAX_ATOMS:
            raise SchemaError(
                f"{_cut(self.pattern)} is legal but beyond the matcher: with its repetitions written out it has more "
                f"than {MAX_ATOMS:,} parts, so repeat less, or count with maxLength"
            )
        try:
            self._backtracking = regex.compile(read.backtracking, regex.VERSION0, cache_pattern=False)
        except (regex.error, OverflowError, RecursionError) as error:
            raise SchemaError(f"{_cut(self.pattern)} is legal but beyond the matcher: {error}") from None
        return self._search_backtracking

    def _search_backtracking(self, text: str) -> bool:
        budget = _budget.get()
        work = Work(MATCHING) if budget is None else budget.work
        for limit in LIMITS:
            work.left -= limit
            if work.left < 0:
                break
            try:
                return self._backtracking.search(text, timeout=limit / 1_000_000) is not None
            except (TimeoutError, MemoryError):
                continue
        raise SearchGivenUp(self.pattern, text)


_matchers: Final[WeakValueDictionary[tuple[str, bool], Matcher]] = WeakValueDictionary()
_trusts: Final[ContextVar[bool]] = ContextVar("trusts", default=False)


@contextmanager
def trust_patterns() -> Iterator[None]:
    """Inside, new patterns are those of our own schemas and of meta-schemas."""
    token = _trusts.set(True)
    try:
        yield
    finally:
        _trusts.reset(token)


def make_matcher(pattern: str) -> Matcher:
    """The matcher of an ECMA-262 pattern. Raises SchemaError for an invalid pattern, or one beyond the bounds."""
    key = (pattern, _trusts.get())
    found = _matchers.get(key)
    if found is None:
        found = _matchers[key] = Matcher(pattern, is_ours=key[1])
    return found


def match_any(patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
    """A function that says whether any of several patterns matches, in one search; None if they cannot be joined."""
    if any(_NOT_JOINED.search(pattern) for pattern in patterns):
        return None
    try:
        joined = make_matcher("|".join(f"(?:{pattern})" for pattern in patterns))
    except SchemaError:  # too large together
        return None
    if joined.linear:
        return joined.search
    alone = [make_matcher(pattern) for pattern in patterns]

    def search_bounded(text: str) -> bool:
        try:
            return joined.search(text)
        except SearchGivenUp:  # the limit holds for one pattern, so each pattern is tried separately
            return any(one.search(text) for one in alone)

    return search_bounded


def is_pattern(text: str) -> bool:
    """Returns whether a text is an ECMA-262 regular expression in the strict sense (the format `regex`)."""
    try:
        read_pattern(text, strict=True)
    except PatternError:
        return False
    return True


def _count_atoms(pattern: str) -> int:
    """Returns how many atoms a pattern has with its counted repetitions written out, groups within groups included."""
    outside: list[int] = []
    total = last = 0
    for atom in _ATOMS.finditer(pattern):
        text = atom.group()
        if atom[1] is not None and last:
            last *= max(int(atom[1]), int(atom[2] or 0), 1)
        elif text == "(":
            outside.append(total + last)
            total = last = 0
        elif text == ")" and outside:
            total, last = outside.pop(), total + last + 1
        else:
            total, last = total + last, 1
    return total + last


def _cut(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 100 else pattern[:100] + "...")
