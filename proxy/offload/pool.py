"""The event loop's side of the pool: children are started when they are needed, and killed when a job exceeds a limit.

    run     hands one job to a free child, or waits for one
    close   kills every child

A job may use its seconds of CPU time: the kernel counts them, so a busy machine ends no job that is cheap. It is never
waited for beyond its seconds of the clock, which count from the call. A child whose job was given up is killed, because
nobody knows what it still does; the next job starts a new one. A child that has had nothing to do for `idle_seconds` is
ended, so that an idle proxy keeps no memory for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from proxy.core.model.value_class import set_later, value_class
from proxy.offload.child import keep_shared

MIB: Final = 1 << 20
# The exit code of a child that used up its CPU time; Windows has no such signal.
_NO_CPU_TIME_LEFT: Final = -getattr(signal, "SIGXCPU", 0)


class Limit(StrEnum):
    """The reason why a job has no result."""

    DEADLINE = "deadline"
    """It used up its CPU time, or its seconds of the clock passed while it ran."""
    MEMORY = "memory"
    """It needed more memory than a child may have."""
    BUSY = "busy"
    """No child was free: as many jobs as may wait were waiting, or the job's seconds passed while it waited."""
    CRASH = "crash"
    """The child ended, or the function raised."""
    CLOSED = "closed"
    """The pool is closed."""


@value_class
class Done:
    """The bytes that the function gave back."""

    result: bytes


@value_class
class GaveUp:
    """No result: which limit ended the job, and the name of the exception or the signal where there is one."""

    limit: Limit
    detail: str = ""


@value_class
class Shared:
    """Data that many jobs share, such as a tool's schema: a child gets it once, and then its digest."""

    data: bytes = field(repr=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        set_later(self, "digest", blake2b(self.data, digest_size=16).hexdigest())


class OffloadPool:
    """At most `size` children, each with at most `memory` bytes more than an idle interpreter.

    At most `max_waiting` jobs wait for a child; one more is given up at once. All methods belong to one event loop.
    """

    def __init__(
        self, *, size: int = 2, memory: int = 512 * MIB, max_waiting: int = 64, idle_seconds: float = 60.0
    ) -> None:
        self._memory = memory
        self._idle_seconds = idle_seconds
        self._slots = asyncio.Semaphore(size)
        self._jobs, self._max_jobs = 0, size + max_waiting  # those that run or wait
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()
        self._closed = False

    @property
    def children(self) -> int:
        """Returns how many child processes there are now."""
        return len(self._children)

    async def run(
        self,
        function: str,
        payload: bytes,
        shared: Shared | None = None,
        *,
        seconds: float,
        patience: float | None = None,
    ) -> Done | GaveUp:
        """Runs `package.module:function` on `payload`, and on the bytes of `shared`, in a child, for at most `seconds`
        of CPU time, and until at most `patience` from now (without it: `seconds`).

        A cancelled caller kills the child that works for it.
        """
        if self._closed:
            return GaveUp(Limit.CLOSED)
        passed = Limit.BUSY
        if self._jobs == self._max_jobs:
            return GaveUp(passed)
        self._jobs += 1
        try:
            async with asyncio.timeout(seconds if patience is None else patience), self._slots:
                passed = Limit.DEADLINE
                return await self._run_in_child(function, payload, shared, seconds)
        except TimeoutError:
            return GaveUp(passed)
        finally:
            self._jobs -= 1

    async def close(self) -> None:
        """Kills every child. Jobs under way end as `crash`, jobs that wait as `closed`."""
        self._closed = True
        await asyncio.gather(*(self._end(child) for child in list(self._children)))

    async def _run_in_child(
        self, function: str, payload: bytes, shared: Shared | None, seconds: float
    ) -> Done | GaveUp:
        if self._closed:
            return GaveUp(Limit.CLOSED)
        child = self._idle.pop() if self._idle else await self._start()
        child.stop_idling()
        is_kept = False
        try:
            ended = await child.ask(function, payload, shared, seconds)
            is_kept = ended != GaveUp(Limit.MEMORY) and not self._closed
        except (EOFError, ConnectionError):
            code = await child.process.wait()
            used_up = code == _NO_CPU_TIME_LEFT != 0
            return GaveUp(Limit.DEADLINE) if used_up else GaveUp(Limit.CRASH, f"exit {code}")
        finally:
            if is_kept:
                self._idle.append(child)
                timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle, child)
                child.idle_timer = timer
            else:
                await asyncio.shield(self._end(child))
        return ended

    async def _start(self) -> _Child:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proxy.offload.child", str(self._memory)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                start_new_session=True,  # Ctrl-C at the terminal is the parent's to answer
            )
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The process exists all the same: it is ended once its start is known.
            starting.add_done_callback(_kill_started)
            raise
        child = _Child(process)
        self._children.add(child)
        return child

    def _end_idle(self, child: _Child) -> None:
        self._idle.remove(child)
        child.ending = asyncio.ensure_future(self._end(child))

    async def _end(self, child: _Child) -> None:
        child.stop_idling()
        if child in self._idle:
            self._idle.remove(child)
        self._children.discard(child)
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()
        await child.process.wait()
        child.jobs.close()


def _kill_started(starting: asyncio.Future[Process]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        with contextlib.suppress(ProcessLookupError):
            starting.result().kill()


class _Child:
    """One child process and its two pipes."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a child is started with pipes")
        self.process = process
        self.jobs = process.stdin
        self._results = process.stdout
        self._kept: dict[str, bytes] = {}
        self.idle_timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Future[None] | None = None

    def stop_idling(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()

    async def ask(self, function: str, payload: bytes, shared: Shared | None, seconds: float) -> Done | GaveUp:
        """One job and its result, as `child.py` describes them.

        Raises:
            EOFError, ConnectionError: the child ended before its result was whole.
        """
        job: dict[str, Any] = {"function": function, "seconds": seconds, "size": len(payload)}
        sent = b""
        if shared is not None:
            sent = b"" if shared.digest in self._kept else shared.data
            job |= {"shared": shared.digest, "sent": len(sent)}
            keep_shared(self._kept, shared.digest, b"")
        self.jobs.write(json.dumps(job).encode() + b"\n" + sent)
        self.jobs.write(payload)
        # A child that dies of its memory limit while it reads still has its result in the pipe.
        with contextlib.suppress(ConnectionError):
            await self.jobs.drain()
        ending, _, size = (await self._results.readuntil()).decode().partition(" ")
        result = await self._results.readexactly(int(size))
        return Done(result) if ending == "done" else GaveUp(Limit(ending), result.decode("ascii", "replace"))
