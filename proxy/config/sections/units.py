"""Reads times, sizes and switches as a config spells them. The published schema has checked the values."""

from __future__ import annotations

import math
import re
from typing import Final

from proxy.config.files.secrets import reveal
from proxy.core.json.jsontext import make_decimal
from proxy.core.model.values import JsonValue

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {
    "B": 1, "kB": 1000, "KiB": 1024, "MB": 1000**2, "MiB": 1024**2, "GB": 1000**3, "GiB": 1024**3,
}  # fmt: skip
_AMOUNT = re.compile(r"([0-9.]+)([A-Za-z]+)")


def read_seconds(value: JsonValue) -> float:
    """`500ms`, `30s`, `5m`, `2h`, or a number of seconds."""
    if isinstance(value, str) and (found := _AMOUNT.fullmatch(reveal(value))):
        return float(found[1]) * _SECONDS[found[2]]
    return float(make_decimal(value))


def read_time_limit(value: JsonValue) -> float:
    """A time as `read_seconds` reads it; endless for `off`."""
    return math.inf if isinstance(value, str) and reveal(value) == "off" else read_seconds(value)


def read_size(value: JsonValue) -> int:
    """`512KiB`, `1MiB`, or a number of bytes."""
    if isinstance(value, str) and (found := _AMOUNT.fullmatch(reveal(value))):
        return int(found[1]) * _BYTES[found[2]]
    return int(make_decimal(value))


def read_switch(value: JsonValue) -> bool:
    """`on` and true, `off` and false."""
    return value is True or value == "on"
