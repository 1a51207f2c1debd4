"""Header fields that belong to one connection, or to the framing of one message. A proxy does not forward them.

They are left out of what is sent, of headers taken from a config, and of headers copied from one side to the other.
"""

from __future__ import annotations

from typing import Final

# RFC 9110 section 7.6.1, RFC 9112 section 6, and the older spellings still on the wire.
OF_THE_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
# The sender of a message writes these fields itself: they say how the message is framed, and where it goes.
OF_THE_SENDER: Final = OF_THE_CONNECTION | {"content-length", "host"}
