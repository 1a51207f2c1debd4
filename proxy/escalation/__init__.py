"""Somebody to escalate to: each escalation goes to a webhook, signed, without any call waiting for it.

    notice      what is told, as one JSON value
    signing     the headers of Standard Webhooks (https://www.standardwebhooks.com)
    delivery    a bounded queue, one post after the other, retried with backoff

How a post is made comes from outside (`Post`): `proxy/outgoing/` makes it.
"""

from proxy.escalation.delivery import Delivery, Post
from proxy.escalation.notice import make_notice

__all__ = ["Delivery", "Post", "make_notice"]
