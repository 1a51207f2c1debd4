"""The clients of a joined upstream: a group of links for each session of the old revisions, and for those without one.

`begin`, `find`, `end` handle sessions; idle ones end by themselves.
`find_shared` finds the group of clients without sessions.
`change` sets other servers for all groups; sessions and links to servers that stay continue.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from proxy.extensions.mcp.upstream import describe_self, plain_request
from proxy.extensions.mcp.upstream.joined.introduction import CREDENTIALS, Introduction, JoinedServer, JoinedSettings
from proxy.extensions.mcp.upstream.joined.merged_lists import Pages
from proxy.extensions.mcp.upstream.joined.server_group import ServerGroup
from proxy.extensions.mcp.upstream.joined.server_link import ServerLink
from proxy.interfaces import GuardedUpstream, UpstreamRequest

# The most groups of clients without sessions, one for each set of credentials.
_MOST_GROUPS: Final = 1_000


class ClientGroups:
    """All groups. `upstreams` are the connections to the servers, by the names that the settings give them. Made inside
    a running event loop."""

    def __init__(self, settings: JoinedSettings, upstreams: Mapping[str, GuardedUpstream]) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self._now = asyncio.get_running_loop().time
        self._pages = Pages()
        self._sessions: OrderedDict[str, ServerGroup] = OrderedDict()
        self._shared: OrderedDict[str, ServerGroup] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.down: dict[str, str] = {}
        """The servers that are out of reach, and why."""

    # --- sessions -----------------------------------------------------------------------------------------------------
    async def begin(self, who: Introduction, request: UpstreamRequest) -> tuple[str, ServerGroup]:
        """Begins a session: its id, and its group, introduced to the servers that answer in time."""
        group = self._make(who, shared=False)
        session_id = secrets.token_hex(16)
        self._sessions[session_id] = group  # from now on, so that a change of servers reaches it
        try:
            await group.open(plain_request(request), self._settings.wait)
        except BaseException:
            self.end(session_id, request)
            raise
        if len(self._sessions) > self._settings.most_sessions:
            self._close_later(self._sessions.popitem(last=False)[1], request)
        self._sweep_later()
        return session_id, group

    def find(self, session_id: str) -> ServerGroup | None:
        """The group of a session."""
        group = self._sessions.get(session_id)
        if group is not None:
            group.used = self._now()
            self._sessions.move_to_end(session_id)
        return group

    def is_starting(self, server: str, session_id: str) -> bool:
        """Returns whether a server is only starting for the clients of a session, or for those without one."""
        group = self._sessions.get(session_id)
        groups = self._shared.values() if group is None else (group,)
        return any(each.is_starting(server) for each in groups)

    def end(self, session_id: str, request: UpstreamRequest) -> bool:
        """Ends a session; False where there is none with this id."""
        group = self._sessions.pop(session_id, None)
        if group is not None:
            self._close_later(group, request)
        return group is not None

    def _close_later(self, group: ServerGroup, request: UpstreamRequest) -> None:
        task = asyncio.create_task(group.close(plain_request(request)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _sweep_later(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._settings.idle / 4, self._end_idle)

    def _end_idle(self) -> None:
        self._sweep = None
        before = self._now() - self._settings.idle
        for session_id, group in list(self._sessions.items()):
            if group.used <= before and not group.is_busy:
                self.end(session_id, self._make_request(5.0))
        if self._sessions:
            self._sweep_later()

    # --- clients without sessions -------------------------------------------------------------------------------------
    def find_shared(self, request: UpstreamRequest) -> ServerGroup:
        """The group of clients without sessions: one for all, or where credentials go on, one for each of them."""
        shown = ""
        if any(server.credentials for server in self._settings.servers):
            text = "\n".join(f"{name}:{value}" for name, value in request.headers if name in CREDENTIALS)
            shown = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        group = self._shared.get(shown)
        if group is None:
            who = Introduction("", {}, describe_self(self._settings.version))
            group = self._shared[shown] = self._make(who, shared=True)
            if len(self._shared) > _MOST_GROUPS:
                self._close_later(self._shared.popitem(last=False)[1], request)
        self._shared.move_to_end(shown)
        group.used = self._now()
        return group

    # --- all ----------------------------------------------------------------------------------------------------------
    def change(
        self, settings: JoinedSettings, upstreams: Mapping[str, GuardedUpstream], *, is_renamed: bool
    ) -> frozenset[asyncio.Task[None]]:
        """Leads all groups to other servers. `is_renamed`: servers that stay have other names. Gives the tasks that end
        the sessions with servers that leave."""
        self._settings, self._upstreams = settings, upstreams
        known = {server.name for server in settings.servers}
        self.down = {name: why for name, why in self.down.items() if name in known}
        ending: list[asyncio.Task[None]] = []
        for group in (*self._sessions.values(), *self._shared.values()):
            links = [self._keep_link(group, server) for server in settings.servers]
            ending += group.change_links(links, self._make_request(2.0))
            for link in links if is_renamed else ():
                group.feed.tell_of_changes(link)
        return frozenset(ending)

    def _keep_link(self, group: ServerGroup, server: JoinedServer) -> ServerLink:
        """Returns the group's link to a server, a new one if it has none."""
        known = group.links.get(server.name)
        if known is None or not known.leads_to(server, self._upstreams[server.upstream]):
            made = self._make_link(server, group.who)
            made.level = group.level
            return made
        known.server = server
        return known

    async def close(self) -> None:
        """Ends all sessions with the servers."""
        if self._sweep is not None:
            self._sweep.cancel()
        groups = (*self._sessions.values(), *self._shared.values())
        self._sessions.clear()
        self._shared.clear()
        request = self._make_request(2.0)
        await asyncio.gather(*(group.close(request) for group in groups), *self._ending, return_exceptions=True)

    def _make(self, who: Introduction, *, shared: bool) -> ServerGroup:
        settings = self._settings
        links = [self._make_link(server, who) for server in settings.servers]
        group = ServerGroup(links, who, self._pages, shared=shared, wait=settings.wait, again=settings.again)
        group.used = self._now()
        return group

    def _make_link(self, server: JoinedServer, who: Introduction) -> ServerLink:
        upstream = self._upstreams[server.upstream]
        return ServerLink(server, upstream, who, self._now, self._report, self._settings.again)

    def _make_request(self, timeout: float) -> UpstreamRequest:
        return UpstreamRequest(self._settings.name, "DELETE", "/", (), b"", timeout)

    def _report(self, server: str, reason: str) -> None:
        """Reports once that a server cannot be reached, and once that it answers again."""
        if not any(server == known.name for known in self._settings.servers):
            return  # it has left, and a request to it was still under way
        if reason and server not in self.down:
            self._settings.report(server, reason)
            self.down[server] = reason
        elif not reason and self.down.pop(server, None) is not None:
            self._settings.report(server, "")
