"""The list of tools that clients see where the route chooses tools, renames them, or groups them (`collapse`).

`mcp.allow` and `mcp.deny` hide tools, and so may `pins`; `as` and `description` below `mcp.tools` give them other names
and texts. Only these parts of the list change; every other byte of the message stays as the server wrote it.

`collapse` shows one container in place of a server's tools (docs/contract.md). Its list has one page and is the same
for all clients that may use the same tools, because MCP 2026-07-28 forbids lists that vary by connection. A session of
an older revision also sees the functions that an answer has shown to it (HPD). That answer is sent as a stream that
begins with `list_changed`, so that the client reads the list again. A container with many functions has `search_tools`
and `describe_tool` beside it. The functions in the container are described when it is called.
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from proxy.core.contract.container import SEARCH
from proxy.core.contract.listed_tool import BadSchemaError, Unparsed, parse_schema
from proxy.core.json.contentcoding import is_coded
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import HttpReply, JsonValue, Pointer, UpstreamReply
from proxy.extensions.mcp.adapters.mcp import INTERNAL_ERROR
from proxy.extensions.mcp.adapters.mcplist import MAX_LIST, find_twin, read_hints, read_tool
from proxy.extensions.mcp.adapters.mcpmessage import Message
from proxy.extensions.mcp.core.listed_tools import LearnedTools, LearnPolicy, ListedTool, Listing
from proxy.extensions.mcp.core.tool_search import DESCRIBE, DESCRIBE_TOOL, SEARCH_TOOL
from proxy.extensions.mcp.server.lists.learner import decode_body
from proxy.upstream.faults import close_body, close_stream

_TOO_LONG: Final = (
    f"The server's list of tools has more than {MAX_LIST >> 20} MiB, which is too long to leave out the tools that are "
    "not served here. The server has to list them on several pages."
)
_EVENT_TOO_LONG: Final = (
    f"An event of this stream has more than {MAX_LIST >> 20} MiB, which is too long to leave out tools that are not "
    "served here."
)
_UNREADABLE: Final = (
    "The server's list of tools cannot be read as strict JSON, so what is not served here cannot be left out."
)
_TWO_READINGS: Final = "The server's list of tools has two readings: {reason}."
# The key of a list, also if case does not count (Go reads a long s as s), and an escape that may hide it.
_LIST_KEY: Final = re.compile(rb'"tool(?:s|\xc5\xbf)"|\\u0', re.IGNORECASE)
# The empty line at the end of an event, however lines end (WHATWG HTML, "Parsing an event stream").
_EVENT_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# A byte order mark, which clients leave out at the beginning of a stream.
_MARK: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\r")
_DROPPED: Final = frozenset({"content-encoding", "content-length", "etag", "content-md5", "digest", "repr-digest"})
# The most function names in the container's description.
_SHOWN: Final = 40
_DISPATCHED: Final[dict[str, JsonValue]] = {
    "function": {"type": "string", "description": "The tool to call; leave it out to see them all."},
    "arguments": {"type": "object", "description": "Its arguments."},
}
_PAGED: Final[dict[str, JsonValue]] = {
    "page": {"type": "integer", "minimum": 1, "description": "The page to see, where there are several; alone."}
}
# The most sessions whose functions are remembered; the least recently used go first.
MOST_SESSIONS: Final = 20_000
_CHANGED: Final = dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


# Receives each tool whose definition is not the approved one, or whose entry or list (without a name) is ambiguous.
Report = Callable[[ListedTool], None]


def filter_list(
    reply: UpstreamReply,
    rules: LearnPolicy,
    request_id: JsonValue,
    report: Report = lambda tool: None,  # noqa: ARG005
) -> UpstreamReply:
    """Writes an answer to `tools/list` as clients see it. An answer that cannot be read as a list, or is too long for
    that, is replaced by an error that says so. `report` receives each tool that is not approved or unusable."""
    headers = tuple(field for field in reply.headers if field[0].lower() not in _DROPPED)
    reading = _Reading(reply, rules, request_id, report)
    if isinstance(reply.body, bytes):
        return replace(reply, headers=headers, body=reading.write(reply.body))
    return replace(reply, headers=headers, body=_Gathered(reply, reading))


def filter_events(reply: UpstreamReply, rules: LearnPolicy, report: Report) -> UpstreamReply:
    """Filters each event of a resumed stream (`Last-Event-ID`) as it comes, because the answer to a `tools/list` may be
    among them. An encoded answer, or one that is not a stream of events, is read to its end first."""
    reading = _Reading(reply, rules, None, report)
    if isinstance(reply.body, bytes) or not reading.is_streamed or is_coded(reply.header("content-encoding")):
        return filter_list(reply, rules, None, report)
    headers = tuple(field for field in reply.headers if field[0].lower() not in _DROPPED)
    return replace(reply, headers=headers, body=_FilteredEvents(reply.body, reading))


class _FilteredEvents:
    """A stream of events, each passed on once it is whole. One that is too long ends the stream with an error."""

    def __init__(self, body: AsyncIterator[bytes], reading: _Reading) -> None:
        self._body = body
        self._reading = reading
        self._kept = bytearray()
        self._ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            try:
                piece = await anext(self._body)
            except StopAsyncIteration:
                break
            if passed := self._take_events(piece):
                return passed
        self._ended = True
        if not self._kept:
            raise StopAsyncIteration
        last, self._kept = (
            bytes(self._kept),
            bytearray(),
        )  # an event without an end is not an event, but some clients read it as one
        return self._reading.write_event(last)

    def _take_events(self, piece: bytes) -> bytes:
        """The events that a further piece completes, as clients see them."""
        searched = max(len(self._kept) - 3, 0)
        self._kept += piece
        passed, start = bytearray(), 0
        for end in _EVENT_END.finditer(self._kept, searched):
            passed += self._reading.write_event(bytes(self._kept[start : end.end()]))
            start = end.end()
        self._kept = self._kept[start:]
        if len(self._kept) > MAX_LIST:
            self._kept, self._ended = bytearray(), True
            passed += self._reading.write_error(_EVENT_TOO_LONG)
        return bytes(passed)

    async def aclose(self) -> None:
        """Closes the stream early."""
        self._ended, self._kept = True, bytearray()
        await close_stream(self._body)


class _Gathered:
    """A stream that is read to its end and then passed on in one piece."""

    def __init__(self, reply: UpstreamReply, reading: _Reading) -> None:
        self._reply = reply
        self._reading = reading
        self._pieces = self._read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def _read(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        if not isinstance(self._reply.body, bytes):
            async for piece in self._reply.body:
                whole += piece
                if len(whole) > MAX_LIST:
                    break
        yield self._reading.write(bytes(whole))

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Closes the stream early."""
        await close_body(self._reply)


