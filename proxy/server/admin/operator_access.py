"""Access to the operator's port: which requests are accepted, and in which role (`OperatorAccess`).

A browser can use this port only from the console's own page. `Host` has to be an IP address, a loopback name or a
configured name, which stops DNS rebinding. `Origin` has to be absent or equal to the request's own origin.
`Sec-Fetch-Site`, where a browser sends it, has to be `same-origin` or `none`. The port sets no cookies: a cookie is
shared by all ports of a host, so pages on other ports would share the session. The token is sent in `Authorization`,
which no browser adds by itself.

With `admin.token`, every path below /-/ requires this token (role `operator`) or that of `admin.readers` (role
`reader`, which changes nothing and sees no values). After ten wrong tokens within a minute an address has to wait.
"""

from __future__ import annotations

import hmac
import re
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Literal

from proxy.config.files.secrets import reveal
from proxy.config.model import AdminConfig
from proxy.core.model.values import Fields

Role = Literal["operator", "reader"]

WRONG_TOKENS: Final = 10
WITHIN: Final = 60.0
# The most addresses whose wrong tokens are remembered.
_MOST_ADDRESSES: Final = 1000
_HOST: Final = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
_BEARER: Final = "bearer "
# The values of `Sec-Fetch-Site` (W3C Fetch Metadata) for requests of the page itself, and of the browser's user.
_OWN_SITE: Final = frozenset({"same-origin", "none"})


class OperatorAccess:
    """The access rules of one operator's port. `now` is a monotonic clock in seconds. `reveal_now` reads a secret again
    at each use, so that a rotated token is valid at once."""

    def __init__(self, entry: AdminConfig, now: Callable[[], float], reveal_now: Callable[[str], str] = reveal) -> None:
        self._names = _LOOPBACK_NAMES | {entry.listen.host.lower()} | entry.hosts
        roles: tuple[tuple[str, Role], ...] = ((entry.token, "operator"), (entry.readers, "reader"))
        self._roles = [(token, role) for token, role in roles if token]
        self._reveal_now = reveal_now
        self._needs_token = bool(entry.token)
        self._now = now
        self._wrong: dict[str, deque[float]] = {}

    def knows_host(self, host: str) -> bool:
        """Whether a Host header names an address, a loopback name or a configured name (RFC 9110 section 7.2)."""
        found = _HOST.fullmatch(host)
        name = found["name"].strip("[]").lower() if found is not None else ""
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def find_role(self, fields: Fields) -> Role | None:
        """Returns the role that the request's token gives, or None where the token is missing or wrong. Tokens are
        compared in constant time."""
        if not self._needs_token:
            return "operator"
        given = fields.get("authorization") or ""
        scheme, bearer = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
        token = bearer.encode("utf-8", "surrogatepass")
        found: Role | None = None
        for written, role in self._roles:
            known = self._reveal_now(written).encode("utf-8", "surrogatepass")
            if hmac.compare_digest(token, known) and scheme == _BEARER:
                found = role
        return found

    def count_wrong_token(self, address: str) -> bool:
        """Counts a wrong token from an address, and gives true; false where the address has to wait, because it has
        sent too many within the last minute."""
        if address not in self._wrong and len(self._wrong) >= _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        times = self._wrong.setdefault(address, deque(maxlen=WRONG_TOKENS))
        if len(times) == WRONG_TOKENS and self._now() - times[0] < WITHIN:
            return False
        times.append(self._now())
        return True


def is_foreign_page(fields: Fields, *, may_navigate: bool) -> bool:
    """Whether a request comes from a page of another origin. With `may_navigate`, following a link from another origin
    to this page is allowed."""
    origin, host = fields.get("origin"), fields.get("host") or ""
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return True
    site = fields.get("sec-fetch-site")
    if site is None or site in _OWN_SITE:
        return False
    return not (
        may_navigate and fields.get("sec-fetch-mode") == "navigate" and fields.get("sec-fetch-dest") == "document"
    )
