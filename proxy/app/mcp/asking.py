"""Finds the tools for a call: those remembered, those the upstream lists now, or those of the config alone.

The question is the client's own request with another body, so it goes out with the client's credentials, in its
session, and with the headers that the route sets.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxy.adapters.mcplist import asking
from proxy.adapters.mcpmessage import SESSION_HEADER, Message
from proxy.app.catalogue import Catalogue
from proxy.app.lane import RequestLane
from proxy.app.mcp.turn import Reports
from proxy.core import codes
from proxy.core.decide import decide
from proxy.core.jsontext import dumps, parse
from proxy.core.learned import LearnPolicy, unjudged
from proxy.core.model import Failure, Forward, ToolCall, UpstreamReply
from proxy.core.policy import Mode, ToolPolicy
from proxy.interfaces import GuardedUpstream
from proxy.learning import Key, Known, Learner, Refused, Unlearned
from proxy.learning.learner import Asked

# Headers by which services know who asks, beside `authorization`; more are named by `mcp.credentials`.
CREDENTIALS: Final = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})


@dataclass(frozen=True, slots=True)
class Tools:
    """What a call is judged by. `catalogue` is None where nothing could be learned."""

    policies: Mapping[str, ToolPolicy]
    catalogue: Catalogue | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """One client's view of one upstream: whose list counts for it, and how it is asked for."""

    learner: Learner
    lane: RequestLane
    message: Message
    upstream: GuardedUpstream
    rules: LearnPolicy
    key: Key
    reports: Reports

    @classmethod
    def of(
        cls, learner: Learner, lane: RequestLane, message: Message, upstream: GuardedUpstream, reports: Reports
    ) -> Asking:
        """The view of the client that sent a request."""
        rules = lane.way.route.learn
        if rules is None:
            raise AssertionError("a route without `learn` asks for no tools")
        return cls(learner, lane, message, upstream, rules, key_of(lane, upstream, rules), reports)

    @property
    def session(self) -> str:
        """The client's session, '' where it has none."""
        return "" if self.message.modern else self.lane.raw.header(SESSION_HEADER) or ""

    async def tools(self, call: ToolCall) -> Tools | Failure | UpstreamReply:
        """What to judge a call by; the upstream's own answer where it does not know this client; or why nothing can be
        judged."""
        listed = await self.listed()
        if isinstance(listed, UpstreamReply):
            return listed
        if isinstance(listed, Unlearned):
            return self._without(call, listed)
        await self._prepared(call, listed)
        if self._doubts(call, listed):
            learned = await self.learner.learn(self.key, self._ask, self.rules.wait)
            listed = learned if isinstance(learned, Known) else listed
            await self._prepared(call, listed)
        return self._judged_by(call, listed)

    async def listed(self) -> Known | Unlearned | UpstreamReply:
        """The list that counts for this client, or the upstream's own answer where it does not know him."""
        known = self.learner.known(self.key, self.rules.ttl)
        if known is not None:
            return known
        learned = await self.learner.learn(self.key, self._ask, self.rules.wait)
        return self.refusal(learned) if isinstance(learned, Refused) else learned

    async def verified(self) -> UpstreamReply | None:
        """Whether the upstream answers in this session: None, or its own answer where it does not."""
        if self.message.modern or self.learner.accepts(self.key, self.session):
            return None
        learned = await self.learner.ask(self.key, self._ask, self.rules.wait)
        return self.refusal(learned) if isinstance(learned, Refused) else None

    def refusal(self, refused: Refused) -> UpstreamReply:
        """The upstream's answer to our question as the answer to the client's."""
        body = refused.reply.body
        value = parse(body) if isinstance(body, bytes) else None
        if isinstance(value, dict) and value.get("id") == refused.request_id:
            body = dumps({**value, "id": self.message.id})
        dropped = ("content-encoding", "content-length")
        headers = tuple(field for field in refused.reply.headers if field[0].lower() not in dropped)
        return replace(refused.reply, headers=headers, body=body)

    async def _ask(self, cursor: str | None, request_id: str) -> Asked:
        way, key_header = self.lane.way, self.rules.template.resend.key_header
        client = asking(self.lane.raw, self.message, cursor, request_id, key_header)
        # Not the client's body: what vouches for that one stays behind.
        sent = way.outgoing(replace(client, body=b""), self.lane.hop_fields, "", client.body)
        reply = await self.upstream.relay(sent, None)
        if isinstance(reply, UpstreamReply) and reply.status < 300:
            self.learner.accept(self.key, self.session)
        return reply

    async def _prepared(self, call: ToolCall, known: Known) -> None:
        """Writes the code that judges a tool before its first call, and not on the event loop's time."""
        tools = self._catalogue(known).tools
        if not tools.is_made(call.tool):
            await asyncio.to_thread(tools.prepare, call.tool)

    def _doubts(self, call: ToolCall, known: Known) -> bool:
        """Whether a list is too old to refuse this call by it. An unknown name asks again whatever the server said."""
        if self.learner.is_new(known):
            return False
        policy = self._catalogue(known).tools.get(call.tool)
        if policy is None:
            return True
        return not self.learner.is_fresh(known) and not isinstance(decide(call, policy), Forward)

    def _catalogue(self, known: Known) -> Catalogue:
        return self.lane.way.catalogues.of(known.listing, self.rules)

    def _judged_by(self, call: ToolCall, known: Known) -> Tools | Failure:
        catalogue, route = self._catalogue(known), self.lane.way.route
        if catalogue.first_told(""):
            self.reports.learned(route.name, catalogue.tools)
        found = catalogue.tools.get(call.tool)
        reason = catalogue.tools.bad.get(call.tool)
        if reason is not None:
            if catalogue.first_told(call.tool):
                self.reports.unusable(route.name, call.tool, reason)
            if found is None and route.mode is Mode.ENFORCE:
                message = f"The schema that the server lists for '{call.tool}' cannot be used: {reason}."
                return Failure(codes.SCHEMA_UNKNOWN, message, retryable=False)
        return Tools(catalogue.tools, catalogue)

    def _without(self, call: ToolCall, why: Unlearned) -> Tools | Failure:
        """Nothing can be learned: an older list, the config's own schemas, or the operator's choice."""
        if (last := self.learner.last(self.key)) is not None:
            return self._judged_by(call, last)
        own = self.rules.whole()
        if call.tool in own:
            return Tools(own)
        if self.rules.unknown_schema == "forward" or self.lane.way.route.mode is Mode.REPORT:
            return Tools({call.tool: unjudged(call.tool, self.rules)})
        return Failure(codes.SCHEMA_UNKNOWN, f"{codes.SCHEMA_UNKNOWN.meaning} ({why.reason})")


def key_of(lane: RequestLane, upstream: GuardedUpstream, rules: LearnPolicy) -> Key:
    """Whose list counts for a request: told apart by what goes to the upstream, not by what the client sent here."""
    way, raw = lane.way, lane.raw
    names = CREDENTIALS | rules.credentials if rules.credentials else CREDENTIALS
    shown = [field for field in raw.headers if field[0] in names and field[0] not in way.dropped]
    shown += [field for field in way.route.headers_set if field[0] in names]
    hashed = ""
    if shown:
        text = "\n".join(f"{name}:{value}" for name, value in shown)
        hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    path = way.route.target(raw.params)
    return Key(upstream, f"{path}?{raw.query}" if raw.query else path, hashed)