class _Reading:
    """Filters the text of an answer. An error that replaces the answer has `request_id` as its id."""

    def __init__(self, reply: UpstreamReply, rules: LearnPolicy, request_id: JsonValue, report: Report) -> None:
        self._reply = reply
        self._rules = rules
        self._report = report
        self._request_id = request_id
        kind = reply.header("content-type").partition(";")[0].strip().lower()
        self.is_streamed = kind == "text/event-stream"

    def write(self, sent: bytes) -> bytes:
        """Returns the whole answer for the client. `sent` is the upstream's answer, longer than MAX_LIST where reading
        stopped there."""
        body = decode_body(self._reply, sent) if len(sent) <= MAX_LIST else None
        if body is None:
            why = _TOO_LONG if len(sent) > MAX_LIST else _UNREADABLE
            return self.write_error(why) if self.is_streamed else self._error(why)
        if not self.is_streamed:
            return self._message(body)
        ends = [0, *(end.end() for end in _EVENT_END.finditer(body)), len(body)]
        return b"".join(self.write_event(body[start:end]) for start, end in pairwise(ends))

    def write_event(self, event: bytes) -> bytes:
        """Returns an event, with the empty line at its end, as clients see it."""
        lines = _LINE_END.sub(b"\n", event.removeprefix(_MARK)).split(b"\n")
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        written = self._message(data) if data else data
        if written == data:
            return event
        others = [line for line in lines if line and not line.startswith(b"data:")]
        return b"\n".join([*others, b"data: " + written, b"", b""])

    def write_error(self, message: str) -> bytes:
        """Returns an event with an error in the place of an answer."""
        return b"data: " + self._error(message) + b"\n\n"

    def _message(self, text: bytes) -> bytes:
        """A message, or a batch of them; a list of tools holds only what the route serves."""
        if not _LIST_KEY.search(text):
            return text
        value = parse(text)
        if not isinstance(value, dict | list):
            return self._error(_UNREADABLE)  # unreadable text could list hidden tools
        messages = enumerate(value) if isinstance(value, list) else [(None, value)]
        changes: dict[Pointer, bytes] = {}
        for at, message in messages:
            if twin := find_twin(message):
                self._report(ListedTool("", schema=Unparsed(b"", twin)))
                return self._error(_TWO_READINGS.format(reason=twin))
            if (shown := self._filter(message)) is not None:
                changes[(*(() if at is None else (at,)), "result", "tools")] = dumps(shown)
        return replace_values(text, changes) if changes else text

    def _filter(self, message: JsonValue) -> list[JsonValue] | None:
        """The tools of the list in a message as clients see them; None where nothing differs."""
        result = message.get("result") if isinstance(message, dict) else None
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return None
        shown: list[JsonValue] = [entry for tool in tools if (entry := self._show(tool)) is not None]
        return None if len(shown) == len(tools) and all(map(operator.is_, shown, tools)) else shown

    def _show(self, tool: JsonValue) -> JsonValue:
        """An entry of the list as clients see it, the same object where nothing differs; None where they do not."""
        if not isinstance(tool, dict):
            return None
        listed = str(tool.get("name"))
        name = self._rules.show_name(listed, read_hints(tool))
        if name is None or self._is_hidden(tool):
            return None
        described = self._rules.descriptions.get(name)
        if name == listed and described in (None, tool.get("description")):
            return tool
        return {**tool, "name": name, **({} if described is None else {"description": described})}

    def _is_hidden(self, entry: dict[str, JsonValue]) -> bool:
        """Returns whether a tool is hidden: its entry has two readings or its definition is not the approved one."""
        pinned, tool = self._rules.pinned, read_tool(entry)
        if tool is None:
            return False
        has_twin, is_pinned = isinstance(tool.schema, Unparsed), self._rules.is_pinned(tool)
        if has_twin or not is_pinned:
            self._report(tool)
        return has_twin or (not is_pinned and pinned is not None and pinned.changed == "hide")

    def _error(self, message: str) -> bytes:
        error: JsonValue = {"code": INTERNAL_ERROR, "message": message}
        return dumps({"jsonrpc": "2.0", "id": self._request_id, "error": error})


