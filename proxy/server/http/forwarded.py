"""The `Forwarded` field (RFC 7239): who asked whom before a request came here. Pure.

Only what a trusted hop sends is read, and only then is our own element put behind it; of everybody else the field ends
here (`headers.py`). Where no hop uses it none is made: `X-Forwarded-*` says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# RFC 9110 section 5.6.2: a token. Whatever is none stands in quotes.
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# RFC 7239 section 4: elements parted by commas, pairs parted by semicolons, each value a token or quoted.
# Read pair by pair, so that what stands in quotes is never taken for a pair of its own.
_PAIR: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]++)=(\"(?:[^\"\\]|\\.)*+\"|[^\",; \t]*+)")
_FIELD: Final = re.compile(rf"(?:{_PAIR.pattern}|[,; \t])*+")
# RFC 7239 section 6: an address with or without a port; IPv6 in brackets.
_NODE: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+)(?::[0-9]+)?")


def list_addresses(fields: Iterable[str]) -> list[str]:
    """The addresses that `Forwarded` fields name, in their order; '' for an `unknown`, a name made up by a hop, and a
    field that cannot be read to its end: a quote left open in it would hide what a hop has put behind."""
    found: list[str] = []
    for field in fields:
        whole = _FIELD.fullmatch(field) is not None
        found += [pair[2].strip('"') for pair in _PAIR.finditer(field) if pair[1].lower() == "for"] if whole else [""]
    return [(node[1] or node[2]) if (node := _NODE.fullmatch(text)) else "" for text in found]


def extend_forwarded(fields: Iterable[str], peer: str, scheme: str, host: str) -> str:
    """The field with our own element behind: `peer` asked us ('' for a unix socket), for `host`, over `scheme`."""
    node = f"[{peer}]" if ":" in peer else peer or "unknown"
    pairs = [("for", node), ("host", host), ("proto", scheme)]
    own = ";".join(f"{name}={_value(value)}" for name, value in pairs if value)
    return ", ".join((*fields, own))


def _value(text: str) -> str:
    if _TOKEN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
