"""Judges signed tokens: their signature by PyJWT and cryptography, their claims by the config and the proxy's clock.

A token does not choose its algorithm: a key of the issuer is bound to the algorithms that the config names and its type
allows, and a token has to be signed by one of these. An accepted token is remembered until it expires or the keys of
its issuer change, so that its next use costs a hash.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from typing import Any, Final

import jwt
from jwt import PyJWK

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.extensions.access.core.settings import IssuerSettings
from proxy.extensions.access.tokens.issuer_keys import IssuerKeys
from proxy.extensions.access.tokens.verdicts import Judgement, KeysUnavailable, TokenAccepted, TokenRefused
from proxy.interfaces import Clock

# The longest token that is read, in characters; an HTTP head has no room for a much longer one.
MAX_TOKEN: Final = 12 * 1024
# The most tokens that are remembered, the least recently used go first.
_MOST_KNOWN: Final = 10_000
_OPTIONS: Final[Any] = {
    # The proxy's clock decides about times, below.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_signature": True,
    "enforce_minimum_key_length": True,
}
_UNVERIFIED: Final[Any] = {**_OPTIONS, "verify_signature": False}


@value_class
class _Known:
    accepted: TokenAccepted
    ends: float
    begins: float
    generation: int


class SignedTokens:
    """Judges the tokens of all issuers of a config. `keys` has those of each, by its name."""

    def __init__(self, issuers: Mapping[str, IssuerSettings], keys: Mapping[str, IssuerKeys], clock: Clock) -> None:
        self._issuers = issuers
        self._keys = keys
        self._clock = clock
        self._by_name = {each.issuer: each for each in issuers.values()}
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def judge(self, token: str) -> Judgement | Awaitable[Judgement]:
        """Whether a token counts. Waits where its issuer's keys have to be fetched first."""
        if len(token) > MAX_TOKEN:
            return TokenRefused("the token is too long")
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(digest)
        if known is not None:
            keys = self._keys[known.accepted.issuer]
            keys.refresh_if_old()
            if known.generation == keys.generation:
                self._known.move_to_end(digest)
                return self._check_times(known)
        found = self._find_key(token)
        if isinstance(found, TokenRefused):
            return found
        issuer, key_id, algorithm = found
        key = self._keys[issuer.name].find(key_id, algorithm)
        if isinstance(key, Awaitable):
            return self._judge_later(token, digest, issuer, key)
        return self._judge_by(token, digest, issuer, key)

    async def _judge_later(
        self, token: str, digest: bytes, issuer: IssuerSettings, key: Awaitable[PyJWK | KeysUnavailable | None]
    ) -> Judgement:
        return self._judge_by(token, digest, issuer, await key)

    def _find_key(self, token: str) -> tuple[IssuerSettings, str | None, str] | TokenRefused:
        """The issuer that a token claims, and the id and algorithm of its key, before any of it is verified."""
        try:
            read = jwt.decode_complete(token, options=_UNVERIFIED)
        except (jwt.InvalidTokenError, UnicodeError, ValueError, RecursionError):
            return TokenRefused("the token is malformed")
        header, claims = read["header"], read["payload"]
        issuer = self._by_name.get(named) if isinstance(named := claims.get("iss"), str) else None
        if issuer is None:
            return TokenRefused("the issuer is not known here")
        if "crit" in header:  # RFC 7515 section 4.1.11: no extension is understood here
            return TokenRefused("the token has a critical extension")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
            return TokenRefused("the algorithm is not allowed")
        return issuer, key_id if isinstance(key_id, str) else None, algorithm

    def _judge_by(
        self, token: str, digest: bytes, issuer: IssuerSettings, key: PyJWK | KeysUnavailable | None
    ) -> Judgement:
        if isinstance(key, KeysUnavailable):
            return key
        if key is None:
            return TokenRefused("the key is not known here")
        generation = self._keys[issuer.name].generation
        required = ["exp", "iss", "aud", *issuer.required]
        options: Any = {**_OPTIONS, "require": required}
        try:
            claims = jwt.decode(
                token, key, [key.algorithm_name], options, audience=issuer.audience, issuer=issuer.issuer
            )
        except jwt.MissingRequiredClaimError as error:
            return TokenRefused(f"the claim {error.claim!r} is missing")
        except jwt.InvalidAudienceError:
            return TokenRefused("the audience is another one")
        except (jwt.InvalidTokenError, jwt.PyJWTError, UnicodeError, ValueError, RecursionError):
            return TokenRefused("the signature or a claim is not valid")
        ends, begins = _read_time(claims["exp"]), _read_time(claims.get("nbf", 0))
        if ends is None or begins is None:
            return TokenRefused("a time in the token is not a number")
        known = _Known(TokenAccepted(issuer.name, claims), ends, begins, generation)
        judged = self._check_times(known)
        if isinstance(judged, TokenAccepted):
            self._known[digest] = known
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return judged

    def _check_times(self, known: _Known) -> TokenAccepted | TokenRefused:
        now, leeway = self._clock.wall(), self._issuers[known.accepted.issuer].leeway
        if now >= known.ends + leeway:
            return TokenRefused("the token has expired")
        if now < known.begins - leeway:
            return TokenRefused("the token is not valid yet")
        return known.accepted


def _read_time(value: JsonValue) -> float | None:
    """A NumericDate (RFC 7519 section 2); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) < 1e15 else None  # neither infinite nor NaN
