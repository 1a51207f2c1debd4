"""The path and the query of a request carry arguments too. This holds the schemas that judge them.

The schemas come from the OpenAPI operation of a route, or from the route's key `parameters`. `explain/channels.py`
judges the values; the bytes of the request stay as they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proxy.core.check.validation import Check
from proxy.core.schema.http.parameters import Parameter


class QueryPolicy(StrEnum):
    """How a route treats a query string: `judge` holds declared parameters to their schemas, `strict` refuses
    undeclared ones as well, `forward` lets everything go on unjudged, `refuse` takes no query."""

    JUDGE = "judge"
    STRICT = "strict"
    FORWARD = "forward"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class JudgedParameter:
    """A declared parameter with its compiled schema. `key`: the name the route's path has for it."""

    declared: Parameter
    check: Check
    key: str


@dataclass(frozen=True, slots=True)
class Channels:
    """The judged parameters of one route's requests. `free`: names of the query that nothing judges, such as those of
    credentials. `judges_query` False: the query is not looked at. `strict`: undeclared names are refused."""

    path: tuple[JudgedParameter, ...] = ()
    query: tuple[JudgedParameter, ...] = ()
    free: frozenset[str] = frozenset()
    judges_query: bool = True
    strict: bool = False

    @property
    def matrix(self) -> frozenset[str]:
        """The path parameters in whose text `;` has a meaning."""
        return frozenset(each.key for each in self.path if each.declared.style == "matrix")

    @property
    def described(self) -> str:
        """A text for hashing, which differs whenever the judgement may differ."""
        declared = [each.declared for each in (*self.path, *self.query)]
        return repr((declared, sorted(self.free), self.judges_query, self.strict))
