"""The names in a PromQL expression: metrics and, for each, its labels. Reads just enough of the language (Prometheus,
"Querying basics" and "Operators") to check a dashboard without promtool; it rejects unknown syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

# Labels that the scrape adds, or that belong to a histogram's series.
OF_THE_SCRAPE: Final = frozenset({"job", "instance", "namespace", "pod", "toolcall_proxy"})
OF_A_BUCKET: Final = "le"

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<number>[0-9]+(?:\.[0-9]+)?[smhdwy]?)
    |(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<sign>[-+*/%^(){},]|==|!=|<=|>=|=~|!~|=|<|>)""",
    re.VERBOSE,
)
_FUNCTIONS: Final = frozenset(
    {
        "rate",
        "increase",
        "changes",
        "histogram_quantile",
        "label_replace",
        "vector",
        "sum",
        "min",
        "max",
        "count",
        "group",
        "avg",
    }
)
_GROUPING: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_END: Final = ("", "")
_WORDS: Final = frozenset({"and", "or", "unless", "offset", "bool"})


@dataclass(frozen=True)
class Named:
    """A metric with the matchers it is selected by: label, sign and text."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass
class Query:
    """The names in one expression. `grouped` are the labels in `by (...)`, `on (...)` and their like."""

    metrics: list[Named] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def tokens(expression: str) -> list[tuple[str, str]]:
    """(kind, text) of every token. Raises ValueError for what is none."""
    found, at = [], 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None:
            raise ValueError(f"not read: {expression[at : at + 20]!r}")
        if token.lastgroup != "space":
            found.append((str(token.lastgroup), token[0]))
        at = token.end()
    return found


def named(expression: str) -> Query:
    """Returns what an expression names. Raises ValueError for brackets that do not match."""
    query, rest = Query(), iter(tokens(expression))
    depth = 0
    pending: str | None = None
    for kind, text in rest:
        if pending is not None and text == "{":
            query.metrics.append(Named(pending, tuple(_matchers(rest))))
            pending = None
            continue
        if pending is not None:
            query.metrics.append(Named(pending, ()))
            pending = None
        if kind == "name" and text in _GROUPING:
            query.grouped |= set(_labels(rest))
        elif kind == "name" and text not in _FUNCTIONS | _WORDS:
            pending = text
        depth += (text == "(") - (text == ")")
        if depth < 0:
            raise ValueError("a bracket too many")
    if pending is not None:
        query.metrics.append(Named(pending, ()))
    if depth:
        raise ValueError("a bracket is not closed")
    return query


def _labels(rest: Iterator[tuple[str, str]]) -> Iterator[str]:
    if next(rest, _END)[1] != "(":
        raise ValueError("a list of labels begins with a bracket")
    for kind, text in rest:
        if text == ")":
            return
        if kind == "name":
            yield text


def _matchers(rest: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    for kind, text in rest:
        if text == "}":
            return
        if kind == "name":
            yield text, next(rest, _END)[1], next(rest, _END)[1].strip('"')
    raise ValueError("a brace is not closed")
