"""The loggers of asyncio and aiohttp write to the proxy's own log."""

from __future__ import annotations

import logging
from typing import Final

from proxy.telemetry.logs import Log, list_frames

# The root loggers of the libraries that run on the event loop.
LOGGERS: Final = ("asyncio", "aiohttp")
MESSAGE: Final = "Library message"


class LibraryLog(logging.Handler):
    """A handler of `logging` that writes to a `Log`, from `attach` to `detach`.

    Without a handler Python's `logging` writes records to stderr itself, on the event loop, where a full pipe stops all
    calls. A record's text may quote a value (the bytes of a request, the repr of a task), so the line has the logger,
    the place and the type of the exception, and not the text.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def attach(self) -> None:
        """Begins to receive the records of LOGGERS."""
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        """Ends what `attach` began. A second call has no effect."""
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line of one record."""
        fields: dict[str, object] = {
            "logger": record.name,
            "place": f"{record.pathname}:{record.lineno} {record.funcName}",
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields |= {"error": type(error).__name__, "frames": list_frames(error)}
        self._log.event(MESSAGE, "error" if record.levelno >= logging.ERROR else "warning", **fields)
