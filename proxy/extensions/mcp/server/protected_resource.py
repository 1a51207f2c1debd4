"""Puts the route's URL into OAuth metadata and challenges in place of the server's own URL (`resource: rewrite`).

A client compares the `resource` in the metadata with the URL that it was given (RFC 9728 section 3.3), but a remote
server names its own URL there. The server's authorization server still issues the tokens, now for the proxy's URL (RFC
8707). The MCP server and its authorization server decide whether such tokens are valid.

A server of 2025-03-26 has no such metadata and is its own authorization server. Its description gets the proxy's
address as `issuer`, which clients compare with the address that they asked (RFC 8414 section 3.3). The endpoints stay
the server's own. A server without a description has the endpoints that the revision defines ("Fallbacks for Servers
without Metadata Discovery").
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Headers, JsonValue, UpstreamFault, UpstreamReply
from proxy.extensions.mcp.config.model import Resource
from proxy.extensions.mcp.server.bound_mcp_route import read_whole
from proxy.interfaces import UpstreamRequest
from proxy.plugin import split_url
from proxy.server.bound_route import RouteRequest
from proxy.upstream.faults import close_body

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# The longest metadata, in bytes.
_LONGEST: Final = 256 * 1024
_NAMED: Final = re.compile(r'(\bresource_metadata\s*=\s*)("[^"]*"|[^\s,]+)', re.IGNORECASE)
# A path at the server, with its query.
_TARGET: Final = re.compile(r"/[!-~]*")
# The answers of servers without a description: no such path, or a token wanted for every path.
_NOTHING_HERE: Final = (401, 403, 404, 405)
_ENDPOINTS: Final = {"authorization": "authorize", "token": "token", "registration": "register"}
# The server repeats its own issuer to the client, so another one would be refused (RFC 9207).
_SENDS_ISSUER: Final = "authorization_response_iss_parameter_supported"
_STALE: Final = frozenset({"content-length", "content-encoding", "etag", "content-md5", "digest", "repr-digest"})

Ask = Callable[[UpstreamRequest], Awaitable[UpstreamReply | UpstreamFault]]


class MetadataRewriter:
    """Rewrites challenges and metadata. Remembers the metadata's address in the challenge of a route's server."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}

    def rewrite_challenge(self, reply: UpstreamReply, call_route: RouteRequest) -> UpstreamReply:
        """The answer; the challenge of a refusal names the metadata at this proxy."""
        rewritten_by = call_route.binding.route.rewritten_by
        if rewritten_by is None or reply.status not in (401, 403):
            return reply
        path = rewritten_by.settings.path
        url = f"{find_origin(call_route)}{WELL_KNOWN}{path}"

        def exchange(name: str, value: str) -> str:
            if name.lower() != "www-authenticate":
                return value
            if found := _NAMED.search(value):
                parts = split_url(found[2].strip('"'))
                self._named[path] = f"{parts.path}?{parts.query}" if parts.query else parts.path
            return _NAMED.sub(rf'\1"{url}"', value)

        return replace(reply, headers=tuple((name, exchange(name, value)) for name, value in reply.headers))

    async def rewrite_metadata(
        self, reply: UpstreamReply, call_route: RouteRequest, ask: Ask
    ) -> UpstreamReply | UpstreamFault:
        """Metadata as clients of the route need it. A body that is not metadata is left as it is. Returns a fault for a
        body that cannot be read. If the server has none at the usual place, `ask` requests it where the server's
        challenge said."""
        rewritten_by = call_route.binding.route.rewritten_by
        if rewritten_by is None:
            return reply
        resource: Resource = rewritten_by.settings
        path = resource.path
        if reply.status in _NOTHING_HERE and resource.describes:
            await close_body(reply)
            return _describe(resource.describes, find_origin(call_route))
        if reply.status == 404 and _TARGET.fullmatch(target := self._named.get(path, "")):
            await close_body(reply)
            found = await ask(replace(call_route.make_passthrough(), target=target))
            if isinstance(found, UpstreamFault):
                return found
            reply = found
        if reply.status != 200:
            return reply
        whole = await read_whole(reply, _LONGEST)
        if isinstance(whole, UpstreamFault):
            return whole
        value = parse(whole.body) if isinstance(whole.body, bytes) else None
        origin = find_origin(call_route)
        own = {"issuer": origin} if resource.describes else {"resource": f"{origin}{path}"}
        if not isinstance(value, dict) or not own.keys() <= value.keys() or value.get(_SENDS_ISSUER) is True:
            return replace(whole, headers=_without_stale(reply.headers))
        return replace(reply, body=dumps({**value, **own}), headers=_without_stale(reply.headers))


def _describe(server: str, issuer: str) -> UpstreamReply:
    """The authorization server that a server of 2025-03-26 without metadata is itself."""
    endpoints = {f"{name}_endpoint": f"{server}/{path}" for name, path in _ENDPOINTS.items()}
    described: JsonValue = {
        "issuer": issuer,
        **endpoints,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
    }
    return UpstreamReply(200, (("content-type", "application/json"),), dumps(described))


def find_origin(call_route: RouteRequest) -> str:
    """Returns the scheme and host with which the client addresses the proxy."""
    fields = dict(call_route.hop_fields)
    host = fields.get("x-forwarded-host") or call_route.raw.header("host") or ""
    return f"{fields.get('x-forwarded-proto') or 'http'}://{host}"


def _without_stale(headers: Iterable[tuple[str, str]]) -> Headers:
    return tuple(field for field in headers if field[0].lower() not in _STALE)
