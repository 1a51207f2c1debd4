"""HTTP/1.1 connections to an upstream, strict about what they accept. llhttp (`httptools`) parses in `answer.py` only.

    client.py      `Upstream`: send, relay, close
    pool.py        idle connections, the limit, the queue
    connection.py  one exchange at a time on one socket
    answer.py      bytes -> an answer, without a socket        fast_head.py  the same for the usual heads
    wire.py        a request -> bytes                          upload.py     request bodies, piece by piece
    dial.py        TCP, unix sockets, TLS                      tls.py        the context of mTLS or a private CA
    stream.py      answer bodies, piece by piece; tunnels      faults.py     what can fail
    origin.py      an upstream's URL                           alarm.py      timers

tests/contract/test_upstream.py and tests/contract/test_hostile_upstream.py run over it.
"""

from proxy.upstream.http1.answer import AnswerLimits
from proxy.upstream.http1.client import Http1Upstream
from proxy.upstream.http1.stream import AnswerStream, Tunnel
from proxy.upstream.http1.tls import make_client_context

__all__ = ["AnswerLimits", "AnswerStream", "Http1Upstream", "Tunnel", "make_client_context"]
