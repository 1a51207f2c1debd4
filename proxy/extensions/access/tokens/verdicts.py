"""What is found out about a token. Needs no library, so a route without signed tokens needs none either."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue


@value_class
class TokenRefused:
    """Why a token does not count: the client's `error_description` (RFC 6750 section 3), without a part of the
    token."""

    reason: str


@value_class
class TokenAccepted:
    """A token that counts: its issuer's name in the config, and its claims."""

    issuer: str
    claims: Mapping[str, JsonValue]


@value_class
class KeysUnavailable:
    """An issuer's keys cannot be fetched now: `seconds` until they are asked for again."""

    seconds: float


Judgement = TokenAccepted | TokenRefused | KeysUnavailable
