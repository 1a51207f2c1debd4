"""Adds guidance to the answers that MCP clients read before they call (`guidance: {mcp: ...}`).

The config chooses one of two places:
  instructions   the answer to `initialize` or `server/discover`: the whole text follows the server's own instructions
  descriptions   the answer to `tools/list`: each tool's arguments and examples follow its own description

Lists can differ per credential. The guidance is therefore written from the list in the answer itself, or from the list
that the same credentials received before. Only the changed texts are replaced; every other byte stays as the server
wrote it. An answer that cannot be read, or that is longer than MAX_GUIDED, is forwarded unchanged.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue, Pointer, UpstreamReply
from proxy.extensions.mcp.adapters.mcplist import make_listing, read_page
from proxy.extensions.mcp.adapters.mcpmessage import LIST
from proxy.extensions.mcp.core.listed_tools import LearnedTools, LearnPolicy
from proxy.extensions.mcp.server.lists.asking import Asking
from proxy.extensions.mcp.server.lists.learner import decode_body
from proxy.extensions.mcp.server.lists.reading import Catalogues, get_catalogues
from proxy.interfaces import ToolTexts
from proxy.plugin import gather_body

# The longest answer that is changed, in bytes. Longer lists leave no room for guidance in a prompt.
MAX_GUIDED: Final = 1024 * 1024
# The most lists of one route whose texts are kept; the least recently used go first.
_MOST: Final = 64
_INTRODUCTIONS: Final = frozenset({"initialize", "server/discover"})
# These headers describe the bytes of the body.
_DROPPED: Final = frozenset({"content-encoding", "content-length", "etag", "content-md5", "digest", "repr-digest"})
_BETWEEN_EVENTS: Final = re.compile(rb"((?:\r\n){2,}|\n{2,}|\r{2,})")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")

# Takes the result of a message and returns the new texts by their place in the message.
_Write = Callable[[dict[str, JsonValue]], Mapping[Pointer, str]]


class GuidedAnswers:
    """Adds guidance to answers, and remembers what it wrote for each list."""

    def __init__(self) -> None:
        self._written: WeakKeyDictionary[Catalogues, OrderedDict[tuple[str, str], dict[str, str]]]
        self._written = WeakKeyDictionary()

    async def add_guidance(self, reply: UpstreamReply, asking: Asking, settings: ToolTexts | None) -> UpstreamReply:
        """Returns the answer with guidance if the config adds guidance to answers of this kind."""
        write = self._find_writer(asking, settings)
        if write is None or reply.status >= 300:
            return reply
        whole = await gather_body(reply, MAX_GUIDED)
        body = decode_body(whole, whole.body) if isinstance(whole.body, bytes) else None
        if body is None:
            return whole
        streamed = reply.header("content-type").partition(";")[0].strip().lower() == "text/event-stream"
        rewrite = _rewrite_events if streamed else _rewrite_message
        changed = await asyncio.to_thread(rewrite, body, asking.message.id, write)
        if changed == body:
            return whole
        headers = tuple(field for field in whole.headers if field[0].lower() not in _DROPPED)
        return replace(whole, headers=headers, body=changed)

    async def describe_tools(
        self, result: dict[str, JsonValue], tools: LearnedTools, settings: ToolTexts | None
    ) -> dict[str, JsonValue]:
        """Returns a list that the proxy writes itself, with guidance if the config adds it to descriptions."""
        if settings is None or settings.place != "descriptions":
            return result
        texts = await asyncio.to_thread(_write_texts, tools, _list_names(result), settings)
        listed = result.get("tools")
        entries = listed if isinstance(listed, list) else []
        return {**result, "tools": [_add_text(entry, texts) for entry in entries]}

    def _find_writer(self, asking: Asking, settings: ToolTexts | None) -> _Write | None:
        if settings is None:
            return None
        if settings.place == "descriptions" and asking.message.method == LIST:
            rules, known = (
                asking.rules,
                self._written.setdefault(get_catalogues(asking.call_route.binding), OrderedDict()),
            )
            return lambda result: _describe(result, rules, known, settings)
        if settings.place == "instructions" and asking.message.method in _INTRODUCTIONS:
            tools = _find_tools(asking)
            return lambda result: _instruct(result, tools, settings)
        return None


# --- instructions -----------------------------------------------------------------------------------------------------
def _find_tools(asking: Asking) -> Mapping[str, ToolPolicy]:
    """Returns the tools of the list known for the client's credentials, else those whose schema is in the config."""
    known = asking.learner.find_known(asking.key, asking.rules.ttl)
    if known is not None:
        return asking.make_served(known)
    return {name: policy for name, policy in asking.rules.whole().items() if asking.rules.serves(name)}


