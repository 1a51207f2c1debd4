"""The data of server-sent events (WHATWG HTML, "Interpreting an event stream")."""

from __future__ import annotations

from collections.abc import Iterator


def read_events(body: bytes) -> Iterator[bytes]:
    """The data of every complete server-sent event (WHATWG HTML, "Interpreting an event stream")."""
    whole = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in whole.split(b"\n\n")[:-1]:
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if any(lines):
            yield b"\n".join(lines)
