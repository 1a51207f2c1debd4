"""Sends checked calls, and relays requests that are not calls.

`http1/` connects to an upstream. `sending.py` sends calls through its guard (circuit breaker, concurrency limit, resend
budget), and again if that is allowed. `faults.py` lists what can fail, streamed answers included.
Every `Upstream` passes tests/contract/test_upstream.py.
"""

from proxy.upstream.faults import ReplyBroken
from proxy.upstream.http1.dial import UpstreamSettings
from proxy.upstream.sending import UpstreamGuard

__all__ = ["ReplyBroken", "UpstreamGuard", "UpstreamSettings"]
