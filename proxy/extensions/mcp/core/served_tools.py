"""The tools that a server lists, which of them a route serves, and the names that clients see. Pure.

A renamed tool has two names: the listed one, which the config uses, and the shown one (`mcp.tools.NAME.as`). A shown
name belongs only to that tool, even if the server lists another tool of this name, and clients cannot use the listed
name any more. So a name means the same tool before and after a list has changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from proxy.core.contract.listed_tool import Hints
from proxy.core.json.jsontext import walk
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue

# --- prepares a listed schema before it is compiled -------------------------------------------------------------------
# The most values, and characters of patterns, of a schema that is compiled without being examined. A pattern must not
# unfold: no count over 99, none of a class of Unicode letters, no look around, no reference to a group.
_FEW: Final = 1_000
_SHORT_PATTERNS: Final = 1_000
_COUNTED: Final = re.compile(r"\{[0-9,]*[0-9]{3}|\\[pPk1-9]|\\[wW].*\{|\(\?|\}.*\{.*\}.*\{")


def may_be_expensive(schema: JsonValue) -> bool:
    """Returns whether a schema has many values, patterns that could be of any cost, or references that generated code
    cannot follow."""
    values = list(islice(walk(schema), _FEW + 1))
    objects = [value for value in values if isinstance(value, dict)]
    patterns = [text for value in objects for text in _list_patterns(value)]
    is_long = len(values) > _FEW or sum(map(len, patterns)) > _SHORT_PATTERNS
    return is_long or any(map(_COUNTED.search, patterns)) or any(map(_leads_far, objects))


def _list_patterns(schema: dict[str, JsonValue]) -> list[str]:
    named = schema.get("patternProperties")
    return [
        text for text in (schema.get("pattern"), *(named if isinstance(named, dict) else ())) if isinstance(text, str)
    ]


def _leads_far(schema: dict[str, JsonValue]) -> bool:
    reference = schema.get("$ref", "#")
    dynamic = "$dynamicRef" in schema or "$recursiveRef" in schema
    return dynamic or not isinstance(reference, str) or not reference.startswith("#")


def apply_merge_patch(target: JsonValue, patch: JsonValue) -> JsonValue:
    """A value with a JSON Merge Patch laid over it (RFC 7396 section 2)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = apply_merge_patch(made.get(key), value)
    return made


# --- the tools that a server lists ------------------------------------------------------------------------------------
@value_class
class ListedTool:
    """A tool as its server lists it. `schema` and `output` are JSON Schemas (see `parse_schema`), `ABSENT` where there
    is none; `digest` distinguishes two tools of one name. `hints`: its annotations. `definition`: the result of
    `hash_definition`."""

    name: str
    description: str = ""
    schema: JsonValue = field(default=ABSENT, repr=False)
    output: JsonValue = field(default=ABSENT, repr=False)
    hints: Hints = field(default_factory=dict)
    digest: str = ""
    definition: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def destructive(self) -> bool:
        """Returns whether its server says that it may destroy something."""
        return self.hints.get("destructiveHint") is True

    @property
    def read_only(self) -> bool:
        """Returns whether its server says that it only reads, and not that it may destroy something."""
        return self.hints.get("readOnlyHint") is True and not self.destructive

    @property
    def adds(self) -> bool:
        """Returns whether its server writes out that it only adds something."""
        return self.hints.get("destructiveHint") is False

    @property
    def idempotent(self) -> bool:
        """Returns whether its server says that a call may be made twice."""
        return self.hints.get("idempotentHint") is True or self.hints.get("readOnlyHint") is True


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Listing:
    """All tools of a server, by name and in its order. `digest` distinguishes listings, `size` is in bytes."""

    tools: Mapping[str, ListedTool] = field(repr=False)
    digest: str
    size: int


@value_class
class ServedTools:
    """Which of the listed tools are served, by patterns of listed names (`fnmatch`, in exact case)."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        """Returns whether every tool is served."""
        return self.allow == ("*",) and not self.deny

    def has(self, name: str) -> bool:
        """Returns whether a tool of this name is served."""
        return any(fnmatchcase(name, one) for one in self.allow) and not any(
            fnmatchcase(name, one) for one in self.deny
        )


@value_class
class ShownNames:
    """The names that clients see. `renamed` maps the listed name of each renamed tool to the shown one, and `listed`
    maps it back."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, renamed: Mapping[str, str]) -> ShownNames:
        """The names for a config that renames these tools."""
        return cls(renamed, {shown: listed for listed, shown in renamed.items()})

    def show(self, listed: str) -> str | None:
        """The name under which clients see a listed tool; None where that name belongs to a renamed tool."""
        if listed in self.renamed:
            return self.renamed[listed]
        return None if listed in self.listed else listed

    def find(self, shown: str) -> str | None:
        """The listed name for a name that a client calls; None for the listed name of a renamed tool."""
        if shown in self.listed:
            return self.listed[shown]
        return None if shown in self.renamed else shown
