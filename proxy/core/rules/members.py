"""The value rules that find the one listed value which a text spells otherwise, and how names are folded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.core.rules.names import is_case_meaning, split_words
from proxy.core.rules.proposals import NONE, Site


def enum_case(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that is equal after trimming and without case."""
    return _one_member(value, site, fold_case)


def enum_fold(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that consists of the same words, however they are joined."""
    found = _one_member(value, site, _fold_words)
    if not isinstance(found, str):
        return NONE
    spelt = [member for member in site.choices or () if isinstance(member, str) and fold(member) == fold(found)]
    return found if len(spelt) == 1 else NONE  # `re-sign` and `resign` are two words


def enum_point(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that stands before a full stop: `"Red."` -> `"red"`."""
    if not isinstance(value, str) or _SENTENCE.fullmatch(value) is None or value[:-1].lower() in _ABBREVIATED:
        return NONE
    return _one_member(value[:-1], site, fold_case)


# One word of three letters or more, and a full stop: no abbreviation.
_SENTENCE: Final = re.compile(r"[^\W\d_]{3,}\.")
_ABBREVIATED: Final = frozenset(
    ["min", "max", "int", "sec", "art", "fig", "vol", "inc", "ltd", "est", "avg", "ref", "gen", "rep", "sen", "gov",
     "abs", "temp", "corp", "dept", "misc", "approx", "prof", "ext", "std", "var", "rev", "prev", "med", "lit", "mil"]
)  # fmt: skip


def fold_case(text: str) -> str:
    """A text without case and without white space around it."""
    return text.strip().lower()


# What joins the words of a name; a sign before or behind it does not.
_JOINING: Final = re.compile(r"(?<=[^\W_])-(?=[^\W_])|[_\s]")
_JOINED_LETTERS: Final = re.compile(r"[^\W\d_]{2,}(?:[-_ ]?[^\W\d_]{2,})*")


def fold(text: str) -> str:
    """A name without case, '-', '_' and spaces, but with signs around it: `startDate` and `START-DATE` are one."""
    return _JOINING.sub("", text).lower()


def _fold_words(text: str) -> str:
    """The words of a text of letters: `streamableHttp` and `STREAMABLE_HTTP` are the same two. Others are themselves
    alone."""
    text = text.strip()
    return " ".join(split_words(text)) if _JOINED_LETTERS.fullmatch(text) and text.isascii() else text


def _one_member(value: JsonValue, site: Site, key: Callable[[str], str]) -> JsonValue:
    if not isinstance(value, str) or site.choices is None or site.free_text:
        return NONE
    if value.strip() in site.choices:
        return value.strip()
    if len(value) > _LONGEST_MEMBER:
        return NONE
    return index_members(key, tuple([member for member in site.choices if isinstance(member, str)])).get(
        key(value), NONE
    )


@lru_cache(maxsize=1024)  # a long enum is folded once, not for each value of a call
def index_members(key: Callable[[str], str], members: tuple[str, ...]) -> Mapping[str, str]:
    """Folded text -> the one member that folds to it, where all members share one style of capitals. Left out are texts
    that several members fold to, and members whose case may be their meaning."""
    if not any(all(style(member) for member in members) for style in _STYLES):
        return {}
    found: dict[str, set[str]] = {}
    for member in members:
        found.setdefault(key(member), set()).add(member)
    sole = {folded: same.pop() for folded, same in found.items() if folded and len(same) == 1}
    return {folded: member for folded, member in sole.items() if not _may_mean_case(member)}


_LONGEST_MEMBER: Final = 1000
_LOCALE: Final = re.compile(r"[a-z]{2,3}(?:[-_][A-Z]{2}|[-_][A-Z][a-z]{3})+")
# Small letters, capitals, words that begin with a capital, camelCase, codes of languages.
_STYLES: Final[tuple[Callable[[str], bool], ...]] = (
    lambda member: member == member.lower(),
    lambda member: member == member.upper(),
    lambda member: all(word[:1] == word[:1].upper() for word in re.findall(r"[^\W_]+", member)),
    lambda member: member[:1].islower() and member.isalnum(),
    lambda member: _LOCALE.fullmatch(member) is not None,
)
# Signs of flags, classes, patterns of dates and percent codes; a member of one letter; a date's pattern.
_SIGNED: Final = re.compile(r"[-+!~^@#$*./\\%:<>=&|?\[\](){}]")
_SIGNS_INSIDE: Final = re.compile(r"[\\%:]|.*[-+]$")
_DATE_PATTERN: Final = re.compile(r"(?:([ymdhsYMDHS])\1+[-/. ]?)+(?:T|Z)?")
_CAPITALS: Final = re.compile(r"[^\W\d_]+")


def _may_mean_case(member: str) -> bool:
    r"""Whether the same letters in another case may mean something else: `-d`, `\\d`, `Am7`, `HH:mm`, `10 Mb/s`."""
    if _LOCALE.fullmatch(member):
        return False
    letters = [len(run) for run in _CAPITALS.findall(member)]
    if _SIGNED.match(member) or _SIGNS_INSIDE.search(member) or (sum(letters) < 2 and not member[:1].isdigit()):
        return True
    if _DATE_PATTERN.fullmatch(member) or any(is_case_meaning(piece) for piece in re.split(r"[\s/_-]", member)):
        return True
    mixed = member != member.lower() and member != member.upper()
    return is_case_meaning(member) or (mixed and min(letters) < 3)
