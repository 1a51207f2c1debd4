"""Selects the headers that cross the proxy, in both directions (RFC 9110 section 7.6). Pure.

Hop-by-hop fields end here, those named by `Connection` included. Length and framing are always our own. `Via` names
this process, so that a request that comes round again is recognised. Only trusted hops are believed about the client
(`X-Forwarded-*`, `Forwarded`, `X-Real-IP` and their like) or the requested path (`X-Original-*`). From all others these
are replaced by what this process saw, or dropped. `Forwarded` is only extended if a trusted hop sent it, and never
begun here: `X-Forwarded-*` says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Final

from proxy.core.model.fields import OF_THE_CONNECTION
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Fields, Headers
from proxy.server.http.request_head import METHOD_OVERRIDES, RequestHead

# RFC 9110 section 11.7: credentials between a client and this proxy.
HOP_BY_HOP: Final = OF_THE_CONNECTION | {"proxy-authenticate", "proxy-authorization"}

# The fields that this proxy writes itself on the way to the upstream. `expect` was answered here, before the body.
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
# Clients use these to claim another address. The connection's address replaces them, unless a trusted hop sent them.
_ADDRESSES: Final = frozenset({"x-real-ip", "true-client-ip", "x-client-ip"})
_OTHER_ADDRESSES: Final = frozenset(
    {"x-cluster-client-ip", "cf-connecting-ip", "cf-connecting-ipv6", "fastly-client-ip", "x-envoy-external-address",
     "x-azure-clientip", "x-appengine-user-ip", "x-remote-ip", "x-remote-addr", "x-originating-ip", "client-ip"}
)  # fmt: skip

# Some frameworks and gateways take the path of a request from these fields. Judged routes drop them, also those of
# trusted hops.
_PATH_OVERRIDES: Final = frozenset({"x-original-url", "x-rewrite-url"})
ANOTHER_REQUEST: Final = frozenset({*METHOD_OVERRIDES, *_PATH_OVERRIDES})

_OWN_REPLY: Final = frozenset(
    {"content-length", "x-request-id", "tool-request-id", "tool-corrections", "tool-repairs", "tool-warnings"}
)

# The usual values of `Connection` in answers; they name no field.
_ABOUT_THE_CONNECTION: Final = frozenset({"keep-alive", "close"})

# Fields about the client, and about the path and the method that a request had before a gateway changed it: dropped,
# unless a trusted hop sent them. Of `x-forwarded-`, three are written here.
_CLIENT_FIELDS: Final = _ADDRESSES | _OTHER_ADDRESSES | {"x-rewrite-url"}
CLIENT_PREFIXES: Final = ("x-forwarded-", "x-original-", "x-envoy-original-")
_NEVER_FORWARDED: Final = HOP_BY_HOP | _OWN_REQUEST | _CLIENT_FIELDS
_NEVER_RETURNED: Final = HOP_BY_HOP | _OWN_REPLY

Network = IPv4Network | IPv6Network


# RFC 9110 section 5.6.2: a token. Every other text is in quotes.
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# RFC 7239 section 4: elements parted by commas, pairs parted by semicolons, each value a token or quoted.
# Read pair by pair, so that what is in quotes is never taken for its own pair.
_PAIR: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]++)=(\"(?:[^\"\\]|\\.)*+\"|[^\",; \t]*+)")
_FIELD: Final = re.compile(rf"(?:{_PAIR.pattern}|[,; \t])*+")
# RFC 7239 section 6: an address with or without a port; IPv6 in brackets.
_NODE: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+)(?::[0-9]+)?")


def list_nominated(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The fields that `Connection` makes hop-by-hop for this message."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == "connection" for token in value.split(",")
    )


def make_reply_headers(headers: Headers) -> list[tuple[str, str]]:
    """An upstream's headers as they go on to the client, spelling kept."""
    dropped = _NEVER_RETURNED
    kept = []
    for field in headers:
        name = field[0].lower()
        if name not in dropped:
            kept.append(field)
        elif name == "connection" and field[1].lower() not in _ABOUT_THE_CONNECTION:
            named = list_nominated(headers)
            return [field for field in headers if field[0].lower() not in dropped | named]
    return kept


@value_class
class Changes:
    """A route's changes to the headers of its requests: `set` replaces, `remove` drops. Names in lower case."""

    set: Headers = ()
    remove: frozenset[str] = frozenset()

    @property
    def dropped(self) -> frozenset[str]:
        """Every field that does not cross on this route."""
        return _NEVER_FORWARDED | self.remove | {name for name, _ in self.set}


