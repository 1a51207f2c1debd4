"""Decides who may call a route: by which name of this host, with which bearer token, from which page in a browser.
Pure.

A refusal says nothing of what would have been right. Tokens are compared by their hashes, all of them and each in
constant time, so that neither a token nor its place in the list can be measured.

A page in a browser is known by its `Origin`, which a browser always sends with what could change something. Without
`cors` only a page at the proxy's own loopback address may call. So a page that a user of this machine opens cannot
reach a proxy on loopback, not even when it gives its own name this machine's address (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Final

from proxy.config.model import Auth, Cors
from proxy.core.model import codes
from proxy.core.model.fields import NoBearer, read_bearer
from proxy.core.model.values import Fields, Headers
from proxy.driver import run_in_task
from proxy.interfaces import AccessDenied, Admission, Admitted, Certificate, RouteAccess
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins
from proxy.routing import Route
from proxy.server.http.request_head import RequestHead

# RFC 6750 section 3: the requested token, and the error in the one that came. No `error` if no token came at all.
_ASK: Final = 'Bearer realm="toolcall-proxy"'
_LOOPBACK: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")

# The headers that pages may send beyond those that browsers always allow: a call's own, and those of protocols between.
_ALLOWED: Final = ("Content-Type", "Authorization", "Accept", "X-Conversation-Id", "X-Tool-Call-Id", "X-Request-ID")
_RESUMING: Final = ("Last-Event-ID",)
_NAME_END: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# The headers of an answer that pages may read, to see what was repaired, or which attempt this was.
_EXPOSED: Final = (
    "X-Request-ID", "Tool-Request-ID", "Tool-Error", "Tool-Attempt", "Tool-Format", "Tool-Repairs", "Tool-Corrections",
    "Tool-Warnings", "Retry-After", "RateLimit", "RateLimit-Policy",
)  # fmt: skip
_CHALLENGE: Final = ("WWW-Authenticate",)


def is_served_host(host: str, names: frozenset[str]) -> bool:
    """Returns whether a `Host` is one of the names that clients may use; any if none is configured."""
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


def read_names(request: RequestHead) -> frozenset[str]:
    """Returns the names in the certificate that a client has shown (`listen.tls.client_ca`), with their kinds. They are
    `CN:` of the subject, and `DNS:`, `URI:` and `email:` of its alternative names. No names without a
    certificate; TLS has verified it already."""
    transport = request.protocol.transport
    shown: dict[str, Any] = (transport.get_extra_info("peercert") if transport is not None else None) or {}
    subject = {f"CN:{value}" for part in shown.get("subject", ()) for key, value in part if key == "commonName"}
    others = {f"{kind}:{value}" for kind, value in shown.get("subjectAltName", ()) if isinstance(value, str)}
    return frozenset(subject | others)


def admit(route: Route, headers: Fields, access: RouteAccess | None, certificate: Certificate) -> Admission:
    """Returns whether a request may use a route. `access`: its requirements beyond `auth`; None: none. nothing."""
    cors = route.cors
    origins = [value for name, value in headers if name == "origin"]
    is_welcome = len(origins) == 1 and (_welcome(origins[0], cors) or _is_own(origins[0], headers))
    if origins and (cors is None or not cors.upstream) and not is_welcome:
        return AccessDenied(codes.ORIGIN_NOT_ALLOWED, "Pages of this origin may not call this route.")
    fields: Headers = ()
    if origins and cors is not None and not cors.upstream:
        # The page may read the answer. Cookies are never allowed: clients show a token.
        shown = (name for plugin in find_plugins(SpeaksProtocol) for name in plugin.answer_headers)
        exposed = ("Access-Control-Expose-Headers", ", ".join((*_EXPOSED, *shown, *_CHALLENGE)))
        fields = (("Access-Control-Allow-Origin", origins[0]), exposed, ("Vary", "Origin"))
    name = "" if route.auth is None else find_holder(route.auth, headers)
    if access is not None:
        found = access.admit(headers, name, certificate)
        if not isinstance(found, Admitted | AccessDenied):
            return _wait(found, fields)
    elif isinstance(name, str):
        found = Admitted(name, caller=f"token {name}" if name else "")
    else:
        found = name
    return _add_cors(found, fields)


async def _wait(found: Awaitable[Admitted | AccessDenied], fields: Headers) -> Admitted | AccessDenied:
    return _add_cors(await run_in_task(found), fields)


def _add_cors(found: Admitted | AccessDenied, fields: Headers) -> Admitted | AccessDenied:
    """The page may read why it was refused: else it could not ask its user for a token."""
    if isinstance(found, Admitted):
        return replace(found, cors=fields) if fields else found
    return replace(found, headers=found.headers + fields)


def _welcome(origin: str, cors: Cors | None) -> bool:
    return cors is not None and (origin in cors.origins or "*" in cors.origins)


def _is_own(origin: str, headers: Fields) -> bool:
    """Returns whether a page has the address of its request. Only names that no DNS gives to another machine count."""
    host = (headers.get("host") or "").lower()
    return _LOOPBACK.fullmatch(host) is not None and origin.lower() in (f"http://{host}", f"https://{host}")


def find_holder(auth: Auth, headers: Headers) -> str | AccessDenied:
    """The name of the token of a request, or why none is known."""
    token = read_bearer(headers)
    if isinstance(token, NoBearer):
        return _unknown(token.value, _ASK if token is NoBearer.ABSENT else f'{_ASK}, error="invalid_request"')
    digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
    names = [name for name, known in auth.tokens if hmac.compare_digest(known, digest)]
    return names[0] if names else _unknown("The bearer token is not known here.", f'{_ASK}, error="invalid_token"')


def _unknown(message: str, challenge: str) -> AccessDenied:
    return AccessDenied(codes.TOKEN_REQUIRED, message, (("WWW-Authenticate", challenge),))


# --- CORS (fetch.spec.whatwg.org, "CORS protocol") --------------------------------------------------------------------
def read_preflight_method(headers: Fields) -> str:
    """The method that a preflight asks about, or '' for another OPTIONS request."""
    if headers.get("origin") is None:
        return ""
    return headers.get("access-control-request-method") or ""


def answer_preflight(route: Route, origin: str, names: str = "") -> Headers | AccessDenied | None:
    """Returns the answer to a preflight for the headers `names`; None if the upstream has to answer."""
    cors = route.cors
    if cors is not None and cors.upstream:
        return None
    if cors is None or not _welcome(origin, cors):
        return AccessDenied(codes.ORIGIN_NOT_ALLOWED, "Pages of this origin may not call this route.")
    protocols = [name for plugin in find_plugins(SpeaksProtocol) for name in plugin.page_headers]
    # The headers of a protocol that repeat arguments are named by tools; no list has them all.
    prefixes = [name[:-1].lower() for name in protocols if name.endswith("*") and route.learn is not None]
    mirrors = [name for name in map(str.strip, names.split(",")) if _is_mirror(name.lower(), prefixes)]
    allowed = (*_ALLOWED, *(name for name in protocols if not name.endswith("*")), *_RESUMING, *cors.headers, *mirrors)
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Methods", ", ".join(sorted(route.methods))),
        ("Access-Control-Allow-Headers", ", ".join(allowed)),
        ("Access-Control-Max-Age", str(int(cors.max_age))),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    )


def _is_mirror(name: str, prefixes: list[str]) -> bool:
    return any(name.startswith(each) and _NAME_END.fullmatch(name, len(each)) is not None for each in prefixes)
