"""Lengths of time as tools write them."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*s?", re.ASCII)
# What Go's Duration.String() writes: 1h2m3s, 1m0s, 500ms, 1.5s.
_DURATION: Final = re.compile(
    r"(?=[0-9])(?:([0-9]{1,6})h)?(?:([0-9]{1,9})m(?!s))?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)(m?)s)?", re.ASCII
)


def read_seconds(text: str) -> float | None:
    """A length of time in seconds: `60`, `60s`, `1.5`, `1m0s`, `500ms`; None for anything else."""
    text = text.strip()
    if found := _SECONDS.fullmatch(text):
        return float(found[1])
    if (found := _DURATION.fullmatch(text)) is None:
        return None
    hours, minutes, seconds, milli = found.groups()
    last = float(seconds or 0) / (1000 if milli else 1)
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + last