@value_class
class Hop:
    """This process as a hop: its pseudonym in `Via`, and the networks whose word about earlier hops is believed."""

    pseudonym: str
    trusted: tuple[Network, ...] = ()
    trusts_unix: bool = False

    def trusts(self, address: str) -> bool:
        """Returns whether an address belongs to a trusted hop."""
        if not address:  # a unix socket has none
            return self.trusts_unix
        if not self.trusted:  # parsing an address costs more than the rest of this function
            return False
        try:
            found = ip_address(address)
        except ValueError:  # nonsense in a header
            return False
        return any(found in network for network in self.trusted)

    def client(self, peer: str, headers: Headers) -> str:
        """Returns the client's address: the peer's, or the nearest one before the trusted hops."""
        if not self.trusts(peer):
            return peer
        lines = _all(headers, "x-forwarded-for")
        # Some hops write ports and brackets (Azure's gateway, IIS): each connection has another port.
        parts = [part.strip() for line in lines for part in line.split(",")]
        addresses = [(node[1] or node[2]) if (node := _NODE.fullmatch(part)) else part for part in parts]
        addresses = addresses or list_addresses(_all(headers, "forwarded"))
        nearest = (address for address in reversed(addresses) if not address or not self.trusts(address))
        return next(nearest, addresses[0] if addresses else peer)

    def is_loop(self, headers: Headers) -> bool:
        """Returns whether this request has passed this very process before."""
        return self.pseudonym in "\n".join(_all(headers, "via"))

    def own_fields(self, peer: str, scheme: str, headers: Headers) -> Headers:
        """`Via`, the `X-Forwarded-*` fields and, where a trusted hop uses it, `Forwarded` for the upstream."""
        values = dict(headers)
        via = f"1.1 {self.pseudonym}"
        if "via" in values:
            via = ", ".join((*_all(headers, "via"), via))
        host = values.get("host", "")
        chain, proto, outer_host, forwarded = peer, scheme, host, ""
        others: Headers = ()
        if self.trusts(peer):
            others = tuple(
                field
                for field in headers
                if (field[0] in _CLIENT_FIELDS or field[0].startswith(CLIENT_PREFIXES)) and field[0] not in _OWN_REQUEST
            )
        elif peer:
            others = tuple((name, peer) for name in values if name in _ADDRESSES)
        if self.trusts(peer):
            chain = ", ".join(filter(None, (*_all(headers, "x-forwarded-for"), peer)))
            proto, outer_host = values.get("x-forwarded-proto", scheme), values.get("x-forwarded-host", host)
            if chain_of_hops := _all(headers, "forwarded"):
                forwarded = extend_forwarded(chain_of_hops, peer, scheme, host)
        fields = (
            ("via", via),
            ("x-forwarded-for", chain),
            ("x-forwarded-proto", proto),
            ("x-forwarded-host", outer_host),
            ("forwarded", forwarded),
        )
        return (*[field for field in fields if field[1]], *others)  # a unix socket has no address, HTTP/1.0 no Host


@dataclass(slots=True)
class Caller:
    """The peer of a connection: `address` ('' for a unix socket), how it connected, and whether `hop` trusts it."""

    hop: Hop
    address: str
    scheme: str
    trusted: bool = False
    _host: str | None = None
    _fields: Headers = ()

    @classmethod
    def of(cls, hop: Hop, address: str, scheme: str) -> Caller:
        """Describes a peer as `hop` sees it."""
        return cls(hop, address, scheme, hop.trusts(address))

    def client(self, headers: Fields) -> str:
        """Returns the client's address."""
        return self.hop.client(self.address, headers) if self.trusted else self.address

    def own_fields(self, headers: Fields, judged: bool = False) -> Headers:
        """Returns the fields that this hop adds to a request; for an untrusted caller they depend only on `Host`.
        `judged`: not even a trusted caller may name another path."""
        if judged and self.trusted:
            own = self.hop.own_fields(self.address, self.scheme, headers)
            return tuple(field for field in own if field[0] not in _PATH_OVERRIDES)
        host = headers.get("host")
        has_addresses = not _ADDRESSES.isdisjoint(headers.by_name)
        if self.trusted or host is None or has_addresses or headers.get("via") is not None:
            return self.hop.own_fields(self.address, self.scheme, headers)
        if host != self._host:
            self._host, self._fields = host, self.hop.own_fields(self.address, self.scheme, headers)
        return self._fields


def find_caller(hop: Hop, request: RequestHead) -> Caller:
    """The caller at the other end of a request's connection, which keeps it."""
    connection: Any = request.protocol
    caller: Caller | None = connection.caller
    if caller is None:
        peer, secure = connection.peername, connection.ssl_context is not None
        # A unix socket's other end is not an address: its client may have given it any name, with a line end in it.
        address = str(peer[0]) if isinstance(peer, (tuple, list)) else ""
        caller = connection.caller = Caller.of(hop, address, "https" if secure else "http")
    return caller


def _all(headers: Headers, name: str) -> list[str]:
    """The values of all fields of one name: several lines mean the same as one with commas (RFC 9110 section 5.3)."""
    return [value for known, value in headers if known == name]


# --- the `Forwarded` field (RFC 7239): who asked whom before a request came here -------------------------------------
def list_addresses(fields: Iterable[str]) -> list[str]:
    """Returns the addresses that `Forwarded` fields name, in their order. '' for an `unknown`, a name made up by a hop,
    and a field that cannot be read to its end: an open quote would hide a later hop's text."""
    found: list[str] = []
    for field in fields:
        whole = _FIELD.fullmatch(field) is not None
        found += [pair[2].strip('"') for pair in _PAIR.finditer(field) if pair[1].lower() == "for"] if whole else [""]
    return [(node[1] or node[2]) if (node := _NODE.fullmatch(text)) else "" for text in found]


def extend_forwarded(fields: Iterable[str], peer: str, scheme: str, host: str) -> str:
    """The field with our own element behind: `peer` asked us ('' for a unix socket), for `host`, over `scheme`."""
    node = f"[{peer}]" if ":" in peer else peer or "unknown"
    pairs = [("for", node), ("host", host), ("proto", scheme)]
    own = ";".join(f"{name}={_value(value)}" for name, value in pairs if value)
    return ", ".join((*fields, own))


def _value(text: str) -> str:
    if _TOKEN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
