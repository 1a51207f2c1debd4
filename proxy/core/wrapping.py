"""`wrap_success`: a tool's JSON answer as GoMind's `ToolResponse`, `{"success": true, "data": ...}`.

Nothing is written anew: the answer's own bytes stand between two fixed texts, so every number keeps its digits and
every key its place. What is no complete JSON text, what streams, and what says `success` itself is left as it is.
"""

from __future__ import annotations

from typing import Final

from proxy.core.answers import json_answer
from proxy.core.model import UpstreamReply

_BEFORE, _AFTER = b'{"success": true, "data": ', b"}"
# What is said of the tool's bytes and no longer true of ours (RFC 9110 section 8, RFC 9530).
_OF_ITS_BYTES: Final = frozenset(
    ["content-length", "content-encoding", "etag", "accept-ranges", "content-md5", "digest", "content-digest",
     "repr-digest"]
)  # fmt: skip


def wrapped(reply: UpstreamReply) -> UpstreamReply:
    """The answer in GoMind's envelope, or as it is where it cannot be wrapped without loss."""
    answer = json_answer(reply)
    if answer is None or (isinstance(answer.value, dict) and isinstance(answer.value.get("success"), bool)):
        return reply
    headers = tuple((name, value) for name, value in reply.headers if name.lower() not in _OF_ITS_BYTES)
    return UpstreamReply(reply.status, headers, _BEFORE + answer.text + _AFTER)
