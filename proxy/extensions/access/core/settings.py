"""The keys `access`, `jwt` and `allow` as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxy.core.contract.listed_tool import Hints
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.plugin import Check


# --- what is found out about a token ----------------------------------------------------------------------------------
@value_class
class TokenRefused:
    """The reason why a token is rejected: the client's `error_description` (RFC 6750 section 3), without a part of
    it."""

    reason: str


@value_class
class TokenAccepted:
    """A token that counts: its issuer's name in the config, and its claims."""

    issuer: str
    claims: Mapping[str, JsonValue]


@value_class
class KeysUnavailable:
    """An issuer's keys cannot be fetched now; `seconds` until the next attempt."""

    seconds: float


Judgement = TokenAccepted | TokenRefused | KeysUnavailable


# --- the keys `access` ------------------------------------------------------------------------------------------------
# The signature algorithms that may be used, each with the kind of key and the curve that it needs (RFC 7518 section
# 3.1, RFC 8037). `none` and those with a shared secret are not among them, because the keys are public.
ALGORITHMS: Final[Mapping[str, tuple[str, str]]] = {
    "RS256": ("RSA", ""),
    "RS384": ("RSA", ""),
    "RS512": ("RSA", ""),
    "PS256": ("RSA", ""),
    "PS384": ("RSA", ""),
    "PS512": ("RSA", ""),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
USUAL_ALGORITHMS: Final = ("RS256", "ES256")


@value_class
class IssuerSettings:
    """One issuer of tokens. `issuer` is its `iss`, and `aud` has to name one of `audience`. `jwks` is the address of
    its keys ('': found by OpenID discovery), `required` are claims that a token must have. Times in seconds: `leeway`
    for clocks that differ, `refresh` after which keys are fetched again, `max_age` after which they no longer count."""

    name: str
    issuer: str
    audience: tuple[str, ...]
    jwks: str = ""
    algorithms: tuple[str, ...] = USUAL_ALGORITHMS
    required: tuple[str, ...] = ()
    leeway: float = 30.0
    refresh: float = 600.0
    max_age: float = 86_400.0


@value_class
class AccessSettings:
    """The section `access`. `url`: where clients reach the proxy, '' if it is not set. `audit`: the file of
    decisions, 'log' for the log, '' for none."""

    issuers: Mapping[str, IssuerSettings] = field(default_factory=dict)
    url: str = ""
    audit: str = ""


@value_class
class JwtSettings:
    """The issuers whose tokens a route accepts (empty: all). `forward`: the token is forwarded."""

    issuers: tuple[str, ...] = ()
    forward: bool = False

    @property
    def keeps_token(self) -> bool:
        """Returns whether the token does not go on."""
        return not self.forward


@value_class
class AccessRule:
    """Allows or denies calls of `tools` (patterns of names, `fnmatch`) to callers that meet all of its conditions. A
    token has all `scopes`, and one of the values of each of `claims`. The caller is one of `tokens` (of `auth.bearer`)
    or `issuers`, or has a name in its certificate that matches `certificates` (patterns). All checks of `arguments`
    have to accept the arguments; those of a rule of `deny` accept the arguments that it does not apply to. `equals` are
    places in the arguments, each with the claim that it equals. `named` are the keys of both by folded case. `hints`
    are the annotations that a listed tool must have."""

    name: str
    tools: tuple[str, ...] = ("*",)
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, tuple[JsonValue, ...]] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    issuers: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    arguments: tuple[Check, ...] = ()
    named: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hints: Hints = field(default_factory=dict)
    equals: tuple[tuple[Pointer, str], ...] = ()
