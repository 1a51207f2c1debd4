"""Several MCP servers as one `Upstream`: their lists are merged, and each call goes to the server that has the tool.

    joined_upstream.py  `JoinedUpstream`: one HTTP exchange -> its own answer, or the exchange with one server
    client_groups.py    the groups of all clients; other servers for them while they stay
    server_group.py     the servers as one client sees them: a session of the old revisions, or all of 2026-07-28
    server_link.py      one server of a group: its revision, its session, and messages to it and back
    change_feed.py      the messages that a group's servers send on their own, as one stream
    introduction.py     the servers as the config describes them, and the client's headers for each
    merged_lists.py     pages of several servers -> one list; listed names; capabilities; who has which resource
    event_rewriting.py  answers and events of one server, read and rewritten for the client

Both sides speak both eras of the protocol, so a client of one era reaches servers of the other.
"""

from __future__ import annotations

from proxy.extensions.mcp.upstream.joined.introduction import JoinedServer, JoinedSettings
from proxy.extensions.mcp.upstream.joined.joined_upstream import JoinedUpstream

__all__ = ["JoinedServer", "JoinedSettings", "JoinedUpstream"]
