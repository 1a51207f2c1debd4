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
from collections import deque
from dataclasses import field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from proxy.core.model.value_class import value_class
from proxy.offload.child import JOB, RESULT, JobEnding, SharedBytes

MIB: Final = 1 << 20
# The exit code of a child that used up its CPU time; Windows has no such signal.
_NO_CPU_TIME_LEFT: Final = -getattr(signal, "SIGXCPU", 0)


class Limit(StrEnum):
    """Why a job has no result."""

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
    """What many jobs need, such as a tool's schema: a child gets it once, and then its digest."""

    data: bytes = field(repr=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", blake2b(self.data, digest_size=16).hexdigest())


class OffloadPool:
    """At most `size` children, each with at most `memory` bytes more than an idle interpreter.

    At most `max_waiting` jobs wait for a child; one more is given up at once. All methods belong to one event loop.
    """

    def __init__(
        self, *, size: int = 2, memory: int = 512 * MIB, max_waiting: int = 64, idle_seconds: float = 60.0
    ) -> None:
        self._size = size
        self._memory = memory
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self._idle: deque[_Child] = deque()
        self._busy = 0
        self._children: set[_Child] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def children(self) -> int:
        """How many child processes there are now."""
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
        if self._busy >= self._size and len(self._waiting) >= self._max_waiting:
            return GaveUp(Limit.BUSY)
        passed = Limit.BUSY
        try:
            async with asyncio.timeout(seconds if patience is None else patience):
                await self._take_slot()
                passed = Limit.DEADLINE
                try:
                    return await self._run_in_child(function, payload, shared, seconds)
                finally:
                    self._give_slot()
        except TimeoutError:
            return GaveUp(passed)

    async def close(self) -> None:
        """Kills every child. Jobs under way end as `crash`, jobs that wait as `closed`."""
        self._closed = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
        await asyncio.gather(*(self._end(child) for child in list(self._children)))

    async def _take_slot(self) -> None:
        if self._busy < self._size:
            self._busy += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter  # the one who sets it hands its slot over
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give_slot()
            else:
                self._waiting.remove(waiter)
            raise

    def _give_slot(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._busy -= 1

    async def _run_in_child(
        self, function: str, payload: bytes, shared: Shared | None, seconds: float
    ) -> Done | GaveUp:
        if self._closed:
            return GaveUp(Limit.CLOSED)
        child = self._idle.pop() if self._idle else await self._start()
        child.stop_idling()
        keeps = False
        try:
            ending, result = await child.ask(function, payload, shared, seconds)
            keeps = ending is not JobEnding.NO_MEMORY and not self._closed
        except (EOFError, ConnectionError):
            code = await child.process.wait()
            used_up = code == _NO_CPU_TIME_LEFT != 0
            return GaveUp(Limit.DEADLINE) if used_up else GaveUp(Limit.CRASH, f"exit {code}")
        finally:
            if keeps:
                self._lay_by(child)
            else:
                await asyncio.shield(self._end(child))
        match ending:
            case JobEnding.DONE:
                return Done(result)
            case JobEnding.RAISED:
                return GaveUp(Limit.CRASH, result.decode("ascii", "replace"))
            case JobEnding.NO_MEMORY:
                return GaveUp(Limit.MEMORY)

    async def _start(self) -> _Child:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "proxy.offload.child",
                str(self._memory),
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

    def _lay_by(self, child: _Child) -> None:
        self._idle.append(child)
        loop = asyncio.get_running_loop()
        child.idle_timer = loop.call_later(self._idle_seconds, self._end_idle, child)

    def _end_idle(self, child: _Child) -> None:
        if child in self._idle:
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
        child.close_pipes()


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
        self._jobs = process.stdin
        self._results = process.stdout
        self.idle_timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Future[None] | None = None
        self._shared = SharedBytes()

    def stop_idling(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    def close_pipes(self) -> None:
        self._jobs.close()

    async def ask(
        self, function: str, payload: bytes, shared: Shared | None, seconds: float
    ) -> tuple[JobEnding, bytes]:
        """One job and its result.

        Raises:
            EOFError, ConnectionError: the child ended before its result was whole.
        """
        job: dict[str, Any] = {"function": function, "seconds": seconds}
        sent = b""
        if shared is not None:
            job["shared"] = shared.digest
            if self._shared.find(shared.digest) is None:
                sent, job["sent"] = shared.data, len(shared.data)
                self._shared.keep(shared.digest, b"")
        head = json.dumps(job).encode()
        self._jobs.write(JOB.pack(len(head), len(payload)) + head)
        self._jobs.write(sent)
        self._jobs.write(payload)
        # A child that dies of its memory limit while it reads still has its result in the pipe.
        with contextlib.suppress(ConnectionError):
            await self._jobs.drain()
        ending, length = RESULT.unpack(await self._results.readexactly(RESULT.size))
        return JobEnding(ending), await self._results.readexactly(length)
