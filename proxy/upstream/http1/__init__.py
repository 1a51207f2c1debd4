"""HTTP/1.1 connections to an upstream, strict about what they accept. llhttp (`httptools`) parses in `messages.py`
only.

    client.py      `Upstream`: send, relay, close; idle connections, their limit, the queue
    connection.py  one exchange at a time on one socket
    messages.py    a request as bytes, and bytes as an answer, without a socket
    dial.py        an upstream's settings and URL; TCP, unix sockets, TLS
    stream.py      bodies piece by piece: answers, uploads, tunnels

tests/contract/test_upstream.py and tests/contract/test_hostile_upstream.py run over it.
"""

from proxy.upstream.http1.client import Http1Upstream
from proxy.upstream.http1.dial import make_client_context
from proxy.upstream.http1.messages import AnswerLimits
from proxy.upstream.http1.stream import AnswerStream, Tunnel

__all__ = ["AnswerLimits", "AnswerStream", "Http1Upstream", "Tunnel", "make_client_context"]
