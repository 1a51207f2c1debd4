"""The connection pools of the upstreams. A reload keeps those whose settings are the same, with their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from proxy.app.outbound import make_upstream
from proxy.config.model import Config, HeaderChanges
from proxy.config.model import Upstream as UpstreamEntry
from proxy.interfaces import Upstream
from proxy.upstream import Guarded


@dataclass(slots=True)
class Pools:
    """Makes pools with their guards, keeps them while they are wanted, and closes them after their last call.

    `changed` is told the name of an upstream and the new state of its breaker.
    """

    now: Callable[[], float]
    changed: Callable[[str, str], None]
    _made: dict[str, tuple[UpstreamEntry, Guarded]] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def of(self, config: Config) -> tuple[dict[str, Guarded], list[Guarded]]:
        """The upstreams of a config by name, and those that no later config knows; they are not closed yet."""
        before, after = self._made, {}
        for name, entry in config.upstreams.items():
            same = replace(entry, headers=HeaderChanges())  # headers belong to the routes, not to the connections
            kept = before.get(name)
            after[name] = kept if kept and kept[0] == same else (same, self._make(entry))
        self._made = after
        gone = [made[1] for name, made in before.items() if after.get(name) is not made]
        return {name: upstream for name, (_, upstream) in after.items()}, gone

    def _make(self, entry: UpstreamEntry) -> Guarded:
        return Guarded(make_upstream(entry), entry.name, entry.guard, self.now, self.changed)

    def breaker_states(self) -> dict[str, int]:
        """Upstream -> 0 closed, 1 half-open, 2 open; of those that have a breaker."""
        states = {name: upstream.breaker_state for name, (_, upstream) in self._made.items()}
        return {name: state for name, state in states.items() if state is not None}

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


async def _close_after(upstream: Upstream, last: frozenset[asyncio.Task[object]]) -> None:
    try:
        if last:
            await asyncio.wait(last)
    finally:
        await upstream.close()
