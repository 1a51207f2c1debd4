"""Tool names that are not known as they stand: the repair `tool_name_trim`, and what to say of all others.

`trim` takes off what a model's template left around a known name (repair.md section 3): template tokens such as
`<|channel|>` that leaked into it, and a namespace that some client or model puts in front. Nothing is matched by
likeness. What remains unknown is explained by `unknown`, with a did-you-mean.
"""

from __future__ import annotations

import re
from collections.abc import Container as Names
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from proxy.core import codes
from proxy.core.container import dotted
from proxy.core.explain import invalid_json
from proxy.core.model import Failure, JsonProblem, ToolCall
from proxy.core.names import unknown_tool
from proxy.core.policy import ToolPolicy

RULE: Final = "tool_name_trim"

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
    containers = {name: policy.container for name, policy in tools.items() if policy.container is not None}
    failure = dotted(call.tool, containers) or unknown_tool(call.tool, tools)
    return failure if call.tool else replace(failure, message="The call names no tool.")
