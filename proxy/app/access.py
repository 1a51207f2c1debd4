"""Who may call a route: by which name of this host, with which bearer token, from which page in a browser. Pure.

A refusal says nothing of what would have been right. Tokens are compared by their hashes, all of them and each in
constant time, so that neither a token nor its place in the list can be measured.

A page in a browser is known by its `Origin`, which a browser always sends with what could change something. Without
`cors` there is no page that may call: so one that a user of this machine happens to look at cannot reach a proxy on
loopback, not even when it gives its own name this machine's address (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import Final

from proxy.config.model import Auth, Cors
from proxy.core import codes
from proxy.core.codes import ErrorCode
from proxy.core.model import Fields, Headers
from proxy.routing import Route

# RFC 6750 section 3: what is asked for, and what was wrong with what came. No `error` where no token came at all.
_ASK: Final = 'Bearer realm="toolcall-proxy"'
_BEARER: Final = "bearer "

# What pages may send beyond what browsers always allow: a call's own headers, and those of MCP's HTTP transport.
_ALLOWED: Final = (
    "Content-Type", "Authorization", "Accept", "X-Conversation-Id", "X-Tool-Call-Id", "X-Request-ID",
    "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Last-Event-ID",
)  # fmt: skip
# What pages may read of an answer: else they could not tell what was repaired, or which attempt this was.
_EXPOSED: Final = ", ".join(
    (
        "X-Request-ID", "Tool-Error", "Tool-Attempt", "Tool-Format", "Tool-Repairs", "Tool-Corrections",
        "Tool-Warnings", "Retry-After", "Mcp-Session-Id", "WWW-Authenticate",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a request may not go on; `headers` belong to the answer."""

    code: ErrorCode
    message: str
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may go on: the name of its token, '' without one, and the CORS fields of its answer."""

    token: str = ""
    cors: Headers = ()


_ANYBODY: Final = Admitted()


def serves(host: str, names: frozenset[str]) -> bool:
    """Whether a `Host` is one of the names that clients may use; any where none is configured."""
    if not names:
        return True
    name = host.partition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
    name = name.lower().removesuffix(".")
    while name not in names:
        _, dot, name = name.removeprefix("*.").partition(".")
        if not dot:
            return False
        name = f"*.{name}"
    return True


def admit(route: Route, headers: Fields) -> Admitted | Denied:
    """Whether a request may use a route."""
    cors = route.cors
    if route.auth is None and headers.get("origin") is None:  # no page, no token: nearly everybody
        return _ANYBODY
    origins = [value for name, value in headers if name == "origin"]
    if origins and (cors is None or not cors.upstream) and not (len(origins) == 1 and _welcome(origins[0], cors)):
        return Denied(codes.ORIGIN_NOT_ALLOWED, "Pages of this origin may not call this route.")
    fields = _answered(origins[0]) if origins and cors is not None and not cors.upstream else ()
    if route.auth is None:
        return Admitted("", fields)
    name = _holder(route.auth, headers)
    # The page may read why it was refused: else it could not ask its user for a token.
    return Admitted(name, fields) if isinstance(name, str) else replace(name, headers=name.headers + fields)


def _welcome(origin: str, cors: Cors | None) -> bool:
    return cors is not None and (origin in cors.origins or "*" in cors.origins)


def _holder(auth: Auth, headers: Headers) -> str | Denied:
    """The name of the token that came (RFC 6750 section 2.1: in the header, never in the query or the body)."""
    sent = [value for name, value in headers if name == "authorization"]
    if not sent:
        return _unknown("This route asks for a bearer token.", _ASK)
    if len(sent) > 1 or not sent[0].lower().startswith(_BEARER):
        return _unknown("This route asks for one bearer token.", f'{_ASK}, error="invalid_request"')
    token = sent[0][len(_BEARER) :].strip(" ")
    digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
    names = [name for name, known in auth.tokens if hmac.compare_digest(known, digest)]
    return names[0] if names else _unknown("The bearer token is not known here.", f'{_ASK}, error="invalid_token"')


def _unknown(message: str, challenge: str) -> Denied:
    return Denied(codes.TOKEN_REQUIRED, message, (("WWW-Authenticate", challenge),))


# --- CORS (fetch.spec.whatwg.org, "CORS protocol") --------------------------------------------------------------------
def _answered(origin: str) -> Headers:
    """The page may read the answer. Cookies are never allowed: whoever calls shows a token."""
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", _EXPOSED),
        ("Vary", "Origin"),
    )


def asked_method(headers: Fields) -> str:
    """The method that a preflight asks about, or '' where an OPTIONS is none."""
    if headers.get("origin") is None:
        return ""
    return headers.get("access-control-request-method") or ""


def preflight(route: Route, origin: str) -> Headers | Denied | None:
    """The answer to a preflight; None where it is the upstream's to give."""
    cors = route.cors
    if cors is not None and cors.upstream:
        return None
    if cors is None or not _welcome(origin, cors):
        return Denied(codes.ORIGIN_NOT_ALLOWED, "Pages of this origin may not call this route.")
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Methods", ", ".join(sorted(route.methods))),
        ("Access-Control-Allow-Headers", ", ".join((*_ALLOWED, *cors.headers))),
        ("Access-Control-Max-Age", str(int(cors.max_age))),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    )
