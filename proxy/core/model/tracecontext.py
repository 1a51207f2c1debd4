"""Reads and writes the header `traceparent` (W3C Trace Context, level 1 with the random flag of level 2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Section 3.2: version, trace id, parent id, flags. Version ff and ids made of zeros alone are invalid. Version 00 ends
# after the flags; a later version may continue behind another dash.
_IDS: Final = r"((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})"
_TRACEPARENT: Final = re.compile(f"00-{_IDS}")
_OF_A_LATER_VERSION: Final = re.compile(f"(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-.*)?")
SAMPLED: Final = 0x01
# The flag says that the trace id's last 7 bytes are random. A participant that continues the trace keeps the flag
# (level 2, section 3.2.2.5).
RANDOM: Final = 0x02


@dataclass(frozen=True, slots=True)
class Parent:
    """The span that sent a request. Its ids are lower-case hexadecimal digits."""

    trace_id: str
    span_id: str
    flags: int


def read(traceparent: str | None) -> Parent | None:
    """The parent that a header names; None where it is missing or malformed."""
    found = _match_version(traceparent) if traceparent else None
    if found is None:
        return None
    trace_id, span_id, flags = found[1].split("-")
    return Parent(trace_id, span_id, int(flags, 16))


def read_trace_id(traceparent: str | None) -> str | None:
    """The trace id alone. Most calls need nothing else of the header."""
    return traceparent[3:35] if traceparent and _match_version(traceparent) else None


def _match_version(traceparent: str) -> re.Match[str] | None:
    """A match whose first group holds what version 00 defines behind the version number, or None."""
    return _TRACEPARENT.fullmatch(traceparent) or _OF_A_LATER_VERSION.fullmatch(traceparent)


def write_traceparent(trace_id: str, span_id: str, flags: int) -> str:
    """The header of a request that a span sends."""
    return f"00-{trace_id}-{span_id}-{flags:02x}"
