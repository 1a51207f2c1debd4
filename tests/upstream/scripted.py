"""An upstream that plays its answers in turn. Its clock moves only when somebody waits, so nothing takes time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from proxy.core.contract.policy import ToolServer
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    Headers,
    Rung,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.interfaces import UpstreamRequest

Answer = UpstreamReply | UpstreamFault

CHECKED = CheckedCall(
    ToolCall("weather", Document(b"{}", {}), "call-1", Conversation("c", Rung.HEADER)), b"{}", {}
)  # fmt: skip


def request(headers: Headers = (), timeout: float = 30.0) -> UpstreamRequest:
    return UpstreamRequest("w", "POST", "/weather", headers, b"{}", timeout)


@dataclass
class Time:
    """A clock, a source of chance and of names. `waits` holds every wait that was asked for."""

    at: float = 0.0
    waits: list[float] = field(default_factory=list)
    keys: int = 0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return 1_700_000_000.0 + self.at

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at += seconds

    def chance(self) -> float:
        return 0.5

    def fresh_key(self) -> str:
        self.keys += 1
        return f"key-{self.keys}"


@dataclass
class ScriptedUpstream:
    """Implements `GuardedUpstream`: each answer takes `takes` seconds; the last one is given for ever."""

    answers: list[Answer]
    time: Time
    takes: float = 0.0
    budget: int = 100
    sent: list[UpstreamRequest] = field(default_factory=list)
    closed: bool = False

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> Answer:  # noqa: ARG002 - Upstream's signature
        self.sent.append(request)
        self.time.at += min(self.takes, request.timeout)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def start(self, checked: CheckedCall, request: UpstreamRequest) -> None:
        """Every call waits for its answer."""

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:  # noqa: ARG002
        return await self.send(CHECKED, request)

    async def guard(self, request: UpstreamRequest, send: Callable[[UpstreamRequest], Awaitable[Answer]]) -> Answer:
        return await send(request)

    def list_servers(self) -> tuple[ToolServer, ...]:
        """None: it is a single server."""
        return ()

    def grants_resend(self) -> bool:
        self.budget -= 1
        return self.budget >= 0

    async def close(self) -> None:
        self.closed = True


@dataclass
class Body:
    """A streamed body that notes how it ended."""

    chunks: list[bytes]
    closed: bool = False
    on_chunk: Callable[[], None] = lambda: None

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        self.on_chunk()
        if not self.chunks:
            raise StopAsyncIteration
        return self.chunks.pop(0)

    async def aclose(self) -> None:
        self.closed = True
