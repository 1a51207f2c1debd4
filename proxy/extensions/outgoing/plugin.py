"""The plugin `outgoing`."""

from __future__ import annotations

from proxy.plugin import Plugin


class OutgoingPlugin(Plugin):
    """Lets other plugins send requests that are not calls."""

    name = "outgoing"
    adds = "requests of the proxy's own that are not calls"
