"""Tool names that are not known as they are, and the two repairs that find the tool they mean.

`trim` takes off a template's text around a known name (docs/repair.md). This is leaked template tokens such as
`<|channel|>`, quotes, a counter (`:0`), and a namespace that some client or model puts in front. If the operator asks
for it, `unfold` takes `getWeather` for `get_weather`. Nothing is matched by likeness. Names that remain unknown are
explained in `explain/explain.py`, with a did-you-mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Set
from collections.abc import Container as Names
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.rules.facts import nodes_at
from proxy.core.rules.style import match_names


# --- further names of a tool's arguments (`aliases` in the config) ----------------------------------------------------
def list_alias_mistakes(aliases: Mapping[str, str], declared: Set[str] | None) -> Iterator[tuple[str, str, str]]:
    """Each alias that cannot be used, with what is wrong and the remedy. `declared`: the properties of the schema's
    root, None if they are not known."""
    for alias, name in aliases.items():
        if declared is not None and alias in declared:
            yield alias, f"the alias {alias!r} is a declared property", "drop it: a declared name has one meaning"
        elif name in aliases and (declared is None or name not in declared):
            yield (alias, f"the alias {alias!r} means {name!r}, which is an alias itself", "name a declared property")
        elif declared is not None and name not in declared:
            known = ", ".join(sorted(declared)[:12]) or "none"
            yield (
                alias,
                f"the alias {alias!r} means {name!r}, which the schema does not declare",
                f"declared: {known}",
            )


def keep_usable_aliases(repair: RepairPolicy, declared: Set[str]) -> RepairPolicy:
    """The policy without the aliases that cannot be used: a listed schema may change after the config was written."""
    if not repair.aliases:
        return repair
    unusable = {alias for alias, *_ in list_alias_mistakes(repair.aliases, declared)}
    return replace(repair, aliases={alias: name for alias, name in repair.aliases.items() if alias not in unusable})


def list_root_properties(check: Check) -> frozenset[str]:
    """The names of the properties that the root of a schema declares."""
    return frozenset(name for node in nodes_at(check, ()) for name in node.properties)


# --- tool names that are not known as they are ----------------------------------------------------------------------
RULE: Final = "tool_name_trim"
FOLD_RULE: Final = "tool_name_fold"

_TEMPLATE_TOKEN: Final = re.compile(r"<\|[A-Za-z0-9_]{0,40}\|>")
_PREFIX: Final = re.compile(r"functions\.|tools\.|default_api\.|mcp__[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*__")
_COUNTER: Final = re.compile(r":[0-9]{1,4}\Z", re.ASCII)
# White space and quotes around a name.
_AROUND: Final = " \t\n\r\"'`“”"
# A longer text is not a tool name; the bound keeps the search small.
_LONGEST: Final = 400


def trim(name: str, known: Names[str]) -> str | None:
    """The one known name that `name` wraps, or None. A known name is never changed."""
    if name in known or len(name) > _LONGEST:
        return None
    pieces = (_list_bare(piece.strip(_AROUND)) for piece in _TEMPLATE_TOKEN.split(name))
    found = {bare for piece in pieces for bare in islice(filter(known.__contains__, piece), 1)}
    return found.pop() if len(found) == 1 else None


def find_known_name(name: str, tools: Mapping[str, ToolPolicy]) -> tuple[str, str] | None:
    """Returns the one known tool that an unknown name means and the repair that finds it, if its policy allows that."""
    trimmed = trim(name, tools)
    if trimmed is not None:
        return (trimmed, RULE) if RULE in tools[trimmed].repair.rules else None
    folded = unfold(name, tools)
    return (folded, FOLD_RULE) if folded is not None and FOLD_RULE in tools[folded].repair.rules else None


def unfold(name: str, known: Collection[str]) -> str | None:
    """The one known name that is `name` in another identifier style, or None. A known name is never changed."""
    found = match_names([name], known).get(name) if name not in known else None
    return found if found != name else None


def is_same_tool(name: str, tool: str) -> bool:
    """Returns whether two names are equal, or the same name in two identifier styles."""
    return name == tool or unfold(name, (tool,)) == tool


def list_wrapped(name: str) -> Iterator[str]:
    """The names that a name may wrap, itself among them."""
    for piece in _TEMPLATE_TOKEN.split(name[:_LONGEST]):
        yield from _list_bare(piece.strip(_AROUND))


def _list_bare(piece: str) -> Iterator[str]:
    yield piece
    prefix = _PREFIX.match(piece)
    bare = piece[prefix.end() :] if prefix is not None else piece
    yield bare
    yield _COUNTER.sub("", bare)  # a template that counts the calls: `functions.get_weather:0`
