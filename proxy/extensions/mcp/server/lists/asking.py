"""Finds the tools for a call: from a remembered list, from a list requested now, or from the config.

The request for the list is the client's own request with another body. It therefore has the client's credentials, its
session, and the headers that the route sets.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.call.judging import decide_here, is_ready
from proxy.core.contract import toolname
from proxy.core.contract.container import SEARCH, Dispatch, expand_or_dispatch, make_misuse_failure
from proxy.core.contract.listed_tool import Hints, Unparsed, refuse_unapproved
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.display.preview import clean_text
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    Container,
    Document,
    Executed,
    Failure,
    Forward,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.core.tool_errors.classify import make_fault_failure
from proxy.driver import IN_TASK
from proxy.extensions.mcp.adapters.mcplist import make_list_request
from proxy.extensions.mcp.adapters.mcpmessage import SESSION_HEADER, Message
from proxy.extensions.mcp.core.listed_tools import (
    LearnedTools,
    LearnPolicy,
    ListedTool,
    make_unjudged_policy,
    read_rules,
)
from proxy.extensions.mcp.core.tool_search import DESCRIBE
from proxy.extensions.mcp.server.lists.learner import Key, Known, Learner, ListRefused, ListReply, Unlearned
from proxy.extensions.mcp.server.lists.list_reports import ListReports
from proxy.extensions.mcp.server.lists.reading import Catalogue, get_catalogues
from proxy.extensions.mcp.upstream import OwnServer
from proxy.interfaces import GuardedUpstream, JudgesElsewhere
from proxy.plugin import prepare
from proxy.server.bound_route import RouteRequest

if TYPE_CHECKING:
    from proxy.extensions.mcp.upstream.joined import JoinedUpstream

# Headers that identify a caller to an upstream. The config can add more (`mcp.credentials`).
CREDENTIALS: Final = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
# The longest time for one page of a list, in seconds. The route's `timeout` is for its calls; a list has `mcp.wait`.
_LONGEST: Final = 300.0
# When a server that is starting is likely to be there, in seconds.
_SOON: Final = 5


@value_class
class Tools:
    """The tools by which a call is judged. `catalogue` is None where no list could be learned."""

    policies: Mapping[str, ToolPolicy]
    catalogue: Catalogue | None = None

    @property
    def own(self) -> frozenset[str]:
        """The names of the container and the search that the proxy lists, and answers, in place of the tools."""
        tools = self.policies
        if not isinstance(tools, LearnedTools) or tools.container is None:
            return frozenset()
        return frozenset((tools.container.name, *tools.own))


@value_class
class Asking:
    """One client's view of one upstream: which list applies to it, and how that list is requested."""

    learner: Learner
    call_route: RouteRequest
    message: Message
    upstream: GuardedUpstream
    rules: LearnPolicy
    key: Key
    reports: ListReports
    elsewhere: JudgesElsewhere

    @classmethod
    def of(
        cls,
        learner: Learner,
        call_route: RouteRequest,
        message: Message,
        upstream: GuardedUpstream,
        reports: ListReports,
        elsewhere: JudgesElsewhere,
        token: str = "",
    ) -> Asking:
        """Creates the view of the client that sent a request. `token` is the name of the access token that it used."""
        rules = read_rules(call_route.binding.route.learn).of_token(token)
        if (calls := call_route.calls) is not None:
            rules = rules.narrow(calls.scope, calls.may_see)
        key = make_list_key(call_route, upstream, rules)
        return cls(learner, call_route, message, upstream, rules, key, reports, elsewhere)

    @property
    def session(self) -> str:
        """Returns the id of the client's MCP session, '' without one."""
        return "" if self.message.modern else self.call_route.raw.header(SESSION_HEADER) or ""

    @property
    def wait(self) -> float:
        """Returns how long to wait for a list, in seconds. A starting process may have to fetch a package first."""
        inner = getattr(self.upstream, "unguarded", None)
        is_starting = isinstance(inner, OwnServer) and inner.is_starting(self.session)
        return _LONGEST if is_starting else self.rules.wait

    @property
    def shows_all(self) -> bool:
        """Returns whether this client sees the list as the server writes it."""
        return self.rules.shows_all and self.rules.collapse is None

    async def tools(self, call: ToolCall) -> Tools | Failure | UpstreamReply:
        """Returns the tools that have the call's schema. If there are none: the upstream's refusal, or a failure."""
        listed = self._find_known()
        catalogue = None if listed is None else self._catalogue(listed)
        if listed is None or catalogue is None or call.tool not in catalogue.judged:
            if not self.rules.serves(call.tool) and not self._is_own_tool(call.tool):
                return self._refuse_unserved(clean_text(call.tool, 60))
            found = await self.find_list()
            if isinstance(found, UpstreamReply):
                return found
            if isinstance(found, Unlearned):
                return self._without(call, found)
            listed, catalogue = found, self._catalogue(found)
        if call.tool not in catalogue.judged or not catalogue.tools.is_made(call.tool, is_ready):
            await self._prepare_call(call, catalogue)
        if await self._doubts(call, listed, catalogue):
            learned = await self.learner.learn(self.key, self._ask, self.wait)
            if isinstance(learned, Known):
                listed, catalogue = learned, self._catalogue(learned)
            await self._prepare_call(call, catalogue)
        if call.tool in catalogue.judged:
            return Tools(catalogue.tools, catalogue)
        return self._judged_by(call, listed, catalogue)

    def _refuse_unserved(self, name: str) -> Failure:
        """The failure of a call of a tool that is not served, or was renamed."""
        shown = self.rules.show_name(name, self._find_listed_hints(name))
        if shown is None or shown == name:
            return Failure(codes.UNKNOWN_TOOL, f"Tool '{name}' is not served here", retryable=False)
        message = f"Unknown tool '{name}'. It is called '{shown}' here: call it by exactly this name."
        return Failure(codes.UNKNOWN_TOOL, message)

    def _is_own_tool(self, name: str) -> bool:
        return self.rules.collapse is not None and name in (self.rules.collapse.name, SEARCH, DESCRIBE)

    def hides(self, tool: str) -> bool:
        """Returns whether a tool of the known list is hidden from this caller."""
        calls = self.call_route.calls
        if calls is None or calls.may_see(tool, self.find_hints(tool)):
            return False
        known = self.learner.last(self.key)
        listed = self.rules.names.find(tool)
        return listed is not None and (
            tool in self.rules.overlays or (known is not None and listed in known.listing.tools)
        )

    def find_hints(self, tool: str) -> Hints | None:
        """Returns the hints of a tool in the newest list, by its shown name; None if no list has it."""
        listed = self.rules.names.find(tool)
        return None if listed is None else self._find_listed_hints(listed)

    def _find_listed_hints(self, listed: str) -> Hints | None:
        known = self.learner.last(self.key)
        found = None if known is None else known.listing.tools.get(listed)
        return None if found is None else found.hints

    def make_served(self, known: Known) -> LearnedTools:
        """Returns the tools of a list that the route serves."""
        return self._catalogue(known).tools

    def _find_known(self) -> Known | None:
        # If tools are pinned, a server cannot say how long its old definitions count.
        return self.learner.find_known(self.key, self.rules.ttl, believes=self.rules.pinned is None)

    async def find_list(self) -> Known | Unlearned | UpstreamReply:
        """Returns the list that applies to this client, or the upstream's own answer where it refuses the client."""
        if (known := self._find_known()) is not None:
            return known
        learned = await self.learner.learn(self.key, self._ask, self.wait)
        return self.refusal(learned) if isinstance(learned, ListRefused) else learned

    async def check_session(self) -> UpstreamReply | None:
        """Returns the upstream's own answer where it refuses the client's session, and None otherwise."""
        if self.message.modern or self.learner.accepts(self.key, self.session):
            return None
        learned = await self.learner.ask(self.key, self._ask, self.wait)
        return self.refusal(learned) if isinstance(learned, ListRefused) else None

    def refusal(self, refused: ListRefused) -> UpstreamReply:
        """Turns the refusal of the proxy's request for the list into the answer to the client's request."""
        if refused.reply.status == 404 and self.session:
            self.learner.note_lost(self.key, self.session)
        body = refused.reply.body
        value = parse(body) if isinstance(body, bytes) else None
        if isinstance(value, dict) and value.get("id") == refused.request_id:
            body = dumps({**value, "id": self.message.id})
        dropped = ("content-encoding", "content-length")
        headers = tuple(field for field in refused.reply.headers if field[0].lower() not in dropped)
        return replace(refused.reply, headers=headers, body=body)

    async def _ask(self, cursor: str | None, request_id: str) -> ListReply:
        binding, key_header = self.call_route.binding, self.rules.template.resend.key_header
        client = make_list_request(self.call_route.raw, self.message, cursor, request_id, key_header)
        # `make_outgoing` drops headers with checksums or signatures of the client's body, because this body is another.
        sent = binding.make_outgoing(replace(client, body=b""), self.call_route.hop_fields, "", client.body)
        reply = await self.upstream.relay(replace(sent, timeout=_LONGEST, answer_only=True), None)
        if isinstance(reply, UpstreamReply) and reply.status < 300:
            self.learner.accept(self.key, self.session)
        return reply

    async def _prepare_call(self, call: ToolCall, catalogue: Catalogue) -> None:
        """Compiles in a thread the checks of a tool, and of a function that a container's call names, before use."""
        tools = catalogue.tools
        named = find_listed_name(call.tool, tools)
        group = tools.container
        function = _find_dispatched(call, group) if group is not None and named == group.name else ""
        for name in filter(None, (named, function)):
            if tools.find_unexamined(name) is not None:
                await IN_TASK
                await self.elsewhere.examine(tools, name)
            if not tools.is_made(name, is_ready):
                await IN_TASK
                await asyncio.to_thread(tools.prepare, name, prepare)

    async def _doubts(self, call: ToolCall, known: Known, catalogue: Catalogue) -> bool:
        """Returns whether a list is too old to refuse or change a call; for an unknown name, whatever its lifetime."""
        if self.learner.is_just_requested(known):
            return False
        if (policy := catalogue.tools.get(call.tool)) is None:
            return True
        if self.learner.is_fresh(known):
            return False
        if (decision := decide_here(call, policy)) is None:
            await IN_TASK
            decision = await self.elsewhere.decide(call, policy, tried=True)
        return not isinstance(decision, Forward) or bool(decision.checked.repairs)

    def _catalogue(self, known: Known) -> Catalogue:
        return get_catalogues(self.call_route.binding).of(known.listing, self.rules)

    def _judged_by(self, call: ToolCall, known: Known, catalogue: Catalogue) -> Tools | Failure:
        route = self.call_route.binding.route
        if catalogue.is_first_report(""):
            self.reports.learn_tools(route.name, catalogue.tools)
            for tool in known.listing.tools.values():
                self.report_unpinned(tool)
        if (unpinned := self._find_unpinned(call.tool, known)) is not None and route.mode is Mode.ENFORCE:
            return unpinned
        found = catalogue.tools.get(call.tool)
        reason = catalogue.tools.bad.get(call.tool)
        if reason is not None:
            if catalogue.is_first_report(call.tool):
                self.reports.note_unusable(route.name, call.tool, reason)
            if found is None and route.mode is Mode.ENFORCE:
                message = f"The schema that the server lists for '{call.tool}' cannot be used: {reason}."
                return Failure(codes.SCHEMA_UNKNOWN, message, retryable=False)
        elif found is not None and found.check is not None and catalogue.is_first_report(call.tool):
            self.reports.note_unguarded(route.name, call.tool, found.check)
            if (overlay := self.rules.overlays.get(self.rules.names.find(call.tool) or "")) is not None:
                ignored = overlay.policy.repair.aliases.keys() - found.repair.aliases.keys()
                self.reports.note_ignored_aliases(route.name, call.tool, sorted(ignored))
        if found is None and find_listed_name(call.tool, catalogue.tools) == call.tool and route.mode is Mode.ENFORCE:
            return self._judge_unknown(call, catalogue)
        if found is not None and reason is None and unpinned is None and found.container is None:
            catalogue.judged.add(call.tool)
        return Tools(catalogue.tools, catalogue)

    def report_hidden(self, tool: ListedTool) -> None:
        """Reports a listed tool, or the list of a tool without a name, that has two readings or is not approved."""
        if isinstance(tool.schema, Unparsed):
            self.reports.note_ambiguous(self.call_route.binding.route.name, tool.name, tool.schema.reason)
        if tool.name:
            self.report_unpinned(tool)

    def report_unpinned(self, tool: ListedTool) -> None:
        """Reports a served tool whose definition is not the approved one."""
        pinned = self.rules.pinned
        is_shown = self.rules.show_name(tool.name, tool.hints) is not None
        if pinned is not None and is_shown and not self.rules.is_pinned(tool):
            known = {"description": tool.description, "inputSchema": tool.schema, "outputSchema": tool.output}
            change = pinned.describe_change(tool.name, tool.definition, known)
            self.reports.note_unpinned(self.call_route.binding.route.name, tool.name, pinned.changed, change)

    def _find_unpinned(self, name: str, known: Known) -> Failure | None:
        """The failure of a call of a tool whose definition is not the approved one."""
        tool = known.listing.tools.get(self.rules.names.find(name) or "")
        if tool is None or not self.rules.withholds(tool):
            return None
        return refuse_unapproved(name)

    def _judge_unknown(self, call: ToolCall, catalogue: Catalogue) -> Tools | Failure:
        """Returns the tools that explain an unknown name. With joined servers, these are one server's, because a near
        name of another server would be another tool. Returns the failure if that server is out of reach."""
        joined, names = find_joined(self.upstream), self.rules.names
        if joined is None:
            return Tools(catalogue.tools, catalogue)
        listed = names.find(call.tool) or ""
        if starting := joined.find_starting(listed, self.session):
            why = f"Server '{starting}' is still starting."
            fault = UpstreamFault(codes.UPSTREAM_UNAVAILABLE, "destination_unavailable", Executed.NO, why, _SOON)
            return replace(make_fault_failure(fault), message=why)
        server = joined.find_server(listed)
        if not server:
            return Tools(catalogue.tools, catalogue)
        if server in joined.down:
            why = f"server '{server}' is out of reach: {joined.down[server]}"
            fault = UpstreamFault(codes.UPSTREAM_UNAVAILABLE, "destination_unavailable", Executed.NO, why)
            return make_fault_failure(fault)
        return Tools(_ToolsOf(catalogue.tools, lambda name: joined.find_server(names.find(name) or "") == server))

    def _without(self, call: ToolCall, why: Unlearned) -> Tools | Failure:
        """Returns the tools if no list can be learned: those of an older list, otherwise those of the config. Without
        either, `unknown_schema` decides whether the call is forwarded or refused."""
        if (last := self.learner.last(self.key)) is not None:
            return self._judged_by(call, last, self._catalogue(last))
        pinned, own = self.rules.pinned, self.rules.whole()
        if pinned is not None and pinned.changed != "warn" and self.call_route.binding.route.mode is Mode.ENFORCE:
            return Failure(codes.SCHEMA_UNKNOWN, f"{codes.SCHEMA_UNKNOWN.meaning} ({why.reason})")
        if call.tool in own:
            return Tools(own)
        if self.rules.unknown_schema == "forward" or self.call_route.binding.route.mode is Mode.REPORT:
            return Tools({call.tool: make_unjudged_policy(call.tool, self.rules)})
        return Failure(codes.SCHEMA_UNKNOWN, f"{codes.SCHEMA_UNKNOWN.meaning} ({why.reason})")


