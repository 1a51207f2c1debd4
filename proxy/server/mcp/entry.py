"""The entry to MCP routes. It imports the modules that only MCP routes need when the config has such a route.

A config without an MCP route never imports them. A config with one imports them while it is compiled
(`load_exchange`), so that no request waits for the import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from proxy.interfaces import Clock
from proxy.server.mcp.mcp_request import McpRequest, PassedOn, Reports

if TYPE_CHECKING:
    from proxy.server.mcp.exchange import Exchange


class Mcp:
    """Handles the requests of all MCP routes of this process. `reports` receives the learned and unusable tools."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str], reports: Reports) -> None:
        self.passed_on: PassedOn | None = None
        """Hears of each request that its server has; set before the first request."""
        self._make: Callable[[], Exchange] = lambda: load_exchange()(clock, fresh_id, reports, self.passed_on)
        self._exchange: Exchange | None = None

    def handle(self, mcp_request: McpRequest) -> Awaitable[web.StreamResponse]:
        """Answers one request whose body has been read."""
        if self._exchange is None:
            self._exchange = self._make()
        return self._exchange.handle(mcp_request)

    async def close(self) -> None:
        """Cancels the calls in the background and closes the learner of lists."""
        if self._exchange is not None:
            await self._exchange.close()


def load_exchange() -> type[Exchange]:
    """Imports and returns the class that handles MCP requests."""
    from proxy.server.mcp.exchange import Exchange

    return Exchange
