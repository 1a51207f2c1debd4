"""Takes the pieces and the events of a streamed answer, so that neither its client nor other requests wait for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Final

from proxy.core.model.values import UpstreamReply

# Seconds of silence after which a comment goes to a client that waits for a held call.
SILENCE: Final = 10.0
# Events that one stream handles before others get a turn.
_TURN: Final = 64


async def take_turns(events: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The events, with a turn for all others after every few: many of them come in one piece."""
    for number, event in enumerate(events, 1):
        yield event
        if number % _TURN == 0:
            await asyncio.sleep(0)


async def read_pieces(reply: UpstreamReply, is_waiting: Callable[[], bool]) -> AsyncGenerator[bytes | None, None]:
    """The pieces of a body; None for each silence while the client waits for what is held, whether the server is
    silent too or not."""
    if isinstance(reply.body, bytes):
        yield reply.body
        return
    source: AsyncIterator[bytes] = aiter(reply.body)
    now, silent_from = asyncio.get_running_loop().time, 0.0
    while True:
        if not is_waiting():  # a task for each piece of text would cost a third of the reading
            piece, silent_from = await anext(source, None), 0.0
        else:
            silent_from = silent_from or now()
            coming = asyncio.ensure_future(anext(source, None))
            try:
                while not (await asyncio.wait({coming}, timeout=silent_from + SILENCE - now()))[0]:
                    yield None
                    silent_from = now()
            finally:
                coming.cancel()
            piece = coming.result()
        if piece is None:
            return
        yield piece
