"""The signature of a webhook, by which its receiver knows who sent it (Standard Webhooks, "Signature scheme")."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode

from proxy.core.model.values import Headers

_PREFIX = "whsec_"


def read_key(secret: str) -> bytes:
    """The bytes a secret stands for: base64 behind `whsec_`, else the text itself."""
    if secret.startswith(_PREFIX):
        try:
            return b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def sign_headers(key: bytes, message_id: str, wall: float, body: bytes) -> Headers:
    """`webhook-id`, `webhook-timestamp` and `webhook-signature` of a body; `wall` in Unix seconds."""
    timestamp = str(int(wall))
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return (
        ("webhook-id", message_id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", "v1," + b64encode(signed).decode()),
    )
