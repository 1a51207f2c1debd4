"""The lines of heads, each read once: a field's line -> its name in lower case and its value. Pure.

Clients send the same lines with every request. Those of `_REPEATED` are remembered, so that reading one again costs one
look-up; what a line means depends on its bytes alone. Credentials, cookies and whatever a client makes up are never
kept: only fields by whose names it is known that they hold none.
"""

from __future__ import annotations

from typing import Final

_REPEATED: Final = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection",
        "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "mcp-protocol-version",
        "pragma", "te", "transfer-encoding", "upgrade", "user-agent", "x-forwarded-port", "x-forwarded-proto",
    }
)  # fmt: skip
# So a stranger can make us keep a quarter of a megabyte and no more.
_MOST: Final = 1024
_LONGEST: Final = 256


class FieldLines(dict[bytes, tuple[str, str]]):
    """Lines that are known: each is a field (`heads.FIELD`, without its line end). `read` is for those that are not."""

    __slots__ = ()

    def read(self, line: bytes) -> tuple[str, str]:
        """Reads a line. What is no UTF-8 is kept byte by byte (surrogateescape): it goes on as it came."""
        name, _, value = line.decode("utf-8", "surrogateescape").partition(":")
        name = name.lower()
        pair = (name, value.strip(" \t"))
        if name in _REPEATED and len(line) <= _LONGEST:
            if len(self) >= _MOST:  # all at once: who comes again is read again, once
                self.clear()
            self[line] = pair
        return pair