def make_collapsed_list(
    message: Message, tools: LearnedTools, rules: LearnPolicy, visible: Iterable[str] = ()
) -> dict[str, JsonValue]:
    """The result of `tools/list`: the container, the search, the `visible` functions. Every further page is empty."""
    container = rules.collapse
    if container is None:
        raise AssertionError("a route without `collapse` shows its tools")
    is_searched = bool(tools.own)
    tool: dict[str, JsonValue] = {
        "name": container.name,
        "description": rules.collapse_description
        or _describe_container(tools.listing, container.auto_expand == "dispatch", is_searched),
        "inputSchema": _make_schema(dispatched=container.auto_expand == "dispatch", is_paged=is_searched),
    }
    own: list[JsonValue] = [one for one in (SEARCH_TOOL, DESCRIBE_TOOL) if one["name"] in tools.own]
    seen: list[JsonValue] = [_as_listed(found) for name in visible if (found := tools.listing.tools.get(name))]
    shown = [] if isinstance(message.param("cursor"), str) else [tool, *own, *seen]
    fresh = {"ttlMs": int(rules.ttl * 1000), "cacheScope": "private"} if message.modern else {}
    return {"tools": shown, **fresh}


def _make_schema(*, dispatched: bool, is_paged: bool) -> JsonValue:
    """Returns the schema of the container's parameters."""
    properties = dict(_DISPATCHED) if dispatched else {}
    return {"type": "object", "properties": {**properties, **(_PAGED if is_paged else {})}}


def _as_listed(tool: ListedTool) -> JsonValue:
    """Returns a function as an entry of the list."""
    listed: dict[str, JsonValue] = {"name": tool.name, "description": tool.description}
    for key, schema in (("inputSchema", tool.schema), ("outputSchema", tool.output)):
        try:
            value = parse_schema(schema)
        except BadSchemaError:
            continue
        if isinstance(value, dict):
            listed[key] = value
    if tool.destructive:
        listed["annotations"] = {"destructiveHint": True}
    return {"inputSchema": {"type": "object"}, **listed}


def _describe_container(listing: Listing, dispatched: bool, is_searched: bool) -> str:
    names = list(listing.tools)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    then = (
        'call it again with {"function": <name>, "arguments": <its arguments>} to use one'
        if dispatched
        else "call the one you need by its own name"
    )
    if is_searched:
        then = f"{then}. `{SEARCH}` finds tools by what they do, `{DESCRIBE}` shows one"
    return (
        f"Groups {len(names)} tools. Call it with no arguments to get their descriptions and schemas, then {then}. "
        f"Tools: {', '.join(names[:_SHOWN])}{more}"
    )


class VisibleTools:
    """The names of the functions that answers have shown to each session."""

    def __init__(self) -> None:
        self._shown: OrderedDict[tuple[object, str], dict[str, None]] = OrderedDict()

    def of(self, key: object, session: str) -> tuple[str, ...]:
        """Returns the names that were shown to a session, in the order in which they were shown."""
        return tuple(self._shown.get((key, session), ()))

    def add(self, key: object, session: str, text: bytes) -> bool:
        """Remembers the functions in an answer; returns whether some of them are new to the session."""
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
    """Returns the names of the functions that an answer of the proxy describes."""
    value = parse(text)
    functions = value.get("functions") if isinstance(value, dict) else None
    found: list[JsonValue] = functions if isinstance(functions, list) else []
    return [name for each in found if isinstance(each, dict) and isinstance(name := each.get("name"), str)]


def announce_change(reply: HttpReply) -> HttpReply:
    """The answer as an event stream that first announces that the list has changed."""
    headers = tuple(field for field in reply.headers if field[0].lower() != "content-type")
    if not reply.body.startswith(b"{"):  # the body is a stream of events already
        return replace(reply, body=b"event: message\ndata: " + _CHANGED + b"\n\n" + reply.body)
    events = b"".join(b"event: message\ndata: " + data + b"\n\n" for data in (_CHANGED, reply.body))
    return HttpReply(reply.status, (("Content-Type", "text/event-stream"), *headers), events)
