"""The header fields of a message: names and values, in their order. `Fields` also finds them by name.

Fields that belong to one connection, or to the framing of one message, are not forwarded. They are left out of sent
messages, of headers taken from a config, and of headers copied from one side to the other.

The lengths of time that `Retry-After` and tools' own words give are read here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, Final

Headers = tuple[tuple[str, str], ...]
# RFC 9110 section 7.6.1, RFC 9112 section 6, and the older spellings still on the wire.
OF_THE_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
# The sender of a message writes these fields itself: they say how the message is framed, and where it goes.
OF_THE_SENDER: Final = OF_THE_CONNECTION | {"content-length", "host"}


class FieldNames:
    """The names of a request's fields, in their order: `lower` in lower case, `spellings` as the client wrote each.

    The requests of a client have the same names, so one `FieldNames` serves all of them, and facts that depend only on
    names are computed once. `memos` holds these, each file under its own key. `is_unique`: each name is there once.
    `is_shared`: more requests with these names are expected, so the object may be a key in memory that outlives a
    request. `method_override`: the field that asks for another method, or ''.
    """

    __slots__ = ("is_shared", "is_unique", "lower", "memos", "method_override", "spellings")

    def __init__(self, names: Iterable[str], *, is_shared: bool = False) -> None:
        sent = tuple(names)
        self.lower = tuple(name.lower() for name in sent)
        self.spellings: Mapping[str, str] = dict(zip(self.lower, sent, strict=True))
        self.is_unique = len(self.spellings) == len(sent)
        self.is_shared = is_shared
        self.memos: dict[object, Any] = {}
        self.method_override = ""


NO_NAMES: Final = FieldNames((), is_shared=True)


class Fields(tuple[tuple[str, str], ...]):
    """`Headers` with an index by name (lower case), built on first use. `names`: those of a client, else `NO_NAMES`."""

    names = NO_NAMES

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Name -> first value."""
        return dict(reversed(self))  # reversed, so that the first of several fields with one name wins

    def get(self, name: str) -> str | None:
        """The first value of a field (`name` in lower case), or None."""
        return self.by_name.get(name)


_OF_A_NAME: Final = re.compile(r"[^0-9a-z]")


def fold_header(name: str) -> str:
    """A header's name as gateways of CGI's kind read it (RFC 3875 section 4.1.18): `X_Lim`, `X.Lim` are `X-Lim`."""
    return _OF_A_NAME.sub("_", name.lower())


# --- bearer tokens ----------------------------------------------------------------------------------------------------
_BEARER: Final = "bearer "


class NoBearer(Enum):
    """The reason why a request has no bearer token, in words for its sender."""

    ABSENT = "This route asks for a bearer token."
    MALFORMED = "This route asks for one bearer token."


def read_bearer(headers: Headers) -> str | NoBearer:
    """The bearer token of a request (RFC 6750 section 2.1: in the header, never in the query or the body)."""
    sent = [value for name, value in headers if name == "authorization"]
    if not sent:
        return NoBearer.ABSENT
    if len(sent) > 1 or not sent[0].lower().startswith(_BEARER):
        return NoBearer.MALFORMED
    return sent[0][len(_BEARER) :].strip(" ")


# --- lengths of time --------------------------------------------------------------------------------------------------
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
