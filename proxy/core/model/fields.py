"""The header fields of a message: names and values, in their order. `Fields` also finds them by name.

Fields that belong to one connection, or to the framing of one message, are not forwarded: they are left out of what is
sent, of headers taken from a config, and of headers copied from one side to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

Headers = tuple[tuple[str, str], ...]
# Names of header fields as they were sent, each with its raw value.
SentNames = Sequence[tuple[bytes, bytes]]
# RFC 9110 section 7.6.1, RFC 9112 section 6, and the older spellings still on the wire.
OF_THE_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
# The sender of a message writes these fields itself: they say how the message is framed, and where it goes.
OF_THE_SENDER: Final = OF_THE_CONNECTION | {"content-length", "host"}


class Fields(tuple[tuple[str, str], ...]):
    """`Headers` of one request, with an index by name (lower case) that is built at the first question. `sent_names`
    are the names as the client spelled them, for the upstream; empty where they are not known."""

    sent_names: SentNames = ()

    @classmethod
    def with_index(cls, fields: Iterable[tuple[str, str]], index: Mapping[str, str]) -> Fields:
        """Fields with an index (lower-case name -> first value) that the reader of the message has already built."""
        made = cls(fields)
        made.by_name = index
        # One call looks up about a dozen fields, so `get` is the index's own method.
        made.get = index.get  # type: ignore[assignment, method-assign]
        return made

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Name -> first value."""
        return dict(reversed(self))  # reversed, so that the first of several fields with one name wins

    def get(self, name: str) -> str | None:
        """The first value of a field (`name` in lower case), or None."""
        return self.by_name.get(name)