def _instruct(result: dict[str, JsonValue], tools: Mapping[str, ToolPolicy], settings: ToolTexts) -> dict[Pointer, str]:
    own = result.get("instructions", "")
    if not isinstance(own, str):
        return {}
    shown = _list_cheap(tools, _list_shown(tools))
    text = settings.write_instructions(shown)
    return {("result", "instructions"): f"{own}\n\n{text}" if own else text}


def _list_shown(tools: Mapping[str, ToolPolicy]) -> Iterable[str]:
    """Returns the names of the tools that a client sees. A container hides the tools that it holds."""
    if isinstance(tools, LearnedTools) and tools.container is not None:
        return (tools.container.name, *tools.own)
    return tools


def _list_cheap(tools: Mapping[str, ToolPolicy], names: Iterable[str]) -> dict[str, ToolPolicy]:
    """Returns the policies of the named tools, except tools whose schema must not be compiled in this process."""
    found: dict[str, ToolPolicy] = {}
    for name in names:
        if isinstance(tools, LearnedTools) and tools.find_unexamined(name) is not None:
            continue
        policy = tools.get(name)
        if policy is not None and policy.listed is None:
            found[name] = policy
    return found


# --- descriptions -----------------------------------------------------------------------------------------------------
def _describe(
    result: dict[str, JsonValue],
    rules: LearnPolicy,
    written: OrderedDict[tuple[str, str], dict[str, str]],
    settings: ToolTexts,
) -> dict[Pointer, str]:
    page = read_page({"result": result})
    if page is None:
        return {}
    listing = make_listing([page], 0)
    key = (listing.digest, rules.scope)
    texts = written.get(key)
    if texts is None:
        texts = written[key] = _write_texts(LearnedTools(listing, rules, careful=True), listing.tools, settings)
        if len(written) > _MOST:
            written.popitem(last=False)
    else:
        written.move_to_end(key)
    changes: dict[Pointer, str] = {}
    tools = result.get("tools")
    for at, entry in enumerate(tools if isinstance(tools, list) else ()):
        described = _add_text(entry, texts)
        if described is not entry and isinstance(described, dict):
            changes["result", "tools", at, "description"] = str(described["description"])
    return changes


def _write_texts(tools: LearnedTools, names: Iterable[str], settings: ToolTexts) -> dict[str, str]:
    """Returns the text to add to each tool's description. All texts together have at most `max_chars` characters; a
    tool whose text no longer fits gets none."""
    texts, max_chars = dict[str, str](), settings.max_chars
    for name in names:
        policy = _list_cheap(tools, [name]).get(name)
        text = settings.write_description(policy) if policy is not None and policy.check is not None else ""
        if text and len(text) + 2 <= max_chars:
            texts[name] = text
            max_chars -= len(text) + 2
    return texts


def _list_names(result: dict[str, JsonValue]) -> list[str]:
    tools = result.get("tools")
    return [str(tool.get("name")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def _add_text(entry: JsonValue, texts: Mapping[str, str]) -> JsonValue:
    """Returns a tool of a list with its text after its own description; the same object where it gets no text."""
    text = texts.get(str(entry.get("name"))) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or text is None or not isinstance(own := entry.get("description", ""), str):
        return entry
    return {**entry, "description": f"{own}\n\n{text}" if own else text}


# --- messages ---------------------------------------------------------------------------------------------------------
def _rewrite_message(text: bytes, request_id: JsonValue, write: _Write) -> bytes:
    """Adds the texts to a message that is the answer to `request_id`; returns any other message unchanged."""
    value = parse(text)
    result = value.get("result") if isinstance(value, dict) and "method" not in value else None
    if not isinstance(value, dict) or not isinstance(result, dict):
        return text
    answered = value.get("id")
    if type(answered) is not type(request_id) or answered != request_id:
        return text
    for place, new in write(result).items():
        text = replace_value(text, place, dumps(new))
    return text


def _rewrite_events(body: bytes, request_id: JsonValue, write: _Write) -> bytes:
    """Does the same in a stream of events: only the event with the answer is changed."""
    return b"".join(
        part if at % 2 else _rewrite_event(part, request_id, write)
        for at, part in enumerate(_BETWEEN_EVENTS.split(body))
    )


def _rewrite_event(block: bytes, request_id: JsonValue, write: _Write) -> bytes:
    lines = _LINE_END.split(block)
    data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
    changed = _rewrite_message(data, request_id, write) if data else data
    if changed == data:
        return block
    first = next(at for at, line in enumerate(lines) if line.startswith(b"data:"))
    others = [line for line in lines[first:] if not line.startswith(b"data:")]
    end = found[0] if (found := _LINE_END.search(block)) else b"\n"
    return end.join([*lines[:first], *(b"data: " + line for line in changed.split(b"\n")), *others])
