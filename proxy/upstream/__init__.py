"""Sends checked calls, and relays what is no call, to the upstreams. The only room that knows aiohttp's client.

`client.py` is the connection, `faults.py` the table that turns its exceptions into `UpstreamFault`s, `stream.py`
the body of an answer that is not kept in memory. `guarded.py` stands in front of each, with breaker, bound and budget
(`turnstile.py` is its queue); `resending.py` sends a call again where that is allowed. Every implementation of
`Upstream` passes tests/contract/test_upstream.py.
"""

from proxy.upstream.client import AiohttpUpstream, UpstreamSettings
from proxy.upstream.guarded import Guarded
from proxy.upstream.stream import ReplyBroken

__all__ = ["AiohttpUpstream", "Guarded", "ReplyBroken", "UpstreamSettings"]
