"""Which headers cross the proxy, in both directions (RFC 9110 section 7.6, operations.md "HTTP correctness"). Pure.

Hop-by-hop fields end here, those named by `Connection` included. Length and framing are always our own. `Via` names
this process, so that a request that comes round again is recognised. What a client says about itself in
`X-Forwarded-*` or `Forwarded` is believed only of trusted hops; of all others it is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from proxy.app.forwarded import addresses, extended
from proxy.core.framing import OF_THE_CONNECTION
from proxy.core.model import Fields, Headers

# RFC 9110 section 11.7: what a client and this proxy say to each other.
HOP_BY_HOP: Final = OF_THE_CONNECTION | {"proxy-authenticate", "proxy-authorization"}

# What this proxy writes itself on the way to the upstream. `expect` was answered here, before the body was read.
_OWN_REQUEST: Final = frozenset(
    {
        "host",
        "content-length",
        "expect",
        "via",
        "x-request-id",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
    }
)
# All that hops say of the client: three of these we write ourselves, and the others go on if a trusted hop sent them.
_SAID_OF_THE_CLIENT: Final = "x-forwarded-"

# By these some frameworks and gateways take a request for another one than its first line says: with another method, or
# at another path. What was judged must not turn into that, so they end here wherever calls are judged.
ANOTHER_REQUEST: Final = frozenset(
    {"x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"}
)

_OWN_REPLY: Final = frozenset({"content-length", "x-request-id", "tool-corrections", "tool-repairs", "tool-warnings"})

# What nearly every answer says in `Connection`; it names no field.
_ABOUT_THE_CONNECTION: Final = frozenset({"keep-alive", "close"})

# What many clients say in `Connection`: it names a field that never crosses, and no other.
_LASTING: Final = "keep-alive"

_NEVER_FORWARDED: Final = HOP_BY_HOP | _OWN_REQUEST
_NEVER_RETURNED: Final = HOP_BY_HOP | _OWN_REPLY

Network = IPv4Network | IPv6Network


def nominated(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The fields that `Connection` makes hop-by-hop for this message."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == "connection" for token in value.split(",")
    )


def reply_headers(headers: Headers) -> list[tuple[str, str]]:
    """An upstream's headers as they go on to the client, spelling kept."""
    dropped = _NEVER_RETURNED
    kept = []
    for field in headers:
        name = field[0].lower()
        if name not in dropped:
            kept.append(field)
        elif name == "connection" and field[1].lower() not in _ABOUT_THE_CONNECTION:
            named = nominated(headers)
            return [field for field in headers if field[0].lower() not in dropped | named]
    return kept


@dataclass(frozen=True, slots=True)
class Changes:
    """What a route does to the headers of its requests: `set` replaces, `remove` drops. Names in lower case."""

    set: Headers = ()
    remove: frozenset[str] = frozenset()

    @property
    def dropped(self) -> frozenset[str]:
        """Every field that does not cross on this route."""
        return _NEVER_FORWARDED | self.remove | {name for name, _ in self.set}


