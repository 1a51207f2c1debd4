"""`wrap_success`: a tool's JSON answer as GoMind's `ToolResponse`, `{"success": true, "data": ...}`.

Nothing is written anew: the answer's own bytes stand between two fixed texts, so every number keeps its digits and
every key its place. What is no complete JSON text, what streams, and what says `success` itself is left as it is.
"""

from __future__ import annotations

from typing import Final

from proxy.core.contentcoding import Undecodable, decode, is_coded
from proxy.core.jsontext import parse
from proxy.core.model import JsonProblem, UpstreamReply

# Other successes have no body, or a part of one (RFC 9110 section 15.3).
_WHOLE: Final = frozenset({200, 201, 202, 203})
# The most that a coded answer may hold.
_LONGEST: Final = 16 * 1024 * 1024
_BEFORE, _AFTER = b'{"success": true, "data": ', b"}"
# What is said of the tool's bytes and no longer true of ours (RFC 9110 section 8, RFC 9530).
_OF_ITS_BYTES: Final = frozenset(
    ["content-length", "content-encoding", "etag", "accept-ranges", "content-md5", "digest", "content-digest",
     "repr-digest"]
)  # fmt: skip


def wrapped(reply: UpstreamReply) -> UpstreamReply:
    """The answer in GoMind's envelope, or as it is where it cannot be wrapped without loss."""
    if reply.status not in _WHOLE or not isinstance(reply.body, bytes) or not _is_json(reply):
        return reply
    coding = next((value for name, value in reply.headers if name.lower() == "content-encoding"), "")
    body = decode(reply.body, coding, _LONGEST) if is_coded(coding) else reply.body
    if isinstance(body, Undecodable):
        return reply
    value = parse(body)
    if isinstance(value, JsonProblem) or (isinstance(value, dict) and isinstance(value.get("success"), bool)):
        return reply
    headers = tuple((name, value) for name, value in reply.headers if name.lower() not in _OF_ITS_BYTES)
    return UpstreamReply(reply.status, headers, _BEFORE + body + _AFTER)


def _is_json(reply: UpstreamReply) -> bool:
    typed = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
    media_type = typed.split(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")
