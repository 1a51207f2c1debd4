"""Finds the child of a request: each session of an old revision has its own, all requests without sessions share one.

A child starts when its session begins and ends with it: by DELETE, after a time without requests, or by itself.
A client of both eras asks `server/discover` first. A child that does not know that method is kept for the `initialize`
that follows, so that the question does not cost a second start.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.core.model.codes import OVERLOADED, RESTARTING, UPSTREAM_TIMEOUT, UPSTREAM_UNAVAILABLE, ErrorCode
from proxy.core.model.values import Executed, UpstreamFault
from proxy.extensions.mcp.upstream.stdio.channel import Channel
from proxy.extensions.mcp.upstream.stdio.child import Child, StdioSettings
from proxy.extensions.mcp.upstream.stdio.child_client import ChildClient
from proxy.extensions.mcp.upstream.stdio.reaper import Reaper
from proxy.extensions.mcp.upstream.stdio.resumable_stream import EventLog

# Retry hint in seconds: when a child is likely to be free again.
_SOON: Final = 5


class NoChild(Exception):  # noqa: N818 - it names an event
    """No child can take the request. `fault` says why; nothing was sent."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(slots=True)
class Session:
    """One client's session. `used` is the time of its last request, in seconds of the loop's clock."""

    id: str
    channel: Channel
    client: ChildClient
    used: float
    events: EventLog = field(default_factory=EventLog)


