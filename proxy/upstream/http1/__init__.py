"""Our own HTTP/1.1 connection to an upstream, lean and strict. httptools (llhttp) is used in `answer.py` alone.

    client.py      `Upstream`: send, relay, close
    pool.py        which connection; the limit; the queue
    connection.py  one exchange at a time on one socket
    answer.py      bytes -> an answer, without a socket        wire.py     a request -> bytes
    dial.py        TCP, unix sockets, TLS                      tls.py      the context of mTLS or a CA of one's own
    stream.py      bodies piece by piece; tunnels              upload.py   request bodies piece by piece
    faults.py      what can go wrong                           origin.py   an upstream's URL        alarm.py  timers

It passes tests/contract/test_upstream.py and tests/contract/test_hostile_upstream.py.
"""

from proxy.upstream.http1.answer import AnswerLimits
from proxy.upstream.http1.client import Http1Upstream
from proxy.upstream.http1.stream import AnswerStream, Tunnel
from proxy.upstream.http1.tls import client_context

__all__ = ["AnswerLimits", "AnswerStream", "Http1Upstream", "Tunnel", "client_context"]
