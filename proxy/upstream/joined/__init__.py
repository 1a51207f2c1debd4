"""Several MCP servers as one `Upstream`: their lists are merged, and each call goes to the server that has the tool.

    joined_upstream.py  `JoinedUpstream`: one HTTP exchange -> an answer of its own, or the exchange with one server
    server_group.py     the servers as one client sees them: a session of the old revisions, or all of 2026-07-28
    server_link.py      one server of a group: its revision, its session, and messages to it and back
    change_feed.py      what the servers of a group send on their own, as one stream
    listed_names.py     the names under which tools and prompts of several servers are listed
    merged_lists.py     pages of several servers -> one list; capabilities; who has which resource
    event_rewriting.py  server-sent events, one after the other, with their ids and messages exchanged

Both eras are spoken on both sides, so a client of one reaches servers of the other.
"""

from __future__ import annotations

from proxy.upstream.joined.introduction import JoinedServer, JoinedSettings
from proxy.upstream.joined.joined_upstream import JoinedUpstream

__all__ = ["JoinedServer", "JoinedSettings", "JoinedUpstream"]
