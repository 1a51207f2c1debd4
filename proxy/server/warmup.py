"""Writes the code of every check before a call needs it, so that the first call of a tool is as quick as the second.
What reads the complaints of tools is made ready last, in the same way.

Compiling a config writes no code (validation.py): a thousand routes would delay the start by seconds. It is written
here once the ports are open, check by check in a thread, with a pause after each, so that calls hardly notice. A call
that comes first does not wait for its turn: its check is written at once, in a thread too (`call/run.py`), so that no
other call waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.core import decide
from proxy.core.tool_errors import complaints
from proxy.routing import RouteTable

# Writing one check takes 2 to 10 ms of the interpreter; so long it then leaves it to the calls.
PAUSE: Final = 0.02


class Warming:
    """The warm-up of what is served. `begin` takes the place of the one before; `end` stops it.

    `report_error` gets each defect: what was going on, and the exception.
    """

    def __init__(self, report_error: Callable[[str, BaseException], None]) -> None:
        self._report_error = report_error
        self.task: asyncio.Task[None] | None = None

    def begin(self, table: RouteTable) -> None:
        """Starts to write the code of a table's checks. Needs a running event loop."""
        self.end()
        self.task = asyncio.create_task(self._warm(table))

    def end(self) -> None:
        """Stops writing checks."""
        if self.task is not None:
            self.task.cancel()

    async def _warm(self, table: RouteTable) -> None:
        try:
            # Each policy once: several routes may lead to one tool.
            policies = {id(policy): policy for route in table.routes for policy in route.tools.values()}
            for policy in policies.values():
                await asyncio.to_thread(decide.prepare, policy)
                await asyncio.sleep(PAUSE)
            await asyncio.to_thread(complaints.compile_dialects)
        except Exception as error:  # noqa: BLE001 - a defect of the writer, which the tool's first call meets as well
            self._report_error("warming up", error)
