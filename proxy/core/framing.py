"""The header fields of one connection and of one message's framing: no hop hands them on. Pure.

Whoever sends, takes over headers from a config, or lets headers cross the proxy asks here.
"""

from __future__ import annotations

from typing import Final

# RFC 9110 section 7.6.1, RFC 9112 section 6, and the older spellings still on the wire.
OF_THE_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
# What the sender of a message writes himself: how it is framed, and to whom it goes.
OF_THE_SENDER: Final = OF_THE_CONNECTION | {"content-length", "host"}
