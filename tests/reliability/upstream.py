"""A tool in its own process. It validates each call that reaches it once more, by hand and not by a schema, and writes
it down before it answers with the very body of the call. `kill -9` loses nothing of the book.

    python -m tests.reliability.upstream PORT BOOK
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from tests.serving.wire import JSON_TYPE, Seen, answer, read_message

LARGE: Final = b"0123456789abcdef" * 65536  # 1 MiB, for clients that read slowly


def is_valid(value: Any) -> bool:
    """Returns whether a call is one the tool may get, whichever version of its schema is served."""
    if not isinstance(value, dict) or not {"lat", "id"} <= value.keys() <= {"lat", "lon", "days", "id"}:
        return False
    numbers = all(_is_number(value[key]) for key in ("lat", "lon") if key in value)
    days = value.get("days", 1)
    return numbers and isinstance(days, int) and not isinstance(days, bool) and 1 <= days <= 7 and _is_text(value["id"])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -180 <= value <= 180


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class Tool:
    """Answers connections and keeps the book: one line for each call, `ok ID` or `INVALID BODY`."""

    def __init__(self, book: Path) -> None:
        self._book = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                seen = await read_message(reader)
                writer.write(self._answer(seen))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, seen: Seen) -> bytes:
        if seen.start.startswith("GET"):
            return answer("200 OK", LARGE, "Content-Type: application/octet-stream")
        try:
            value = json.loads(seen.body)
        except ValueError:
            value = None
        line = f"ok {value['id']}\n".encode() if is_valid(value) else b"INVALID %b\n" % seen.body[:200]
        os.write(self._book, line)
        return answer("200 OK", seen.body, JSON_TYPE)


async def _main(port: int, book: Path) -> None:
    tool = Tool(book)
    server = await asyncio.start_server(tool.serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), Path(sys.argv[2])))
