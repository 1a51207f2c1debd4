"""The connection pools of the upstreams. A reload keeps those whose settings are the same, with their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from proxy.config.model import Config, HeaderChanges
from proxy.config.model import UpstreamConfig as UpstreamEntry
from proxy.interfaces import Upstream
from proxy.server.setup.upstreams import make_joined, make_operations
from proxy.upstream import UpstreamGuard

if TYPE_CHECKING:
    from proxy.upstream.joined import JoinedUpstream

MakeUpstream = Callable[[UpstreamEntry, Callable[[int, str], None]], Upstream]


@dataclass(slots=True)
class Pools:
    """Makes pools with their guards, keeps them while they are wanted, and closes them after their last call.

    `changed` is told the name of an upstream and the new state of its breaker; `make` makes the connections to one;
    `stderr` is told the name of an upstream that is a command, the process id, and a line that it wrote there;
    `unreachable` the name of one that is several servers, a server, and why it is out of reach ('': it answers again).
    """

    now: Callable[[], float]
    changed: Callable[[str, str], None]
    make: MakeUpstream
    stderr: Callable[[str, int, str], None]
    unreachable: Callable[[str, str, str], None] = lambda name, server, reason: None  # noqa: ARG005
    _joined: dict[str, JoinedUpstream] = field(default_factory=dict)
    _made: dict[str, tuple[UpstreamEntry, UpstreamGuard]] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def of(self, config: Config) -> tuple[dict[str, UpstreamGuard], list[UpstreamGuard]]:
        """The upstreams of a config by name, and those that no later config knows; they are not closed yet."""
        before, after = self._made, dict[str, tuple[UpstreamEntry, UpstreamGuard]]()
        for name, entry in sorted(config.upstreams.items(), key=lambda item: bool(_parts(item[1]))):
            # Headers belong to the routes and the health path to the probes, not to the connections.
            same = replace(entry, headers=HeaderChanges(), health="")
            kept = before.get(name)
            as_before = all(after.get(part) is before.get(part) for part in _parts(entry))
            after[name] = kept if kept and kept[0] == same and as_before else (same, self._make(entry, after))
        self._made = after
        gone = [made[1] for name, made in before.items() if after.get(name) is not made]
        return {name: upstream for name, (_, upstream) in after.items()}, gone

    def _make(self, entry: UpstreamEntry, made: Mapping[str, tuple[UpstreamEntry, UpstreamGuard]]) -> UpstreamGuard:
        upstream: Upstream
        if entry.joined is not None:
            upstreams = {name: guard for name, (_, guard) in made.items()}
            joined = make_joined(entry.name, entry.joined, upstreams, partial(self.unreachable, entry.name))
            self._joined[entry.name] = joined
            upstream = joined
        elif entry.operations is not None:
            upstream = make_operations(entry.name, entry.operations, made[entry.operations.upstream][1])
        else:
            upstream = self.make(entry, partial(self.stderr, entry.name))
        return UpstreamGuard(upstream, entry.name, entry.guard, self.now, self.changed)

    def find_unguarded(self, name: str) -> Upstream | None:
        """An upstream without its breaker and bound, for what is neither a call nor a client's request."""
        made = self._made.get(name)
        return made[1].unguarded if made is not None else None

    def breaker_states(self) -> dict[str, int]:
        """Upstream -> 0 closed, 1 half-open, 2 open; of those that have a breaker."""
        states = {name: upstream.breaker_state for name, (_, upstream) in self._made.items()}
        return {name: state for name, state in states.items() if state is not None}

    def list_servers_down(self, name: str) -> dict[str, str]:
        """Of an upstream that is several servers: those that are out of reach, and why."""
        joined = self._joined.get(name)
        return dict(joined.down) if joined is not None and name in self._made else {}

    def retire(self, gone: Iterable[Upstream], last: frozenset[asyncio.Task[object]]) -> None:
        """Closes pools when the last requests that may use them are over."""
        for upstream in gone:
            task = asyncio.create_task(_close_after(upstream, last))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes everything at once."""
        for task in list(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for _, upstream in self._made.values():
            await upstream.close()


def _parts(entry: UpstreamEntry) -> tuple[str, ...]:
    """The upstreams that an upstream is made of; none where it has connections of its own."""
    if entry.joined is not None:
        return tuple(server.upstream for server in entry.joined.servers)
    return (entry.operations.upstream,) if entry.operations is not None else ()


async def _close_after(upstream: Upstream, last: frozenset[asyncio.Task[object]]) -> None:
    try:
        if last:
            await asyncio.wait(last)
    finally:
        await upstream.close()
