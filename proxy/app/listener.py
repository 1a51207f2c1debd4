"""The listening side: takes connections and hands their requests to `handle`. What one connection does stands in
`http1/connection.py`, what its bytes mean in `gate.py` and `heads.py`."""

from __future__ import annotations

import asyncio

from proxy.app.http1.connection import Connection
from proxy.app.http1.terms import Handle, Patience, RefuseHead, Terms
from proxy.config.model import Listen


def patience_of(listen: Listen) -> Patience:
    """The limits of a configured address."""
    return Patience(listen.head_timeout, listen.idle_timeout, listen.send_timeout)


class Listener:
    """Makes the protocol of each connection; `refuse` answers what is no HTTP."""

    def __init__(self, handle: Handle, refuse: RefuseHead, patience: Patience | None = None) -> None:
        self._terms = Terms(handle, refuse, patience or Patience())

    def __call__(self) -> Connection:
        """Makes the protocol of one connection."""
        return Connection(self._terms)

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return list(self._terms.open)

    async def shutdown(self, timeout: float) -> None:  # noqa: ASYNC109 - for each of two steps
        """Closes idle connections at once, and the others when their answer is out; after `timeout` seconds requests
        are cancelled, and after as many again nothing is waited for."""
        for connection in self.connections:
            connection.finish()
        await self._emptied(timeout)
        for connection in self.connections:
            if connection.task is not None:
                connection.task.cancel()
            connection.close()
        await self._emptied(timeout)

    async def _emptied(self, timeout: float) -> None:  # noqa: ASYNC109 - as above
        """Returns when no connection is open any more, or after `timeout` seconds."""
        if self._terms.open:
            self._terms.emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._terms.emptied], timeout=timeout)
