"""The servers of a joined upstream as the config describes them, and how a client is introduced to each: the headers
that go on, and the refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from proxy.core.contract.policy import ToolServer
from proxy.core.json.jsonspan import replace_value
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonValue
from proxy.extensions.mcp.adapters.mcpmessage import (
    METHOD_HEADER,
    NAME_HEADER,
    PARAM_PREFIX,
    SESSION_HEADER,
    VERSION_HEADER,
    Message,
    encode_value,
)


@value_class
class JoinedServer:
    """One of the servers. `upstream` is the connection to it, `target` the path of its endpoint; `prefix` is before
    the names of its tools and prompts. The client's credentials go on to it only with `credentials`."""

    name: str
    upstream: str
    target: str = "/mcp"
    prefix: str = ""
    headers_set: Headers = field(default=(), repr=False)
    headers_remove: frozenset[str] = frozenset()
    credentials: bool = False


@value_class
class JoinedSettings:
    """All servers of one route. Times in seconds.

    With `always` every name has its server's prefix, else only names that two servers have. `wait` is how long
    `initialize` and each list wait for a server; one that takes longer joins later. `report` receives the name of a
    server that cannot be reached, and why; '' once it answers again.
    """

    name: str
    servers: tuple[JoinedServer, ...]
    version: str = ""
    always: bool = True
    wait: float = 2.0
    idle: float = 1800.0
    again: float = 5.0
    most_sessions: int = 20_000
    report: Callable[[str, str], None] = lambda server, reason: None  # noqa: ARG005

    def list_servers(self, down: Mapping[str, str]) -> tuple[ToolServer, ...]:
        """The servers with the prefixes of their tools' names; `down` has the reasons of those out of reach."""
        return tuple(ToolServer(each.name, each.prefix, down.get(each.name, "")) for each in self.servers)


ACCEPT: Final = "application/json, text/event-stream"
# Headers that identify the client; they go on only to servers that may have them.
CREDENTIALS: Final = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
# Headers that are made again for each server.
_OWN: Final = frozenset(
    [SESSION_HEADER, VERSION_HEADER, METHOD_HEADER, NAME_HEADER, "accept", "accept-encoding", "last-event-id",
     "content-type"]
)  # fmt: skip


@value_class
class Introduction:
    """A client's introduction to servers: its revision ('' for a client of the new ones), capabilities, and
    identity."""

    revision: str
    capabilities: JsonValue = field(default_factory=dict)
    client: JsonValue = field(default_factory=dict)


class OutOfReach(Exception):  # noqa: N818 - it names a condition
    """A server cannot be reached; the text says why."""


class Refusal(Exception):  # noqa: N818 - it names an answer
    """A server has answered with a JSON-RPC error."""

    def __init__(self, error: JsonValue) -> None:
        super().__init__(str(error))
        self.error = error


def kept_headers(server: JoinedServer, sent: Headers) -> Headers:
    """The client's headers as they go on to a server, and those that the config sets there."""
    replaced = {name for name, _ in server.headers_set} | server.headers_remove | _OWN
    kept = tuple(
        field
        for field in sent
        if field[0] not in replaced
        and not field[0].startswith(PARAM_PREFIX)
        and (server.credentials or field[0] not in CREDENTIALS)
    )
    return (*kept, *server.headers_set)


def repeating_headers(headers: Headers, message: Message) -> Headers:
    """The client's own headers that repeat its message, with the name as it is at the server."""
    named = message.param("name")
    renamed = {NAME_HEADER: encode_value(named)} if isinstance(named, str) else {}
    repeated = {VERSION_HEADER, METHOD_HEADER, NAME_HEADER}
    return tuple(
        (name, renamed.get(name, value)) for name, value in headers if name in repeated or name.startswith(PARAM_PREFIX)
    )


def with_params(body: bytes, message: Message) -> bytes:
    """A message that has `params`."""
    return body if isinstance(message.params, dict) else replace_value(body, ("params",), b"{}")


def for_client(headers: Headers) -> Headers:
    """The headers of an answer without the server's session, which is not the client's."""
    return tuple(field for field in headers if field[0].lower() != SESSION_HEADER)


def as_object(value: JsonValue) -> dict[str, JsonValue]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}
