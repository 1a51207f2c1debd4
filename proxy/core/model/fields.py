"""The header fields of a message: names and values, in their order. `Fields` also finds them by name.

Fields that belong to one connection, or to the framing of one message, are not forwarded: they are left out of what is
sent, of headers taken from a config, and of headers copied from one side to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

Headers = tuple[tuple[str, str], ...]
# Names of header fields in lower case -> as they were sent.
Spellings = Mapping[str, str]

NO_SPELLINGS: Final[Spellings] = {}
# RFC 9110 section 7.6.1, RFC 9112 section 6, and the older spellings still on the wire.
OF_THE_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
# The sender of a message writes these fields itself: they say how the message is framed, and where it goes.
OF_THE_SENDER: Final = OF_THE_CONNECTION | {"content-length", "host"}


class FieldNames:
    """The names of a request's fields, in their order: `lower` in lower case, `spellings` as the client wrote them.

    The requests of a client have the same names, so one `FieldNames` serves all of them, and what depends on names
    alone is worked out once: `memos` holds it, under keys of the files that ask. `is_shared`: others of its kind are
    expected, so it may be a key of what is remembered.
    """

    __slots__ = ("is_shared", "is_unique", "lower", "memos", "spellings")

    def __init__(self, names: Iterable[str], *, is_shared: bool = False) -> None:
        sent = tuple(names)
        self.lower = tuple(name.lower() for name in sent)
        self.spellings: Spellings = dict(zip(self.lower, sent, strict=True))
        # Whether each name stands there once.
        self.is_unique = len(self.spellings) == len(sent)
        self.is_shared = is_shared
        self.memos: dict[object, Any] = {}


class Fields(tuple[tuple[str, str], ...]):
    """`Headers` of one request, with an index by name (lower case) that is built at the first question. `names` are
    its names, where it came from a client."""

    names: FieldNames | None = None

    @classmethod
    def with_names(cls, names: FieldNames, values: Iterable[str]) -> Fields:
        """The fields of a request with such names, and these values."""
        made = cls(zip(names.lower, values, strict=True))
        made.names = names
        if names.is_unique:
            made.by_name = dict(made)
        # One call looks up about a dozen fields, so `get` is the index's own method.
        made.get = made.by_name.get  # type: ignore[assignment, method-assign]
        return made

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Name -> first value."""
        return dict(reversed(self))  # reversed, so that the first of several fields with one name wins

    def get(self, name: str) -> str | None:
        """The first value of a field (`name` in lower case), or None."""
        return self.by_name.get(name)
