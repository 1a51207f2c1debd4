"""Makes functions visible (HPD): the functions that a session was shown stand in its list of tools from then on.

Only sessions of the old revisions have a list of their own: since 2026-07-28 it must not vary by connection. The client
hears of it with the answer that showed them, which is then a stream: `list_changed` first, the answer behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import HttpReply, JsonValue

# Sessions whose functions are remembered; the least recently used go first.
MOST_SESSIONS: Final = 20_000
_CHANGED: Final = dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


class VisibleTools:
    """The functions that each session has been shown."""

    def __init__(self) -> None:
        self._shown: OrderedDict[tuple[object, str], dict[str, None]] = OrderedDict()

    def of(self, key: object, session: str) -> tuple[str, ...]:
        """The names that a session has been shown, in their order."""
        return tuple(self._shown.get((key, session), ()))

    def add(self, key: object, session: str, text: bytes) -> bool:
        """Notes the functions in an answer; returns whether some are new."""
        names = find_names(text)
        if not session or not names:
            return False
        known = self._shown.setdefault((key, session), {})
        self._shown.move_to_end((key, session))
        if len(self._shown) > MOST_SESSIONS:
            self._shown.popitem(last=False)
        before = len(known)
        known.update(dict.fromkeys(names))
        return len(known) > before

    def forget(self, key: object, session: str) -> None:
        """Forgets a session."""
        self._shown.pop((key, session), None)


def find_names(text: bytes) -> list[str]:
    """The names of the functions that an answer of ours describes."""
    value = parse(text)
    functions = value.get("functions") if isinstance(value, dict) else None
    found: list[JsonValue] = functions if isinstance(functions, list) else []
    return [name for each in found if isinstance(each, dict) and isinstance(name := each.get("name"), str)]


def announce_change(reply: HttpReply) -> HttpReply:
    """An answer as a stream that says before it that the list has changed."""
    headers = tuple(field for field in reply.headers if field[0].lower() != "content-type")
    if not reply.body.startswith(b"{"):  # a stream already
        return replace(reply, body=b"event: message\ndata: " + _CHANGED + b"\n\n" + reply.body)
    events = b"".join(b"event: message\ndata: " + data + b"\n\n" for data in (_CHANGED, reply.body))
    return HttpReply(reply.status, (("Content-Type", "text/event-stream"), *headers), events)
