"""Identifier style: whether two names are the same words in another style, such as `startDate` and `start_date`.

A name consists of letters and digits with single separators between them. Its parts end at a separator, before a
capital behind a small letter, before the last capital of a run that a small letter follows, and between letters and
digits. Two names match if their parts are equal without case. No part is ever joined with the next one: `re_sign` and
`resign` are two words, and `m_1_12` and `m_11_2` two places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from proxy.core.model.work import remember_short
from proxy.core.rules.vocabulary import READING_VERBS

Parts = tuple[str, ...]

_NAME: Final = re.compile(r"[^\W_]+(?:[-_. ][^\W_]+)*")
_WORD: Final = re.compile(r"[^\W_]+")
_PART: Final = re.compile(r"[0-9]+|[^\W\d_]+|[^\W_]")
# A longer text is no identifier.
_LONGEST: Final = 200
# Shorter names, and names with a digit, may have their meaning in their case: `MW` and `mW`, `Am7` and `AM7`.
_LEAST_LETTERS: Final = 3


@remember_short
def split_name(name: str) -> Parts:
    """The parts of a name in small letters; () for a text that has no identifier style."""
    name = name.strip()
    if len(name) > _LONGEST or _NAME.fullmatch(name) is None:
        return ()
    parts: list[str] = []
    for run in _PART.findall(name):
        start = 0
        for at in range(1, len(run)):
            is_hump = run[at].isupper() and run[at - 1].islower()
            ends_capitals = run[at].islower() and run[at - 1].isupper() and at - 1 > start
            if is_hump or ends_capitals:
                cut = at if is_hump else at - 1
                parts.append(run[start:cut])
                start = cut
        parts.append(run[start:])
    return tuple(part.lower() for part in parts)


def match_names(sent: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """For each name sent, the one known name of the same parts; names without such a one are left out."""
    index = _index(tuple(known))
    found = {}
    for name in sent:
        target = index.get(split_name(name), "")
        if target and (len(split_name(name)) > 1 or _may_fold(name, target)):
            found[name] = target
    return found


def match_member(text: str, members: tuple[str, ...], *, folds: bool = False) -> str | None:
    """The one member of an enum of the same parts. `folds`: case never carries the meaning there, by the operator's
    word; otherwise another case needs three letters, no digit, and members of one style of capitals."""
    target = _index(members).get(split_name(text))
    if not target:
        return None
    if folds or "".join(_WORD.findall(text)) == "".join(_WORD.findall(target)):
        return target
    is_case_only = text.strip().lower() == target.lower()
    return target if _may_fold(text, target, digits=not is_case_only) and _share_style(members) else None


def begins_reading(tool: str) -> bool:
    """Returns whether a tool's name begins with one of the ten verbs of reading tools."""
    word = _WORD.match(tool)
    return word is not None and split_name(word[0])[0] in READING_VERBS


def _may_fold(one: str, other: str, *, digits: bool = False) -> bool:
    """Returns whether just the case surely carries no meaning in two names of the same parts."""
    letters = sum(map(str.isalpha, one))
    return one.strip() == other or (letters >= _LEAST_LETTERS and (digits or not any(map(str.isdigit, one))))


@lru_cache(maxsize=1024)  # a long enum is indexed once, not for each value of a call
def _index(names: tuple[str, ...]) -> Mapping[Parts, str]:
    """Parts -> the one name that has them; '' if several do."""
    index: dict[Parts, str] = {}
    for name in names:
        if parts := split_name(name):
            index[parts] = name if index.get(parts, name) == name else ""
    return index


# Small letters, capitals, words that begin with a capital, camelCase.
_STYLES: Final[tuple[Callable[[str], bool], ...]] = (
    str.islower,
    str.isupper,
    lambda member: all(word[0].isupper() for word in re.findall(r"[^\W\d_]+", member)),
    lambda member: member[:1].islower() and member.isalnum(),
)


@lru_cache(maxsize=1024)
def _share_style(members: tuple[str, ...]) -> bool:
    """Returns whether the members that have letters share one style of capitals."""
    lettered = [member for member in members if member.upper() != member.lower()]
    return any(all(is_styled(member) for member in lettered) for is_styled in _STYLES)