class _ToolsOf(Mapping[str, ToolPolicy]):
    """Some of the tools; each policy is made on its first use."""

    def __init__(self, tools: Mapping[str, ToolPolicy], has: Callable[[str], bool]) -> None:
        self._tools = tools
        self._has = has

    def __getitem__(self, name: str) -> ToolPolicy:
        if not self._has(name):
            raise KeyError(name)
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self._has, self._tools)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _find_dispatched(call: ToolCall, container: Container) -> str:
    """The function to which a call of a container would be dispatched; '' for none."""
    if container.auto_expand != "dispatch" or not isinstance(call.arguments, Document):
        return ""
    found = expand_or_dispatch(call, make_misuse_failure(container, call.arguments.value), seen_before=False)
    return found.call.tool if isinstance(found, Dispatch) else ""


def find_joined(upstream: GuardedUpstream) -> JoinedUpstream | None:
    """Returns the upstream of several servers behind a guard; None if it is one server."""
    from proxy.extensions.mcp.upstream.joined import JoinedUpstream

    inner = getattr(upstream, "unguarded", None)
    return inner if isinstance(inner, JoinedUpstream) else None


def find_listed_name(name: str, tools: Mapping[str, ToolPolicy]) -> str:
    """Returns the name of the listed tool, also where the call spells it a little differently."""
    if name in tools:
        return name
    known = toolname.find_known_name(name, tools)
    return name if known is None else known[0]


def make_list_key(call_route: RouteRequest, upstream: GuardedUpstream, rules: LearnPolicy) -> Key:
    """Returns the key of the list for a request, by the credentials for the upstream, not those for the proxy."""
    binding, raw = call_route.binding, call_route.raw
    names = CREDENTIALS | rules.credentials if rules.credentials else CREDENTIALS
    present = (names & raw.headers.by_name.keys()) - binding.dropped
    shown = [field for field in raw.headers if field[0] in present] if present else []
    if binding.route.headers_set:
        shown += [field for field in binding.route.headers_set if field[0] in names]
    hashed = ""
    if shown:
        text = "\n".join(f"{name}:{value}" for name, value in shown)
        hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    path = binding.target or binding.route.target(raw.params)
    return Key(upstream, f"{path}?{raw.query}" if raw.query else path, hashed)
