"""A JSON head followed by bytes: the format in which jobs and their results pass to child processes and back."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.values import JsonValue

_LENGTH: Final = Struct(">I")
# The data was made by this program, or was already read within the limits of its own source.
TRUSTED: Final = TextLimits(depth=1000, nodes=20_000_000)


def join_frame(head: JsonValue, tail: bytes = b"") -> bytes:
    """Joins a JSON head and the bytes behind it."""
    text = dumps(head)
    return b"".join((_LENGTH.pack(len(text)), text, tail))


def split_frame(data: bytes) -> tuple[Any, bytes]:
    """Splits what `join_frame` joined into head and tail."""
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return parse(data[_LENGTH.size : end], TRUSTED), data[end:]
