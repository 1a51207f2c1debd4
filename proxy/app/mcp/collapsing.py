"""One container in place of a server's tools: what clients see where a route says `collapse` (contract section 6).

The list is the same for everybody who sees the same tools (MCP 2026-07-28 forbids that it varies by connection), and it
has one page. What the container holds comes from the tools themselves, when it is called.
"""

from __future__ import annotations

from typing import Final

from proxy.adapters.mcpmessage import Message
from proxy.core.learned import LearnPolicy, Listing
from proxy.core.model import JsonValue

# Names in a description of ours: a model needs to know what is inside, not all of it.
_SHOWN: Final = 40
_DISPATCHED: Final[JsonValue] = {
    "type": "object",
    "properties": {
        "function": {"type": "string", "description": "The tool to call; leave it out to see them all."},
        "arguments": {"type": "object", "description": "Its arguments."},
    },
}
_EMPTY: Final[JsonValue] = {"type": "object", "properties": {}}


def collapsed_list(message: Message, listing: Listing, rules: LearnPolicy) -> dict[str, JsonValue]:
    """The result of `tools/list`: the container alone. A page behind it is empty."""
    container = rules.collapse
    if container is None:
        raise AssertionError("a route without `collapse` shows its tools")
    tool: dict[str, JsonValue] = {
        "name": container.name,
        "description": rules.collapse_description or _described(listing),
        "inputSchema": _DISPATCHED if container.auto_expand == "dispatch" else _EMPTY,
    }
    tools = [] if isinstance(message.param("cursor"), str) else [tool]
    fresh = {"ttlMs": int(rules.ttl * 1000), "cacheScope": "private"} if message.modern else {}
    return {"tools": tools, **fresh}


def _described(listing: Listing) -> str:
    names = list(listing.tools)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"Groups {len(names)} tools. Call it with no arguments to get their descriptions and schemas, then call the "
        f"one you need by its own name. Tools: {', '.join(names[:_SHOWN])}{more}"
    )
