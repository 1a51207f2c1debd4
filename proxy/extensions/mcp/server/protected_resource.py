"""Puts the route's URL into OAuth metadata and challenges in place of the server's own URL (`resource: rewrite`).

A client compares the `resource` in the metadata with the URL that it was given (RFC 9728 section 3.3), but a remote
server names its own URL there. The server's authorization server still issues the tokens, now for the proxy's URL (RFC
8707). The MCP server and its authorization server decide whether such tokens are valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Headers, UpstreamFault, UpstreamReply
from proxy.extensions.mcp.server.bound_mcp_route import read_whole
from proxy.server.bound_route import RouteRequest

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# The longest metadata, in bytes.
_LONGEST: Final = 256 * 1024
_NAMED: Final = re.compile(r'(\bresource_metadata\s*=\s*)("[^"]*"|[^\s,]+)', re.IGNORECASE)
_STALE: Final = frozenset({"content-length", "content-encoding", "etag", "content-md5", "digest", "repr-digest"})


def rewrite_challenge(reply: UpstreamReply, call_route: RouteRequest) -> UpstreamReply:
    """The answer; the challenge of a refusal names the metadata at this proxy."""
    path = call_route.binding.route.rewrites_resource
    if not path or reply.status not in (401, 403):
        return reply
    url = f"{find_origin(call_route)}{WELL_KNOWN}{path}"

    def exchange(name: str, value: str) -> str:
        return _NAMED.sub(rf'\1"{url}"', value) if name.lower() == "www-authenticate" else value

    return replace(reply, headers=tuple((name, exchange(name, value)) for name, value in reply.headers))


async def rewrite_metadata(reply: UpstreamReply, call_route: RouteRequest) -> UpstreamReply | UpstreamFault:
    """Metadata with the route's URL here as its `resource`. A body that is not metadata is left as it is. Returns a
    fault for a body that cannot be read."""
    path = call_route.binding.route.rewrites_resource
    if not path or reply.status != 200:
        return reply
    whole = await read_whole(reply, _LONGEST)
    if isinstance(whole, UpstreamFault):
        return whole
    value = parse(whole.body) if isinstance(whole.body, bytes) else None
    if not isinstance(value, dict) or "resource" not in value:
        return replace(whole, headers=_without_stale(reply.headers))
    made = dumps({**value, "resource": f"{find_origin(call_route)}{path}"})
    return replace(reply, body=made, headers=_without_stale(reply.headers))


def find_origin(call_route: RouteRequest) -> str:
    """Returns the scheme and host with which the client addresses the proxy."""
    fields = dict(call_route.hop_fields)
    host = fields.get("x-forwarded-host") or call_route.raw.header("host") or ""
    return f"{fields.get('x-forwarded-proto') or 'http'}://{host}"


def _without_stale(headers: Iterable[tuple[str, str]]) -> Headers:
    return tuple(field for field in headers if field[0].lower() not in _STALE)
