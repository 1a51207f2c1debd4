"""One driver for a call. The steps of a call are one coroutine, which runs without a task while nothing has to wait.

    Driver     begins a coroutine as a plain call, and hands it to a task at the first wait
    Signal     an event that the driver itself can wait for, without a turn of the event loop
    sleep      waits for some time, without a task too
    IN_TASK    awaited by a step before it calls code that needs an asyncio task, such as `asyncio.timeout`

In a task, awaiting a `Signal` is like awaiting a future, and `IN_TASK` does nothing. So the same coroutine also runs in
a task from its beginning.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, TypeVar

Result = TypeVar("Result")


# Threads in which a driver runs a coroutine now. The current asyncio task does not tell: another one may set a signal.
_driving: Final[set[int]] = set()


class Signal:
    """An event that happens once. One coroutine awaits it."""

    __slots__ = ("hear", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.hear: Callable[[], object] | None = None
        """Called when the signal is set."""

    def set(self) -> None:
        """Resumes the waiting coroutine at once."""
        self.is_set = True
        hear, self.hear = self.hear, None
        if hear is not None:
            hear()

    def __await__(self) -> Generator[Any, None, None]:
        if self.is_set:
            return
        if get_ident() in _driving:
            yield self
            return
        ready = asyncio.get_running_loop().create_future()
        self.hear = partial(_settle, ready)
        yield from ready


async def sleep(seconds: float) -> None:
    """Waits as `asyncio.sleep` does, and needs no task."""
    over = Signal()
    timer = asyncio.get_running_loop().call_later(seconds, over.set)
    try:
        await over
    finally:
        timer.cancel()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _InTask:
    """Waits for a task, if there is none yet."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        if get_ident() in _driving:
            yield self


IN_TASK: Final = _InTask()


async def run_in_task(steps: Awaitable[Result]) -> Result:
    """Awaits something in a task. Closes a coroutine that never gets one."""
    try:
        await IN_TASK
    except BaseException:
        if isinstance(steps, Coroutine):
            steps.close()
        raise
    return await steps


class Later(Generic[Result]):
    """A coroutine that is made once it is awaited: one that never is leaves nothing to close."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, Result]:
        return self._make().__await__()


class Driver(Generic[Result]):
    """Drives one coroutine. `drive` begins it, and each `Signal` that it waits for resumes it. `go_on` ends it in a
    task. `on_advance` is called when it has ended, or waits for anything but a signal."""

    __slots__ = ("_error", "_steps", "_waiting", "result")

    def __init__(self, steps: Coroutine[Any, Any, Result]) -> None:
        self._steps: Coroutine[Any, Any, Result] | None = steps
        self._waiting: object = IN_TASK
        self._error: BaseException | None = None
        self.result: Result | None = None
        """The coroutine's return value; None as long as it runs, and if it raised."""

    def drive(self, error: BaseException | None = None) -> None:
        """Runs the coroutine until it ends or has to wait; `error` is raised where it waits now."""
        steps, waited = self._steps, self._waiting
        if steps is None:
            return
        if error is not None and type(waited) is Signal:
            waited.hear = None
        here = get_ident()
        is_nested = here in _driving
        _driving.add(here)
        try:
            waiting = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as ended:
            self._steps, self.result = None, ended.value
        except BaseException as failed:  # noqa: BLE001 - raised by `go_on`
            self._steps, self._error = None, failed
        else:
            self._waiting = waiting
            if type(waiting) is Signal:
                waiting.hear = self.drive
                return
        finally:
            error = None  # its traceback has this frame
            if not is_nested:
                _driving.discard(here)
        self.on_advance()

    def abandon(self) -> None:
        """Ends the coroutine where it waits. Nobody asks for its result: an error, whose traceback leads back here,
        is not kept."""
        self.drive(asyncio.CancelledError())
        self._error = None

    def on_advance(self) -> None:
        """Called when the coroutine has ended, or a task has to go on with it."""

    @types.coroutine
    def go_on(self) -> Generator[Any, Any, Result]:
        """The result of the coroutine, in a task. Raises what it raises."""
        steps, waiting, failed = self._steps, self._waiting, self._error
        self._steps = self._error = None
        if steps is None:
            try:
                if failed is not None:
                    raise failed
            finally:
                failed = None  # its traceback has this frame
            return self.result  # type: ignore[return-value]  # it has ended
        while True:
            try:
                if type(waiting) is Signal:
                    yield from waiting.__await__()
                elif waiting is not IN_TASK:
                    yield waiting  # a future, as asyncio's task wants it
            except BaseException as error:  # noqa: BLE001 - the coroutine gets it, also the end of the task
                try:
                    waiting = steps.throw(error)
                except StopIteration as ended:
                    result: Result = ended.value
                    return result
            else:
                final: Result = yield from steps
                return final
