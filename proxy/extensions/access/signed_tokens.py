"""Validates signed tokens: their signature by PyJWT and cryptography, their claims by the config and the proxy's clock.

A token does not choose its algorithm. A key of the issuer is bound to the algorithms that the config names and its type
allows, and a token has to be signed by one of these. An accepted token is remembered until it expires or the keys of
its issuer change, so that its next use costs a hash.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import jwt
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from proxy.core.json.jsontext import parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.driver import Later
from proxy.extensions.access.core.settings import (
    ALGORITHMS,
    IssuerSettings,
    Judgement,
    KeysUnavailable,
    TokenAccepted,
    TokenRefused,
)
from proxy.interfaces import Clock

# --- the public keys of one issuer (JWKS) -----------------------------------------------------------------------------
# The public keys of one issuer (JWKS, RFC 7517): fetched when first needed, again in the background, and for an
# unknown key id, but at most every `PAUSE` seconds.
#
# Fetched keys count for the issuer's `max_age`. Without any, tokens cannot be judged, and the answer is 503.

# Seconds between two requests for the keys of an issuer.
PAUSE: Final = 10.0
# The most keys of one issuer.
MAX_KEYS: Final = 100
DISCOVERY: Final = "/.well-known/openid-configuration"

# Fetches a document: its URL -> its body, or the reason of the failure.
Fetch = Callable[[str], Awaitable[bytes | str]]


class IssuerKeys:
    """The keys of one issuer. `report` receives the reason when they cannot be fetched, and '' once they can again.

    `generation` grows whenever the keys have changed."""

    def __init__(self, issuer: IssuerSettings, fetch: Fetch, clock: Clock, report: Callable[[str, str], None]) -> None:
        self.generation = 0
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._report = report
        self._keys: dict[tuple[str | None, str], list[PyJWK]] = {}
        self._text = b""
        self._fetched: float | None = None
        self._requested_at: float | None = None
        self._asking: asyncio.Task[None] | None = None

    def find(
        self, key_id: str | None, algorithm: str
    ) -> PyJWK | KeysUnavailable | Awaitable[PyJWK | KeysUnavailable | None] | None:
        """The key of an id for an algorithm; None without one. A token without an id is signed by the only key. Waits
        for keys that have to be fetched."""
        if self._fetched is not None and self._get_age() < self._issuer.max_age:
            self.refresh_if_old()
            found = self._choose(key_id, algorithm)
            if found is not None or not self._may_ask():
                return found
        elif not self._may_ask():
            return self._make_unavailable()
        return Later(partial(self._find_fetched, key_id, algorithm))

    def refresh_if_old(self) -> None:
        """Fetches keys again, beside the calls, once they are older than `refresh`. Those older than `max_age` do not
        count."""
        if self._fetched is None:
            return
        if self._get_age() >= self._issuer.max_age and self._keys:
            self._keys, self._text = {}, b""
            self.generation += 1
        if self._get_age() >= self._issuer.refresh and self._may_ask() and self._asking is None:
            self._begin()

    async def _find_fetched(self, key_id: str | None, algorithm: str) -> PyJWK | KeysUnavailable | None:
        await asyncio.wait([self._asking or self._begin()])  # a client that goes away does not end it
        if self._fetched is None or self._get_age() >= self._issuer.max_age:
            return self._make_unavailable()
        return self._choose(key_id, algorithm)

    def _get_age(self) -> float:
        return self._clock.now() - (self._fetched or 0.0)

    def _may_ask(self) -> bool:
        """Returns whether the keys may be requested now; one request under way serves all."""
        return self._asking is not None or self._requested_at is None or self._clock.now() - self._requested_at >= PAUSE

    def _make_unavailable(self) -> KeysUnavailable:
        waited = self._clock.now() - (self._requested_at or 0.0)
        return KeysUnavailable(max(1.0, PAUSE - waited))

    def _choose(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        if key_id is not None:
            found = self._keys.get((key_id, algorithm), [])
        else:
            found = [key for (_, name), keys in self._keys.items() if name == algorithm for key in keys]
        return found[0] if len(found) == 1 else None

    def _begin(self) -> asyncio.Task[None]:
        self._requested_at = self._clock.now()
        self._asking = asyncio.create_task(self._ask())
        self._asking.add_done_callback(self._end)
        return self._asking

    def _end(self, asking: asyncio.Task[None]) -> None:
        self._asking = None
        if not asking.cancelled() and asking.exception() is not None:
            self._report(self._issuer.name, "a defect of the proxy")

    async def _ask(self) -> None:
        body = await self._fetch_keys()
        keys = None if isinstance(body, str) else read_keys(body, self._issuer.algorithms)
        if isinstance(body, str) or not keys:
            self._report(self._issuer.name, body if isinstance(body, str) else "no usable key is among its keys")
            return
        self._report(self._issuer.name, "")
        self._fetched = self._clock.now()
        if body != self._text:
            self._text, self._keys = body, keys
            self.generation += 1

    async def _fetch_keys(self) -> bytes | str:
        """The issuer's published keys, or the reason of the failure."""
        if self._issuer.jwks:
            return await self._fetch(self._issuer.jwks)
        found = await self._fetch(self._issuer.issuer.rstrip("/") + DISCOVERY)
        if isinstance(found, str):
            return found
        value = parse(found)
        if not isinstance(value, dict) or value.get("issuer") != self._issuer.issuer:
            return "its discovery document names another issuer"
        url = value.get("jwks_uri")
        schemes = ("https://", "http://") if self._issuer.issuer.startswith("http://") else ("https://",)
        if not isinstance(url, str) or not url.startswith(schemes):
            return "its discovery document names no keys"
        return await self._fetch(url)


def read_keys(body: bytes, algorithms: tuple[str, ...]) -> dict[tuple[str | None, str], list[PyJWK]]:
    """The keys of a JWKS that sign, by id and algorithm; those of another kind are left out, shared secrets too."""
    value = parse(body)
    listed = value.get("keys") if isinstance(value, dict) else None
    found: dict[tuple[str | None, str], list[PyJWK]] = {}
    for entry in listed[:MAX_KEYS] if isinstance(listed, list) else ():
        for algorithm in _list_algorithms(entry, algorithms):
            try:
                key = PyJWK(entry, algorithm)
            except (PyJWTError, ValueError, TypeError):
                continue
            found.setdefault((key.key_id if isinstance(key.key_id, str) else None, algorithm), []).append(key)
    return found


def _list_algorithms(entry: JsonValue, algorithms: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or "d" in entry:
        return
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return
    for algorithm in algorithms:
        kind, curve = ALGORITHMS[algorithm]
        is_its = entry.get("alg", algorithm) == algorithm
        if entry.get("kty") == kind and is_its and (not curve or entry.get("crv") == curve):
            yield algorithm


# --- judges signed tokens ---------------------------------------------------------------------------------------------
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
        """Returns whether a token counts. Waits where its issuer's keys have to be fetched first."""
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
            return Later(partial(self._judge_later, token, digest, issuer, key))
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
