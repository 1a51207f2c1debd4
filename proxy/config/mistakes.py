"""Mistakes of a config: each has its place, its section, what is wrong, and what to write instead.

A `Mistake` prints as one line that editors and CI systems can follow: `file:line:col  section  message  (hint)`.
A value from the environment or a secret file never appears in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from proxy.core.model.value_class import value_class

if TYPE_CHECKING:
    from proxy.config.model import HookEntry

LISTED_RULES: Final = "docs/reference/rules.md lists the rules"
DROP_ONE: Final = "drop one of them"


@value_class
class Mistake:
    """One mistake. `line` and `column` count from 1; `where` is the route or section, '' for the whole file."""

    file: str
    line: int
    column: int
    where: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}  {self.text}"

    @property
    def text(self) -> str:
        """The mistake without its place in a file, for a config that exists only in memory."""
        return "  ".join(part for part in (self.where, self.message, self.hint and f"({self.hint})") if part)


class ConfigError(Exception):
    """An unusable config. `mistakes` holds all of them, in the order of the files.

    `seen` has the hash of each file that was read ('' if it could not be): a reload waits until one of them changes.
    `hooks` are the config's hooks, which may have their own errors.
    """

    def __init__(
        self,
        mistakes: Iterable[Mistake],
        seen: Mapping[Path, str] = MappingProxyType({}),
        hooks: tuple[HookEntry, ...] = (),
    ) -> None:
        self.seen, self.hooks = seen, hooks
        self.mistakes: tuple[Mistake, ...] = tuple(
            sorted(dict.fromkeys(mistakes), key=attrgetter("file", "line", "column", "message"))
        )
        super().__init__("\n".join(map(str, self.mistakes)))


def suggest_word(written: str, known: Iterable[str]) -> str:
    """Returns `did you mean 'x'?` for the known word most similar to the written one, or '' if none is similar."""
    from difflib import get_close_matches  # imported here, because a config without mistakes does not need it

    by_fold = {word.casefold(): word for word in sorted(known, reverse=True)}
    nearest = get_close_matches(written.casefold(), by_fold, n=1, cutoff=0.6)
    return f"did you mean {by_fold[nearest[0]]!r}?" if nearest else ""


def suggest_remark(written: str, known: Iterable[str]) -> str:
    """`suggest_word` in brackets after two spaces, as at the end of a printed mistake."""
    return f"  ({hint})" if (hint := suggest_word(written, known)) else ""


def explain_rule(name: str, otherwise: str, unknown: str) -> tuple[str, str]:
    """Returns what is wrong with a name that no repair rule has, and the remedy. `otherwise` is the message about a
    name that no earlier version had, `unknown` its remedy if no rule has a similar name."""
    from proxy.core.rules.rules import REMOVED, RULES  # as in `suggest_word`

    if name not in REMOVED:
        return otherwise, suggest_word(name, RULES) or unknown
    instead = REMOVED[name]
    return f"rule {name!r} was removed", f"use {instead}".replace("use nothing:", "drop it:")


def join_words(words: Iterable[str]) -> str:
    """The words in a sentence: `'a', 'b' or 'c'`; at most a dozen of them."""
    quoted = [repr(word) for word in words]
    shown = quoted[:12] + [f"{len(quoted) - 12} more"] * (len(quoted) > 12)
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def split_url(url: str) -> SplitResult:
    """A URL in its parts. One that cannot be read, such as `http://[` or `http://a b`, has none: it has no host."""
    try:
        return urlsplit("" if any(map(str.isspace, url)) else url)
    except ValueError:
        return urlsplit("")
