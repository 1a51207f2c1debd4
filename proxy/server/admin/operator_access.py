"""Who may use the operator's port, and in which role: `OperatorAccess`.

A page in a browser reaches this port only from itself: `Host` has to be an address, a loopback name or a configured one
(DNS rebinding), `Origin` is absent or exactly the request's own, and `Sec-Fetch-Site`, where a browser sends it, says
same-origin. There are no cookies: a cookie goes to every port of its host, so a page on another port would have the
session. The token goes as `Authorization`, which no browser adds by itself.

With `admin.token`, everything below /-/ requires it (role `operator`), or `admin.readers` (role `reader`, who changes
nothing and sees no value). After ten wrong tokens within a minute an address is told to wait.
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
# Addresses whose wrong tokens are remembered.
_MOST_ADDRESSES: Final = 1000
_HOST: Final = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
_BEARER: Final = "bearer "
# What a browser says of a request that the page itself, or its user, makes.
_OWN_SITE: Final = frozenset({"same-origin", "none"})


class OperatorAccess:
    """The rules of one operator's port. `now` is a monotonic clock; `reveal_now` gives a secret as its files hold it
    now, so that a rotated token counts at once."""

    def __init__(self, entry: AdminConfig, now: Callable[[], float], reveal_now: Callable[[str], str] = reveal) -> None:
        self._names = _LOOPBACK_NAMES | {entry.listen.host.lower()} | entry.hosts
        self._roles: tuple[tuple[str, Role], ...] = tuple(
            (token, role) for token, role in ((entry.token, _OPERATOR), (entry.readers, _READER)) if token
        )
        self._reveal_now = reveal_now
        self._needs_token = bool(entry.token)
        self._now = now
        self._wrong: dict[str, deque[float]] = {}

    @property
    def needs_token(self) -> bool:
        """Whether paths below /-/ ask for a token."""
        return self._needs_token

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
        """The role of a request; None without a token or with a wrong one. Tokens are compared in constant time."""
        if not self._needs_token:
            return _OPERATOR
        given = fields.get("authorization") or ""
        scheme, bearer = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
        token = bearer.encode("utf-8", "surrogatepass")
        found: Role | None = None
        for written, role in self._roles:
            known = self._reveal_now(written).encode("utf-8", "surrogatepass")
            if hmac.compare_digest(token, known) and scheme == _BEARER:
                found = role
        return found

    def has_to_wait(self, address: str) -> bool:
        """Whether an address has shown too many wrong tokens."""
        times = self._wrong.get(address)
        return times is not None and len(times) == WRONG_TOKENS and self._now() - times[0] < WITHIN

    def count_wrong_token(self, address: str) -> None:
        """Remembers a wrong token."""
        if address not in self._wrong and len(self._wrong) >= _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong.setdefault(address, deque(maxlen=WRONG_TOKENS)).append(self._now())


_OPERATOR: Final[Role] = "operator"
_READER: Final[Role] = "reader"


def readers_token(token: str) -> str:
    """The token by which a worker knows a reader, derived from the one by which it knows the process above it."""
    return f"{token}-reader"


def is_foreign_page(fields: Fields, *, may_navigate: bool) -> bool:
    """Whether a request comes from a page of another origin. `may_navigate`: a link that leads here may be followed
    from anywhere."""
    origin, host = fields.get("origin"), fields.get("host") or ""
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return True
    site = fields.get("sec-fetch-site")
    if site is None or site in _OWN_SITE:
        return False
    return not (
        may_navigate and fields.get("sec-fetch-mode") == "navigate" and fields.get("sec-fetch-dest") == "document"
    )
