"""Tool names that are not known as they stand: two repairs, and what to say of all others.

`trim` takes off what a model's template left around a known name (repair.md section 3): template tokens such as
`<|channel|>` that leaked into it, and a namespace that some client or model puts in front. `unfold`, where the operator
asks for it, takes `getWeather` for `get_weather`. Nothing is matched by likeness. What remains unknown is explained by
`unknown`, with a did-you-mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from collections.abc import Container as Names
from dataclasses import replace
from typing import Final

from proxy.core import codes
from proxy.core.container import SEPARATORS, dotted
from proxy.core.explain import invalid_json
from proxy.core.model import Failure, JsonProblem, ToolCall
from proxy.core.names import fold, unknown_tool
from proxy.core.policy import ToolPolicy

RULE: Final = "tool_name_trim"
FOLD_RULE: Final = "tool_name_fold"

_TEMPLATE_TOKEN: Final = re.compile(r"<\|[A-Za-z0-9_]{0,40}\|>")
_PREFIX: Final = re.compile(r"functions\.|tools\.|default_api\.|mcp__[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*__")
# Longer names are no names; the bound keeps the search small.
_LONGEST: Final = 400


def trim(name: str, known: Names[str]) -> str | None:
    """The one known name that `name` wraps, or None. A known name is never changed."""
    if name in known or len(name) > _LONGEST:
        return None
    found = {part for piece in _TEMPLATE_TOKEN.split(name) if (part := _bare(piece.strip(), known)) is not None}
    return found.pop() if len(found) == 1 else None


def known_name(name: str, tools: Mapping[str, ToolPolicy]) -> tuple[str, str] | None:
    """The one known tool that an unknown name stands for and the repair that finds it, if its policy allows that."""
    trimmed = trim(name, tools)
    if trimmed is not None:
        return (trimmed, RULE) if RULE in tools[trimmed].repair.rules else None
    folded = unfold(name, tools)
    return (folded, FOLD_RULE) if folded is not None and FOLD_RULE in tools[folded].repair.rules else None


def unfold(name: str, known: Collection[str]) -> str | None:
    """The one known name that differs from `name` in case and word separators alone, or None. A known name is never
    changed, and names without a letter or digit fold to nothing."""
    wanted = fold(name) if len(name) <= _LONGEST else ""
    found = [candidate for candidate in known if fold(candidate) == wanted] if wanted else []
    return found[0] if len(found) == 1 and found[0] != name and found[0] in known else None


def _bare(piece: str, known: Names[str]) -> str | None:
    if piece in known:
        return piece
    prefix = _PREFIX.match(piece)
    bare = piece[prefix.end() :] if prefix is not None else ""
    return bare if bare in known else None


def unknown(call: ToolCall, tools: Mapping[str, ToolPolicy]) -> Failure:
    """Why a call of a tool outside `tools` fails: a body that names none, `Math.Add`, or a name nobody knows."""
    if call.tool == "" and isinstance(call.arguments, JsonProblem):
        return Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, (invalid_json(call.arguments),))
    heads = {call.tool.partition(separator)[0] for separator in SEPARATORS}  # not all tools: there may be thousands
    found = {head: policy.container for head in heads if (policy := tools.get(head)) is not None}
    containers = {head: container for head, container in found.items() if container is not None}
    failure = dotted(call.tool, containers) or unknown_tool(call.tool, tools)
    return failure if call.tool else replace(failure, message="The call names no tool.")