class Sessions:
    """The children of one upstream and the sessions they serve. Made inside a running event loop; `close` it."""

    def __init__(self, settings: StdioSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._reaper = Reaper()
        self._sessions: dict[str, Session] = {}
        self._channels: set[Channel] = set()
        self._starting = 0
        self._spare: Channel | None = None
        self._stateless: Channel | None = None
        self._common: Channel | None = None
        self._has_replaced = False
        self._eras_part = False
        """Returns whether each of the server's processes serves one era of the protocol."""
        self._shared_lock = asyncio.Lock()
        self._starts: deque[float] = deque()
        self._ending: set[asyncio.Future[None]] = set()
        self._closed = False
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def children(self) -> int:
        """Returns the number of running children."""
        return len(self._channels)

    def is_starting(self, session_id: str) -> bool:
        """Returns whether the child of a session, or of requests without one, has answered nothing yet."""
        if session_id:
            session = self._sessions.get(session_id)
            return session is not None and not session.channel.has_answered
        channel = self._stateless
        return channel is None or channel.exit is not None or not channel.has_answered

    async def start_early(self) -> Channel:
        """Starts the child of the first session, or of the first request without one."""
        self._spare = channel = await self._start()
        self._sweep_later()
        return channel

    async def begin(self) -> Session:
        """Begins a session, with its own child unless the settings share one.

        Raises:
                NoChild: `max_children` are running and none is idle, or the child does not start.
        """
        channel = await self._join() if self._settings.shared else self._take_spare() or await self._start()
        session = Session(secrets.token_hex(16), channel, channel.client(), self._now())
        self._sessions[session.id] = session
        self._sweep_later()
        return session

    def find(self, session_id: str) -> Session | None:
        """Finds a session and counts it as used now."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.used = self._now()
        return session

    async def end(self, session: Session) -> None:
        """Ends a session, and its child where no other session uses it."""
        self._sessions.pop(session.id, None)
        session.channel.forget(session.client)
        if session.channel not in (self._stateless, self._common):
            await session.channel.close()

    async def stateless(self) -> Channel:
        """The child for requests without sessions, started if it is not running.

        Raises:
                NoChild: it does not start, or has ended too often recently.
        """
        async with self._shared_lock:
            if self._stateless is None or self._stateless.exit is not None:
                self._stateless = self._find_shared(self._common) or await self._start_shared()
            return self._stateless

    def find_modern(self) -> Channel | None:
        """The child for requests without sessions, if it runs and has answered one."""
        channel = self._stateless
        return channel if channel is not None and channel.exit is None and channel.is_modern else None

    async def _join(self) -> Channel:
        """The child that all sessions share: that for requests without sessions, unless it serves one era only."""
        async with self._shared_lock:
            if self._common is None or self._common.exit is not None:
                self._common = self._find_shared(self._stateless) or await self._start_shared()
            return self._common

    def _find_shared(self, other: Channel | None) -> Channel | None:
        return other if other is not None and other.exit is None and not self._eras_part else None

    async def _start_shared(self) -> Channel:
        self._check_restarts()
        shared, spare = not self._settings.single_client, self._spare
        if spare is None or spare.sent_requests:
            return await self._start(shared=shared)
        spare.shared = shared
        return self._take_spare() or await self._start(shared=shared)

    def leave_stateless(self, channel: Channel) -> bool:
        """Lets requests without sessions use another child than `channel`, which serves the era of sessions. False if
        the last such change was of no use."""
        if channel is self._stateless:
            if self._has_replaced or channel.is_modern:
                return False
            self._stateless, self._has_replaced = None, True
            if channel is self._common:
                self._eras_part = True
            else:
                channel.retire()
        return True

    def leave_common(self, channel: Channel) -> None:
        """Lets new sessions use another child than `channel`, which serves the era without sessions."""
        if channel is self._common:
            self._common, self._eras_part = None, True

    def note_modern(self, channel: Channel) -> None:
        """Notes that a child has answered a request without a session."""
        channel.is_modern, self._has_replaced = True, False

    def keep_for_a_session(self, channel: Channel) -> None:
        """Keeps a child that only knows revisions with sessions for the `initialize` that follows."""
        if channel.is_modern or self._settings.shared or self._spare is not None:
            return
        if channel is self._stateless:
            self._stateless, self._spare = None, channel
            channel.shared = False
            channel.forget_only()
            self._sweep_later()

    async def close(self) -> None:
        """Ends every child."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        await asyncio.gather(*(channel.close() for channel in list(self._channels)), *self._ending)
        await self._reaper.close()

    def _take_spare(self) -> Channel | None:
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.exit is None else None

    async def _start(self, *, shared: bool = False) -> Channel:
        settings = self._settings
        if self._closed:
            raise NoChild(self._fault(RESTARTING, "destination_unavailable", "this proxy no longer uses it"))
        while len(self._channels) + self._starting >= settings.max_children and (idle := self._find_idle()) is not None:
            await self.end(idle)
        if len(self._channels) + self._starting >= settings.max_children:
            message = f"{settings.max_children} processes run, which is as many as may (`max_children`)"
            raise NoChild(self._fault(OVERLOADED, "connection_limit_reached", message, _SOON))
        self._starting += 1
        try:
            async with asyncio.timeout(settings.start_timeout):
                child = await Child.start(settings, self._reaper)
        except TimeoutError:
            message = "its process did not start in time"
            raise NoChild(self._fault(UPSTREAM_TIMEOUT, "connection_timeout", message)) from None
        except OSError as error:
            message = f"cannot start {settings.command[0]!r}: {error.strerror}"
            raise NoChild(self._fault(UPSTREAM_UNAVAILABLE, "destination_unavailable", message)) from None
        finally:
            self._starting -= 1
        channel = Channel(child, self._drop_channel, shared=shared, single=settings.single_client, lost=settings.lost)
        self._channels.add(channel)
        return channel

    def _find_idle(self) -> Session | None:
        """Returns the session with a private child that was idle for the longest time."""
        shared = (self._stateless, self._common)
        own = [one for one in self._sessions.values() if one.channel not in shared and one.channel.has_answered]
        return min((one for one in own if not one.client.is_busy), key=lambda one: one.used, default=None)

    def _check_restarts(self) -> None:
        now, settings = self._now(), self._settings
        while self._starts and self._starts[0] <= now - settings.restart_window:
            self._starts.popleft()
        if len(self._starts) >= settings.restarts:
            wait = int(self._starts[0] + settings.restart_window - now) + 1
            message = f"its process ended {settings.restarts} times within {settings.restart_window:g} s"
            raise NoChild(self._fault(UPSTREAM_UNAVAILABLE, "destination_unavailable", message, wait))
        self._starts.append(now)

    def _fault(self, code: ErrorCode, token: str, message: str, wait: int | None = None) -> UpstreamFault:
        return UpstreamFault(code, token, Executed.NO, f"upstream '{self._settings.name}': {message}", wait)

    def _drop_channel(self, channel: Channel) -> None:
        """Removes the sessions of a child that has ended."""
        self._channels.discard(channel)
        for session in [one for one in self._sessions.values() if one.channel is channel]:
            del self._sessions[session.id]
        if channel is self._spare:
            self._spare = None

    def _sweep_later(self) -> None:
        if self._sweep is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self._settings.idle / 4, self._end_idle)

    def _end_idle(self) -> None:
        self._sweep = None
        before = self._now() - self._settings.idle
        for session in list(self._sessions.values()):
            if session.used <= before and not session.client.is_busy:
                self._later(self.end(session))
        if self._spare is not None:
            self._later(self._spare.close())
        if self._sessions:
            self._sweep_later()

    def _later(self, ending: object) -> None:
        task: asyncio.Future[None] = asyncio.ensure_future(ending)  # type: ignore[call-overload]  # a coroutine
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
