"""Routes with `protocol: mcp`: what differs there by default, and what the operator says of listed tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.config.context import Context
from proxy.config.model import Mcp, Tool
from proxy.config.policies import Written, layered, policy_of
from proxy.config.secrets import reveal
from proxy.config.tools import Catalogue, check_policy
from proxy.config.units import seconds, switch
from proxy.core.model import Container, JsonValue, Pointer

# What is otherwise on these routes where the config says nothing: tools of agents run for minutes, their arguments hold
# whole files (the servers of the Python SDK take 4 MiB), and statuses have a meaning for the protocol.
MCP_DEFAULTS: Final[Written] = {
    "timeout": "5m",
    "limits": {"body": "4MiB"},
    "upstream_errors": "outages",
    "conversation": [
        {"header": "X-Conversation-Id"},
        {"meta": "vscode.conversationId"},
        {"meta": "openai/session"},
        {"meta": "ai.opencode/sessionID"},
        {"meta": "antigravity.google/conversation_id"},
        {"meta": "threadId"},
        "trace",
        {"session": "Mcp-Session-Id"},
        "address",
    ],
}


@dataclass(slots=True)
class McpReader:
    """Reads the `mcp` mapping of one route."""

    context: Context
    catalogue: Catalogue

    def policy(self, entry: Written) -> Written:
        """The policy keys of the route, with MCP's own defaults furthest out."""
        return layered(MCP_DEFAULTS, self.catalogue.defaults, entry)

    def read(self, entry: Written, at: Pointer) -> Mcp:
        """What the route does with the tools its server lists."""
        value = entry.get("mcp", {})
        at = (*at, "mcp")
        made: dict[str, Any] = {key: reveal(value[key]) for key in ("unknown_schema", "on_bad_schema") if key in value}
        made |= {key: switch(value[key]) for key in ("trust_annotations", "output_check") if key in value}
        made |= {key: seconds(value[key]) for key in ("ttl", "wait") if key in value}
        if "credentials" in value:
            made["credentials"] = frozenset(reveal(name).lower() for name in value["credentials"])
        if "collapse" in value:
            made["collapse"], made["collapse_description"] = _collapse(value["collapse"])
        written = self.policy(entry)
        tools: dict[str, Tool] = {}
        patches: dict[str, JsonValue] = {}
        for name, own in value.get("tools", {}).items():
            if isinstance(own, dict):
                self._check(own, (*at, "tools", name))
                tools[reveal(name)] = self._tool(reveal(name), own, written, (*at, "tools", name))
                if "overlay" in own:
                    patches[reveal(name)] = own["overlay"]
        return Mcp(template=policy_of(written), written=written, tools=tools, patches=patches, **made)

    def _check(self, own: Written, at: Pointer) -> None:
        self.catalogue.contradictions(own, at)
        check_policy(self.context, at, own, self.catalogue.known_to_caps)
        for key in ("schema", "container"):
            if key in own and "overlay" in own:
                message = f"`overlay` has no effect beside `{key}`, which takes the place of the listed schema"
                self.context.mistake((*at, "overlay"), message, "drop one of them", key=True)

    def _tool(self, name: str, own: Written, route: Written, at: Pointer) -> Tool:
        written = layered(route, own)
        schema = self.catalogue.schema(own["schema"], at, written) if "schema" in own else None
        container = self.catalogue.container(name, at, own.get("container"))
        described = reveal(own.get("description", "")) or (schema.description if schema else "")
        return Tool(name, described, schema, container, policy_of(written), written)


def _collapse(value: Mapping[str, JsonValue]) -> tuple[Container, str]:
    made: dict[str, Any] = {"auto_expand": reveal(value["auto_expand"])} if "auto_expand" in value else {}
    if "require_expansion" in value:
        made["require_expansion"] = switch(value["require_expansion"])
    return Container(reveal(value["name"]), "mcp", expand="proxy", **made), reveal(value.get("description", ""))
