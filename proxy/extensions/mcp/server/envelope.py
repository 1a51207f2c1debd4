"""Holds requests of 2026-07-28 against what their server has to enforce, if the proxy is that server (`OwnServer`).

Servers at a URL enforce it themselves. Over stdio, and for several servers at one address, nobody else sees the
headers. A request that only its header claims for this revision could also bring a server that clients share into the
era of sessions (specification, "Per-request protocol fields", "Server Validation", "Protocol Version Header").
"""

from __future__ import annotations

from typing import Final

from proxy.core.model.values import ABSENT, JsonValue, RawRequest, UpstreamReply
from proxy.extensions.mcp.adapters.mcpmessage import (
    CAPABILITIES_META,
    MODERN,
    SESSION_HEADER,
    VERSION_META,
    Message,
    find_missing_header,
)
from proxy.extensions.mcp.upstream.own_answers import INVALID_PARAMS, METHOD_NOT_FOUND, OwnServer, write_error
from proxy.interfaces import GuardedUpstream

_HEADER_MISMATCH: Final = -32020
_UNSUPPORTED_VERSION: Final = -32022
# Requests of older revisions (changelog of 2026-07-28).
_REMOVED: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)  # fmt: skip


def is_own_server(upstream: GuardedUpstream) -> bool:
    """Returns whether the proxy is the HTTP server of this upstream's clients."""
    inner = getattr(upstream, "unguarded", None)
    return isinstance(inner, OwnServer) and inner.is_http_server


def refuse_unfit(message: Message, request: RawRequest) -> UpstreamReply | None:
    """The refusal of a message that claims a revision without sessions and lacks what that revision requires; None for
    every other message."""
    named = message.meta.get(VERSION_META, ABSENT)
    is_of_session = request.header(SESSION_HEADER) is not None or message.method == "initialize"
    if not message.modern and (named is ABSENT or is_of_session):
        return None
    version = named if isinstance(named, str) else message.revision
    if version != MODERN:
        data: JsonValue = {"supported": [MODERN], "requested": version}
        return write_error(message, _UNSUPPORTED_VERSION, "Unsupported protocol version", 400, data)
    if message.id is ABSENT or not message.method:
        return None  # this revision defines no envelope for notifications
    if not isinstance(named, str) or not isinstance(message.meta.get(CAPABILITIES_META), dict):
        text = f"params._meta must have {VERSION_META!r}, a string, and {CAPABILITIES_META!r}, an object"
        return write_error(message, INVALID_PARAMS, text, 400)
    if missing := find_missing_header(request, message):
        return write_error(message, _HEADER_MISMATCH, missing, 400)
    if message.method in _REMOVED:
        return write_error(message, METHOD_NOT_FOUND, f"Method not found: {message.method}", 404)
    return None
