"""Sends checked calls, and relays what is no call, to the upstreams.

`http1/` is the connection, made from `settings.py`; `faults.py` the rows every failure is told with, `stream.py` what
all streamed answers share. `guarded.py` stands in front of each upstream, with breaker, bound and budget
(`turnstile.py` is its queue); `resending.py` sends a call again where that is allowed. Every implementation of
`Upstream` passes tests/contract/test_upstream.py.
"""

from proxy.upstream.guarded import Guarded
from proxy.upstream.settings import UpstreamSettings
from proxy.upstream.stream import ReplyBroken

__all__ = ["Guarded", "ReplyBroken", "UpstreamSettings"]