@dataclass(frozen=True, slots=True)
class Hop:
    """This process as a hop: its pseudonym in `Via`, and the networks whose word about earlier hops is believed."""

    pseudonym: str
    trusted: tuple[Network, ...] = ()
    trusts_unix: bool = False

    def trusts(self, address: str) -> bool:
        """Whether an address belongs to a trusted hop."""
        if not address:  # a unix socket has none
            return self.trusts_unix
        if not self.trusted:  # reading an address costs more than the rest of this together
            return False
        try:
            found = ip_address(address)
        except ValueError:  # nonsense in a header
            return False
        return any(found in network for network in self.trusted)

    def client(self, peer: str, headers: Headers) -> str:
        """Who really calls: the peer, or the nearest address before the trusted hops."""
        if not self.trusts(peer):
            return peer
        said = [part.strip() for name, value in headers if name == "x-forwarded-for" for part in value.split(",")]
        said = said or addresses(_all(headers, "forwarded"))
        return next((address for address in reversed(said) if not self._known(address)), said[0] if said else peer)

    def _known(self, address: str) -> bool:
        return bool(address) and self.trusts(address)

    def is_loop(self, headers: Headers) -> bool:
        """Whether this request has passed this very process before."""
        return self.pseudonym in "\n".join(_all(headers, "via"))

    def own_fields(self, peer: str, scheme: str, headers: Headers) -> Headers:
        """`Via`, the `X-Forwarded-*` fields and, where a trusted hop uses it, `Forwarded` for the upstream."""
        said = dict(headers)
        via = f"1.1 {self.pseudonym}"
        if "via" in said:
            via = ", ".join((*_all(headers, "via"), via))
        host = said.get("host", "")
        chain, proto, asked, forwarded = peer, scheme, host, ""
        others: Headers = ()
        if self.trusts(peer):
            others = tuple(
                field for field in headers if field[0].startswith(_SAID_OF_THE_CLIENT) and field[0] not in _OWN_REQUEST
            )
            chain = ", ".join(filter(None, (*_all(headers, "x-forwarded-for"), peer)))
            proto, asked = said.get("x-forwarded-proto", scheme), said.get("x-forwarded-host", host)
            if told := _all(headers, "forwarded"):
                forwarded = extended(told, peer, scheme, host)
        fields = (
            ("via", via),
            ("x-forwarded-for", chain),
            ("x-forwarded-proto", proto),
            ("x-forwarded-host", asked),
            ("forwarded", forwarded),
        )
        return (*[field for field in fields if field[1]], *others)  # a unix socket has no address, HTTP/1.0 no Host


@dataclass(slots=True)
class Caller:
    """Whoever is at the other end of a connection: `address` ('' for a unix socket), how it came, and what `hop` thinks
    of it. Worked out once for a connection, since nearly all requests on one say the same."""

    hop: Hop
    address: str
    scheme: str
    trusted: bool = False
    _host: str | None = None
    _fields: Headers = ()

    @classmethod
    def of(cls, hop: Hop, address: str, scheme: str) -> Caller:
        """Who this is to `hop`."""
        return cls(hop, address, scheme, hop.trusts(address))

    def client(self, headers: Fields) -> str:
        """Who really calls."""
        return self.hop.client(self.address, headers) if self.trusted else self.address

    def own_fields(self, headers: Fields) -> Headers:
        """What this hop says itself of a request; of a caller nobody trusts it depends on `Host` alone."""
        host = headers.get("host")
        if self.trusted or host is None or headers.get("via") is not None:
            return self.hop.own_fields(self.address, self.scheme, headers)
        if host != self._host:
            self._host, self._fields = host, self.hop.own_fields(self.address, self.scheme, headers)
        return self._fields


def _all(headers: Headers, name: str) -> list[str]:
    """The values of all fields of one name: several lines mean the same as one with commas (RFC 9110 section 5.3)."""
    return [value for known, value in headers if known == name]


def request_headers(headers: Headers, dropped: frozenset[str], own: Headers) -> Headers:
    """A client's headers as they go on to the upstream: without `dropped`, `X-Forwarded-*` and what `Connection` names,
    with `own`, in which those stand that are believed.

    Servers behind CGI-like interfaces read `X_Forwarded_For` as `X-Forwarded-For`; so such a spelling is dropped too.
    """
    if type(headers) is Fields and len(by_name := headers.by_name) == len(headers):  # each name once, as nearly always
        names = "\n".join(by_name)
        lasting = by_name.get("connection", _LASTING) == _LASTING
        if lasting and "_" not in names and _SAID_OF_THE_CLIENT not in names:  # nothing to look at name by name
            crossing: list[tuple[str, str]] = []
            for field in headers:  # each call comes here: a comprehension would be one more call
                if field[0] not in dropped:
                    crossing.append(field)  # noqa: PERF401
            return (*crossing, *own)
    names = "\n".join([name for name, _ in headers])
    if "connection" in names:
        dropped = dropped | nominated(headers)
    kept = [field for field in headers if field[0] not in dropped and not field[0].startswith(_SAID_OF_THE_CLIENT)]
    if "_" in names:
        plain = [(field, field[0].replace("_", "-")) for field in kept]
        kept = [field for field, name in plain if name not in dropped and not name.startswith(_SAID_OF_THE_CLIENT)]
    return (*kept, *own)
