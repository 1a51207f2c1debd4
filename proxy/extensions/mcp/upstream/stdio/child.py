"""One child process: its settings, its start without a shell in its own process group, and its end.

It ends as the specification says ("stdio", "Shutdown"): its stdin is closed, then SIGTERM, then SIGKILL. Signals go to
the whole group, because `npx` and `uvx` start further processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from proxy.core.display.secrets import mask_credentials
from proxy.core.model.value_class import value_class
from proxy.extensions.mcp.upstream.stdio.reaper import Reaper, end_group


@value_class
class StdioSettings:
    """One command. Times in seconds, sizes in bytes.

    `command` is the program and its arguments, never a shell line; `environment` is the child's whole environment. At
    most `max_children` run at a time; a child whose session was idle for `idle` seconds is ended. With `shared` all
    sessions use one child. With `single_client` the only client reads every message. The shared child starts at most
    `restarts` times within `restart_window` seconds. `line` is the longest message. `stderr` receives each line of the
    child's stderr with the child's process id, `lost` that id for each answer that belongs to no request, and why.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    max_children: int = 16
    idle: float = 1800.0
    shared: bool = False
    single_client: bool = False
    restarts: int = 5
    restart_window: float = 60.0
    start_timeout: float = 30.0
    line: int = 64 * 1024 * 1024
    stderr: Callable[[int, str], None] = lambda pid, line: None  # noqa: ARG005
    lost: Callable[[int, str], None] = lambda pid, why: None  # noqa: ARG005


# Seconds that a child has to end by itself after its stdin closes, and again after SIGTERM.
_PATIENCE: Final = 2.0
# The longest line of stderr that is reported, and the longest that is quoted in an error; a longer one is cut.
_STDERR_LINE: Final = 2000
_QUOTED: Final = 200
_LAST_LINES: Final = 8
# The lines around the reason in the output of a failed program: frames of its stack, and Node's version.
_FRAME: Final = re.compile(r"\s|Node\.js v|[~^]+$|Traceback ")
_PIECE: Final = 1 << 16


class Child:
    """A running process with three pipes. Made by `start`."""

    def __init__(self, process: Process, settings: StdioSettings, reaper: Reaper) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("a child is started with three pipes")
        self.pid = process.pid
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._reaper = reaper
        self._line = settings.line
        self._last_words = ""
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._stderr = asyncio.ensure_future(self._read_stderr(process.stderr, settings))
        self._ending: asyncio.Future[int] | None = None

    @classmethod
    async def start(cls, settings: StdioSettings, reaper: Reaper) -> Child:
        """Starts the command.

        Raises:
                OSError: the program does not exist, or may not be run.
        """
        process = await asyncio.create_subprocess_exec(
            *settings.command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(settings.environment),
            cwd=settings.cwd,
            start_new_session=True,
            limit=_PIECE,
        )
        child = cls(process, settings, reaper)
        try:
            await reaper.add(process.pid)
        except BaseException:
            end_group(process.pid, signal.SIGKILL)
            raise
        return child

    @property
    def exit_code(self) -> int | None:
        """Returns the exit code; negative for a signal, None while the child runs."""
        return self._process.returncode

    @property
    def last_words(self) -> str:
        """The last line of stderr with content, credentials masked; '' without one."""
        return mask_credentials(self._last_words, _QUOTED)

    @property
    def last_lines(self) -> list[str]:
        """Returns the last lines of stderr, credentials masked."""
        return [mask_credentials(line, _QUOTED) for line in self._last_lines]

    @property
    def is_reading(self) -> bool:
        """Returns whether a further message can be written without waiting."""
        stdin = self._stdin.transport
        return not stdin.is_closing() and stdin.get_write_buffer_size() < _PIECE

    async def drain(self) -> None:
        """Waits until the child has read enough. Raises ConnectionError if it no longer reads."""
        await self._stdin.drain()

    def write_soon(self, message: bytes) -> None:
        """Queues one message, which has no line break, for the child without waiting until it reads."""
        if not self._stdin.is_closing():
            self._stdin.write(message + b"\n")

    async def read(self) -> bytes | None:
        """The next line without its end; None at the end of output, or where a line exceeds the limit of a message."""
        pieces: list[bytes] = []
        size = 0
        while True:
            try:
                pieces.append((await self._stdout.readuntil(b"\n")).rstrip())
                return b"".join(pieces).lstrip()
            except asyncio.LimitOverrunError as overrun:
                pieces.append(await self._stdout.readexactly(max(overrun.consumed, 1)))
            except asyncio.IncompleteReadError as rest:
                pieces.append(rest.partial)
                return b"".join(pieces).strip() or None
            size += len(pieces[-1])
            if size > self._line:
                return None

    async def end(self) -> int:
        """Ends the process and everything it has started; gives its exit code."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return await asyncio.shield(self._ending)

    async def _end(self) -> int:
        self._stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                end_group(self.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(self._process.wait())), _PATIENCE)
                break
        end_group(self.pid, signal.SIGKILL)  # processes of its group that outlived it
        code = await self._process.wait()
        self._reaper.remove(self.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stderr, _PATIENCE)
        return code

    async def _read_stderr(self, stderr: asyncio.StreamReader, settings: StdioSettings) -> None:
        rest = b""
        while data := await stderr.read(_PIECE):
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:_STDERR_LINE]
            for line in lines:
                self._note_stderr(line[:_STDERR_LINE], settings)
        if rest:
            self._note_stderr(rest, settings)

    def _note_stderr(self, line: bytes, settings: StdioSettings) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        if text and not _FRAME.match(text):
            self._last_words = text
        self._last_lines.append(text)
        settings.stderr(self.pid, text)
