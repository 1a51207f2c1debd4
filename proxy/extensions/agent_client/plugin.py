"""The plugin `agent_client`."""

from __future__ import annotations

from proxy.plugin import Plugin


class AgentClientPlugin(Plugin):
    """Does what an agent host does with an answer of the proxy."""

    name = "agent_client"
    adds = "what an agent host does with an answer of the proxy, as `toolcall_proxy.client` in the wheel"
