"""Suggestions for names that are almost right: the nearest known name, and the answer for an unknown tool.

Names are compared folded (case, `-`, `_`, `.` and spaces do not count) by difflib's ratio, which is the share of
characters that two words have in common, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from proxy.core.display.preview import clean_text, write_preview
from proxy.core.model import codes
from proxy.core.model.values import Failure
from proxy.core.model.work import afford_work, remember_short

# Below this ratio, two names share too little to suggest one for the other. difflib's own `get_close_matches` uses 0.6,
# which suggests `get_time` for `get_item`.
_NEAR: Final = 0.7
# The least likeness of two parts of names that differ by a slip.
_SLIP: Final = 0.5
# Names compared and names listed: an answer has to stay small and quick with ten thousand tools.
_LOOKED_AT: Final = 2000
_LISTED: Final = 50
# So many near names are choice enough; with fewer, so many names are listed in all.
_FEW: Final = 5
_SOME: Final = 20
# The cost of comparing two names, in units of work.
_COMPARING: Final = 5
_LONGEST_NAME: Final = 100
# A shorter text is the beginning of too many words.
_SHORTEST: Final = 3


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PART: Final = re.compile(r"[0-9]+|[^\W\d_]+")
_HUMP: Final = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z])")
# Words that turn a name's meaning round, and those that make a name of a thing one of its number.
_TURNING: Final = frozenset(
    ["exclude", "excluded", "excludes", "excluding", "without", "not", "no", "non", "never", "avoid", "hide", "hidden",
     "skip", "omit", "except", "ignore", "ignored", "disable", "disabled", "deny", "denied", "block", "blocked",
     "minus", "remove", "unset"]
)  # fmt: skip
_NUMBERING: Final = frozenset({"id", "ids", "uid", "uuid"})
_SIGNS: Final = "-+!~"


def is_other_meaning(one: str, other: str) -> bool:
    """Returns whether two names differ in a negation, a sign, or naming a thing by its id: no slip links them."""
    if (one[:1] in _SIGNS and one[:1], one[-1:] in _SIGNS and one[-1:]) != (
        other[:1] in _SIGNS and other[:1],
        other[-1:] in _SIGNS and other[-1:],
    ):
        return True
    return turns_meaning(one, other) or _differ_in(_NUMBERING, one, other)


def turns_meaning(one: str, other: str) -> bool:
    """Returns whether one of two names, and not the other, holds a negation."""
    return _differ_in(_TURNING, one, other)


def _differ_in(words: frozenset[str], one: str, other: str) -> bool:
    return split_words(one).isdisjoint(words) != split_words(other).isdisjoint(words)


@remember_short
def split_words(name: str) -> frozenset[str]:
    """The words of a name in lower case: `maxPrice`, `max_price` and `max price` hold the same two."""
    return frozenset(map(str.lower, _WORD.findall(name)))


@remember_short
def split_parts(name: str) -> tuple[str, ...]:
    """The parts of a name in order, in lower case: words and numbers. No part is joined with the next one."""
    return tuple(
        part.lstrip("0") or "0" if part.isdecimal() else part.lower() for part in _PART.findall(_HUMP.sub(" ", name))
    )


def is_same_name(one: str, other: str) -> bool:
    """Returns whether two names have the same parts, whatever their case, separators and the plural of the last one."""
    mine, theirs = split_parts(one), split_parts(other)
    if not mine or mine[:-1] != theirs[:-1] or is_other_meaning(one, other):
        return False
    short, long = sorted((mine[-1], theirs[-1]), key=len)
    return long in (short, f"{short}s", f"{short}es")


def is_slip(one: str, other: str) -> bool:
    """Returns whether a slip of the hand turns one name into the other: a letter or two of a part, the order of parts.

    A part that is only in one of them, another number, and the case of a short name carry meaning.
    """
    mine, theirs = split_parts(one[:_LONGEST_NAME]), split_parts(other[:_LONGEST_NAME])
    if sorted(mine) == sorted(theirs):
        is_case_only = one != other and one.casefold() == other.casefold()
        return not is_case_only or (len(fold_name(one)) >= _SHORTEST and not any(map(str.isdigit, one)))
    left, right = [each for each in mine if each not in theirs], [each for each in theirs if each not in mine]
    return len(mine) == len(theirs) and len(left) == len(right) and all(map(_is_slip_of_part, left, right))


def _is_slip_of_part(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    is_prefixed = long.endswith(short) and len(long) - len(short) > 1  # `undo` and `do`
    return not (one.isdecimal() or other.isdecimal() or is_prefixed) and _most_alike(one, other) >= _SLIP


@remember_short
def fold_name(name: str) -> str:
    """A name without case and word separators: `getWeather`, `get-weather` and `get_weather` fold to the same."""
    folded = name.casefold()
    return folded if folded.isalnum() else "".join(filter(str.isalnum, folded))


def find_nearest(name: str, known: Iterable[str], *, slip: bool = False) -> str | None:
    """Returns the one known name that `name` most likely means, or None. Equal candidates: the first known wins.
    `slip`: only one that a slip of the hand explains, as a text needs that says "Did you mean"."""
    wanted = fold_name(name[:_LONGEST_NAME])
    best, best_ratio = None, _NEAR
    for index, candidate in enumerate(known):
        if index == _LOOKED_AT:
            break
        if not afford_work(_COMPARING):
            return None
        folded = fold_name(candidate)
        is_near = folded == wanted or _most_alike(folded, wanted) > best_ratio
        if not is_near or is_other_meaning(name, candidate) or (slip and not is_slip(name, candidate)):
            continue
        if folded == wanted:
            return candidate
        from difflib import SequenceMatcher  # imported here, because most processes never need a suggestion

        ratio = SequenceMatcher(None, folded, wanted, autojunk=False).ratio()
        if ratio > best_ratio:
            best, best_ratio = candidate, ratio
    return best if best or slip else _find_contained(name, wanted, known)


def _most_alike(left: str, right: str) -> float:
    """A cheap upper bound of difflib's ratio: the characters that two words share, in any order. (difflib's own quick
    bounds first build tables, which takes longer than everything else for a short word.)"""
    length = len(left) + len(right)
    shared = min(len(left), len(right))
    if 2.0 * shared / length > _NEAR:
        shared = sum([min(left.count(character), right.count(character)) for character in {*left} & {*right}])
    return 2.0 * shared / length


def _find_contained(sent: str, wanted: str, known: Iterable[str]) -> str | None:
    """The only known name that holds `wanted` or is held by it (`weather` for `get_weather`)."""
    if len(wanted) < 4:
        return None
    found: list[str] = []
    for name in islice(known, _LOOKED_AT):
        folded = fold_name(name)
        if len(folded) >= 4 and (wanted in folded or folded in wanted) and not is_other_meaning(sent, name):
            found.append(name)
    return found[0] if len(found) == 1 else None


def find_abbreviation(name: str, known: Iterable[str]) -> str | None:
    """The only known name that `name` abbreviates, or that abbreviates it (`lat` for `latitude`): one begins with the
    other, which has three letters or more. None where there are several."""
    wanted = fold_name(name[:_LONGEST_NAME])
    found = [known_name for _, known_name in zip(range(_LOOKED_AT), known, strict=False)
             if (folded := fold_name(known_name)) and min(len(folded), len(wanted)) >= _SHORTEST
             and (folded.startswith(wanted) or wanted.startswith(folded))
             and not is_other_meaning(name, known_name)]  # fmt: skip
    return found[0] if len(found) == 1 else None


def make_unknown_tool_failure(name: str, known: Iterable[str]) -> Failure:
    """The failure for a call of an unknown tool: names the nearest known tool, or lists some of them."""
    names = list(known)
    nearest = find_nearest(name, names, slip=True)
    message = f"Unknown tool {quote_name(name)}."
    if nearest is not None:
        hint = f"Did you mean '{nearest}'? Call it by exactly this name."
        details = {"did_you_mean": nearest}
    else:
        shown = sorted(names)
        if len(names) > _LISTED:  # those that share a word with the name, and others up to a bound
            words = split_words(name)
            near = sorted(other for other in names[:_LOOKED_AT] if not words.isdisjoint(split_words(other)))
            shown = near[:_LISTED] if len(near) >= _FEW else [*near, *sorted(set(names) - set(near))][:_SOME]
        more = f" (+{len(names) - len(shown)} more)" if len(names) > len(shown) else ""
        hint = f"Known tools: {', '.join(map(repr, shown))}{more}." if names else ""
        details = {}
    return Failure(codes.UNKNOWN_TOOL, message, hint=hint, details=details)


@remember_short
def quote_name(name: str) -> str:
    """A name for use in a sentence: in single quotes, on one line, cut short, without credentials."""
    return "'" + write_preview(clean_text(name, _LONGEST_NAME))[1:-1].replace('\\"', '"') + "'"
