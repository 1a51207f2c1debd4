"""Sends checked calls, and relays requests that are not calls.

`http1/` connects to an upstream; `guarded.py` stands in front of each with its circuit breaker, concurrency limit and
resend budget. `resending.py` sends a call again where that is allowed. `faults.py` lists what can fail, streamed
answers included.
Every `Upstream` passes tests/contract/test_upstream.py.
"""

from proxy.upstream.faults import ReplyBroken
from proxy.upstream.guarded import UpstreamGuard
from proxy.upstream.http1.dial import UpstreamSettings

__all__ = ["ReplyBroken", "UpstreamGuard", "UpstreamSettings"]
