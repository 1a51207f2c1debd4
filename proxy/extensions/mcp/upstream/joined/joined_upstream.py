"""`JoinedUpstream`: each HTTP exchange is answered here, for all servers at once, or by the one server that it is for.

`initialize`, `server/discover`, `ping` are answered here, with the capabilities of all servers.
Lists have the entries of all servers, on one page.
`tools/call`, `prompts/get`, completions go to the server named before the tool's name, under its own name.
Resources go to the server that lists them, or to each until one has it.
`GET`, `subscriptions/listen` return the messages that servers send without a request.
`DELETE` ends the sessions with all servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.policy import ToolServer
from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.fields import NO_NAMES
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Fields,
    Headers,
    JsonProblem,
    JsonValue,
    Pointer,
    RawRequest,
    UpstreamFault,
    UpstreamReply,
)
from proxy.extensions.mcp.adapters.mcpmessage import SESSION_HEADER, Message, MessageBatch, read_message
from proxy.extensions.mcp.upstream import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NO_SESSION,
    NOT_INITIALIZED,
    OwnServer,
    choose_revision,
    describe_self,
    header_of,
    plain_request,
    write_discovery,
    write_error,
    write_list,
    write_refusal,
    write_result,
)
from proxy.extensions.mcp.upstream.joined.change_feed import FeedReader, write_named
from proxy.extensions.mcp.upstream.joined.client_groups import ClientGroups
from proxy.extensions.mcp.upstream.joined.event_rewriting import (
    LIMITS,
    RewrittenStream,
    ServerEvent,
    is_stream,
    name_event,
    read_question_id,
)
from proxy.extensions.mcp.upstream.joined.introduction import Introduction, JoinedSettings
from proxy.extensions.mcp.upstream.joined.merged_lists import LATE, LISTS, ListedNames, MergedLists, merge_capabilities
from proxy.extensions.mcp.upstream.joined.server_group import ServerGroup
from proxy.extensions.mcp.upstream.joined.server_link import ServerLink
from proxy.interfaces import GuardedUpstream, UpstreamRequest

Answer = UpstreamReply | UpstreamFault

_EVENTS: Final[Headers] = (("content-type", "text/event-stream"), ("cache-control", "no-cache"))
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
# Methods with a name -> its place.
_NAMED: Final[dict[str, Pointer]] = {"tools/call": ("params", "name"), "prompts/get": ("params", "name")}
_OF_RESOURCES: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_FILTERS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


class JoinedUpstream(OwnServer):
    """Implements `Upstream` and `JoinsServers`. `upstreams` are the connections to the servers, by their names in
    the settings. Made inside a running event loop."""

    def __init__(self, settings: JoinedSettings, upstreams: Mapping[str, GuardedUpstream]) -> None:
        self._settings = settings
        self._clients = ClientGroups(settings, upstreams)
        prefixes = _prefixes(settings)
        self._names = {
            "tools/list": ListedNames(prefixes, always=settings.always),
            "prompts/list": ListedNames(prefixes, always=settings.always),
        }
        self._lists = MergedLists(self._names)

    @property
    def down(self) -> Mapping[str, str]:
        return self._clients.down

    def list_servers(self) -> tuple[ToolServer, ...]:
        return self._settings.list_servers(self.down)

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> Answer:
        return await self._exchange(request, request.body, checked)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:
        whole = request.body if body is None else b"".join([piece async for piece in body])
        return await self._exchange(request, whole, None)

    def find_server(self, tool: str) -> str:
        """The server that a tool's name belongs to, whether or not it lists such a tool; '' without one."""
        found = self._names["tools/list"].find(tool)
        return found[0] if found is not None else ""

    def find_starting(self, tool: str, session: str) -> str:
        """The server that may have a tool of this name and is only starting for these clients; '' without one."""
        own = self.find_server(tool)
        servers = [own] if own else [] if self._settings.always else [each.name for each in self._settings.servers]
        return next((name for name in servers if self._clients.is_starting(name, session)), "")

    def can_change(self, settings: JoinedSettings) -> bool:
        """Returns whether open sessions can continue with other servers: no name that clients know changes its tool."""
        return all(names.keeps_meaning(_prefixes(settings)) for names in self._names.values())

    def change_servers(
        self, settings: JoinedSettings, upstreams: Mapping[str, GuardedUpstream]
    ) -> frozenset[asyncio.Task[None]]:
        """Serves other servers from now on; `can_change` has allowed it. Sessions stay open, listening clients get a
        notification for each list that differs, and servers that stay notice nothing. Gives the tasks that end the
        sessions with the other servers; until they are done, the connections to those servers are in use."""
        shown = _prefixes(settings), settings.always
        is_renamed = (_prefixes(self._settings), self._settings.always) != shown
        self._settings = settings
        for names in self._names.values():
            names.change_prefixes(shown[0], always=shown[1])
        return self._clients.change(settings, upstreams, is_renamed=is_renamed)

    async def close(self) -> None:
        await self._clients.close()

    async def _exchange(self, request: UpstreamRequest, body: bytes, checked: CheckedCall | None) -> Answer:
        request = replace(request, client_names=NO_NAMES)
        match request.method:
            case "POST":
                return await self._post(request, body, checked)
            case "GET":
                return await self._listen(request)
            case "DELETE":
                return self._delete(request)
            case _:
                return UpstreamReply(405, (("allow", "GET, POST, DELETE"),), b"")

    async def _post(self, request: UpstreamRequest, body: bytes, checked: CheckedCall | None) -> Answer:
        raw = RawRequest(request.method, request.target, "", Fields(request.headers), body, {}, "")
        message = read_message(raw, LIMITS)
        if isinstance(message, JsonProblem | MessageBatch):
            return write_refusal(400, INVALID_REQUEST, "Invalid Request: one JSON-RPC message is expected")
        if message.modern:
            return await self._serve(self._clients.find_shared(request), message, body, request, checked)
        if message.method == "initialize":
            return await self._initialize(message, request)
        session_id = raw.header(SESSION_HEADER)
        if session_id is None:
            return write_refusal(400, NOT_INITIALIZED, "Bad Request: Server not initialized")
        group = self._clients.find(session_id)
        if group is None:
            return write_refusal(404, NO_SESSION, "Session not found")
        return await self._serve(group, message, body, request, checked)

    # --- sessions -----------------------------------------------------------------------------------------------------
    async def _initialize(self, message: Message, request: UpstreamRequest) -> Answer:
        if message.id is ABSENT:
            return write_refusal(400, INVALID_REQUEST, "Invalid Request: `initialize` has an id")
        revision = choose_revision(message)
        capabilities, client = message.param("capabilities"), message.param("clientInfo")
        who = Introduction(
            revision,
            capabilities if isinstance(capabilities, dict) else {},
            client if isinstance(client, dict) else self._self(),
        )
        session_id, group = await self._clients.begin(who, request)
        result = {"protocolVersion": revision, **self._describe(group), "serverInfo": self._self()}
        reply = write_result(message, result)
        return replace(reply, headers=(*reply.headers, (SESSION_HEADER, session_id)))

    def _delete(self, request: UpstreamRequest) -> Answer:
        session_id = header_of(request, SESSION_HEADER)
        if not session_id:
            return UpstreamReply(405, (("allow", "POST"),), b"")
        if not self._clients.end(session_id, request):
            return write_refusal(404, NO_SESSION, "Session not found")
        return UpstreamReply(200, (), b"")

    # --- messages -----------------------------------------------------------------------------------------------------
    async def _serve(
        self, group: ServerGroup, message: Message, body: bytes, request: UpstreamRequest, checked: CheckedCall | None
    ) -> Answer:
        if message.id is ABSENT or not message.method:
            await self._tell(group, message, body, request)
            return UpstreamReply(202, (), b"")
        method = message.method
        if method in LISTS:
            if request.passed_on is not None:  # query each server again
                request.passed_on()
            return await self._list(group, message, request)
        if method in _NAMED:
            return await self._carry_named(group, message, body, request, checked)
        if method in _OF_RESOURCES:
            return await self._carry_resource(group, message, message.param("uri"), body, request)
        if method == "completion/complete":
            return await self._complete(group, message, body, request)
        if method.startswith("tasks/"):
            return await self._carry_to_any(group, "tasks", message, body, request)
        match method:
            case "ping":
                return write_result(message, {})
            case "server/discover" if message.modern:
                return await self._discover(group, message, request)
            case "subscriptions/listen" if message.modern:
                return self._subscribe(group, message, request)
            case "logging/setLevel":
                params = message.params if isinstance(message.params, dict) else {}
                await group.set_level(params, plain_request(request))
                return write_result(message, {})
            case _:
                return write_error(message, METHOD_NOT_FOUND, f"Method not found: {method}")

    async def _tell(self, group: ServerGroup, message: Message, body: bytes, request: UpstreamRequest) -> None:
        """Passes on a notification, or the client's answer to a server's request."""
        if message.method == "notifications/initialized":
            return  # each server has had its own
        if message.method == "notifications/cancelled":
            await group.cancel(message, body, request)
        elif message.method:
            await group.tell_all(message, body, request)
        elif (origin := read_question_id(message.id)) and (link := group.find_asking(origin[0])):
            await link.tell(replace_value(body, ("id",), dumps(origin[1])), request, message)

    async def _list(self, group: ServerGroup, message: Message, request: UpstreamRequest) -> Answer:
        if isinstance(message.param("cursor"), str):
            return write_error(message, INVALID_PARAMS, "Invalid cursor: the list has one page")
        entries, lifetime = await self._fetch(group, message.method, request)
        return write_list(message, LISTS[message.method], entries, lifetime)

    async def _fetch(self, group: ServerGroup, method: str, request: UpstreamRequest) -> tuple[bytes, int]:
        """The entries of a list of all servers, and for how many milliseconds it may be kept."""
        listed, is_whole = await group.lists(method, plain_request(request))
        lifetimes = [page.ttl or 0 for pages in listed.values() for page in pages] if is_whole else []
        return self._lists.merge(method, listed), min(lifetimes, default=0)

    async def _find_prompt(self, group: ServerGroup, shown: str, request: UpstreamRequest) -> tuple[str, str] | None:
        """The server and the own name of a prompt. Clients may know it from a list before this process started."""
        names = self._names["prompts/list"]
        found = names.find(shown)
        if found is None and "prompts/list" not in group.listed:
            await self._fetch(group, "prompts/list", request)
            found = names.find(shown)
        return found

    async def _find_owner(self, group: ServerGroup, uri: JsonValue, request: UpstreamRequest) -> str | None:
        """The server that lists a resource or a template."""
        if not isinstance(uri, str):
            return None
        for method in ("resources/list", "resources/templates/list"):
            owner = group.resources.find(uri)
            if owner is None and method not in group.listed:
                await self._fetch(group, method, request)
        return group.resources.find(uri)

    async def _carry_named(
        self, group: ServerGroup, message: Message, body: bytes, request: UpstreamRequest, checked: CheckedCall | None
    ) -> Answer:
        kind = "tool" if message.method == "tools/call" else "prompt"
        shown = message.param("name")
        shown = shown if isinstance(shown, str) else ""
        if kind == "tool":
            found = self._names["tools/list"].find(shown)
        else:
            found = await self._find_prompt(group, shown, request)
        if found is None:
            return self._write_unknown(message, kind, shown)
        server, name = found
        params = message.params if isinstance(message.params, dict) else {}
        inner = replace(message, params={**params, "name": name})
        body = replace_value(body, _NAMED[message.method], dumps(name))
        return await group.carry(group.links[server], inner, body, request, checked)

    async def _carry_resource(
        self, group: ServerGroup, message: Message, uri: JsonValue, body: bytes, request: UpstreamRequest
    ) -> Answer:
        owner = await self._find_owner(group, uri, request)
        if owner is not None and owner in group.links:
            return await group.carry(group.links[owner], message, body, request, None)
        return await self._carry_to_any(group, "resources", message, body, request)

    async def _carry_to_any(
        self, group: ServerGroup, capability: str, message: Message, body: bytes, request: UpstreamRequest
    ) -> Answer:
        await group.open(plain_request(request), self._settings.wait)
        able: Iterable[ServerLink] = [link for link in group.links.values() if capability in link.capabilities]
        reply = await group.carry_to_any(able, message, body, request)
        return reply or write_error(message, METHOD_NOT_FOUND, f"Method not found: {message.method}")

    async def _complete(self, group: ServerGroup, message: Message, body: bytes, request: UpstreamRequest) -> Answer:
        ref = message.param("ref")
        ref = ref if isinstance(ref, dict) else {}
        shown = ref.get("name")
        if not isinstance(shown, str):
            return await self._carry_resource(group, message, ref.get("uri"), body, request)
        found = await self._find_prompt(group, shown, request)
        if found is None:
            return self._write_unknown(message, "prompt", shown)
        body = replace_value(body, ("params", "ref", "name"), dumps(found[1]))
        return await group.carry(group.links[found[0]], message, body, request, None)

    def _write_unknown(self, message: Message, kind: str, name: str) -> UpstreamReply:
        lacking = f" (out of reach: {', '.join(self.down)})" if self.down else ""
        return write_error(message, INVALID_PARAMS, f"Unknown {kind}: {name}{lacking}")

    # --- the joined server --------------------------------------------------------------------------------------------
    async def _discover(self, group: ServerGroup, message: Message, request: UpstreamRequest) -> Answer:
        await group.open(plain_request(request), self._settings.wait)
        return write_discovery(message, self._describe(group), self._settings.version)

    def _describe(self, group: ServerGroup) -> dict[str, JsonValue]:
        """The capabilities and instructions of all servers."""
        links = [link for link in group.links.values() if link.info]
        instructions = [
            f"## {link.server.name}\n\n{text}"
            for link in links
            if isinstance(text := link.info.get("instructions"), str) and text
        ]
        late = [LATE] if any(link.is_opening for link in group.links.values()) else []
        capabilities: JsonValue = merge_capabilities([*(link.capabilities for link in links), *late])
        return {"capabilities": capabilities, **({"instructions": "\n\n".join(instructions)} if instructions else {})}

    def _self(self) -> dict[str, JsonValue]:
        return describe_self(self._settings.version)

    # --- streams ------------------------------------------------------------------------------------------------------
    async def _listen(self, request: UpstreamRequest) -> Answer:
        session_id = header_of(request, SESSION_HEADER)
        if not session_id:
            return UpstreamReply(405, (("allow", "POST"),), b"")
        group = self._clients.find(session_id)
        if group is None:
            return write_refusal(404, NO_SESSION, "Session not found")
        if "text/event-stream" not in header_of(request, "accept"):
            return write_refusal(406, NOT_INITIALIZED, "Not Acceptable: a GET is answered by text/event-stream")
        server, _, last_id = header_of(request, "last-event-id").partition("/")
        link = group.links.get(server) if last_id else None
        if link is not None:
            return await _resume(link, last_id, plain_request(request))
        return UpstreamReply(200, _EVENTS, group.feed.read(plain_request(request), write_named, alone=True))

    def _subscribe(self, group: ServerGroup, message: Message, request: UpstreamRequest) -> Answer:
        """A stream of the changes that a client of the new revisions subscribes to."""
        filters = message.param("notifications")
        agreed = {key: True for key in _FILTERS if isinstance(filters, dict) and filters.get(key) is True}
        methods = {f"notifications/{_FILTERS[key]}/list_changed" for key in agreed}
        meta: JsonValue = {_SUBSCRIPTION: message.id}

        def write(event: ServerEvent, _server: str) -> bytes:
            value = parse(event.data, LIMITS) if event.data else None
            if not isinstance(value, dict) or value.get("method") not in methods:
                return b""
            return event.write(None, dumps({**value, "params": {"_meta": meta}}))

        params: JsonValue = {"notifications": dict(agreed), "_meta": meta}
        text = dumps({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
        first = ServerEvent(None, (b"event: message",), text).write(None, text)
        reader: FeedReader = group.feed.read(plain_request(request), write, (first,), alone=False)
        return UpstreamReply(200, _EVENTS, reader)


def _prefixes(settings: JoinedSettings) -> dict[str, str]:
    return {server.name: server.prefix for server in settings.servers}


async def _resume(link: ServerLink, last_id: str, request: UpstreamRequest) -> Answer:
    """The rest of a stream of one server, behind the last event that its client has seen."""
    reply = await link.listen(request, last_id)
    if isinstance(reply, UpstreamFault) or not is_stream(reply):
        return reply

    async def leave(ended: bool) -> None: ...

    stream = RewrittenStream(reply, lambda event: name_event(event, link.server.name, event.data), leave)
    return UpstreamReply(200, _EVENTS, stream)
