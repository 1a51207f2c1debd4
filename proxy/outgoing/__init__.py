"""Requests of the proxy's own, which are no calls: descriptions to import, a model endpoint, webhooks.

    session     `OutgoingClient`: one server, asked over aiohttp's client within bounds of time and size, and what can
                go wrong, from aiohttp's exceptions to an `UpstreamFault`
    webhook     `post_json`: one value to one address

A checked call never goes out here. Whether it may be sent again depends on whether a byte of it went out, and only the
connection in `proxy/upstream/http1/` knows that.
"""

from proxy.outgoing.session import OutgoingClient
from proxy.outgoing.webhook import post_json

__all__ = ["OutgoingClient", "post_json"]
