"""The door of the MCP routes: behind it everything is loaded that they need and no other route does.

A config without such a route never opens it. One that has some loads what is behind it while it is compiled
(`load_exchange`), so that no request waits for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from proxy.app.http1.answer import Answer
from proxy.app.mcp.turn import Reports, Turn
from proxy.interfaces import Clock

if TYPE_CHECKING:
    from proxy.app.mcp.exchange import Exchange


class Mcp:
    """Handles the requests of all MCP routes of this process. `reports` is told of their tools."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str], reports: Reports) -> None:
        self._make: Callable[[], Exchange] = lambda: load_exchange()(clock, fresh_id, reports)
        self._exchange: Exchange | None = None

    def handle(self, turn: Turn) -> Awaitable[Answer | None]:
        """Answers one request, whose body was read."""
        if self._exchange is None:
            self._exchange = self._make()
        return self._exchange.handle(turn)

    async def close(self) -> None:
        """Ends what goes on without a client."""
        if self._exchange is not None:
            await self._exchange.close()


def load_exchange() -> type[Exchange]:
    """What is behind the door, loaded."""
    from proxy.app.mcp.exchange import Exchange

    return Exchange
