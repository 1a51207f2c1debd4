"""A call-out service on a real socket, and a proxy that asks it about one tool."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.core.check.validation import compile_check
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem
from proxy.extensions.callout import callout_messages
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, Script, Seen, Tool, answer, replies, tool

OK = answer("200 OK", b'{"paid": true, "card": "4111", "log": [{"ssn": "1"}, {"ssn": "2"}]}', JSON_TYPE)
ROUTES = """
  - path: /pay
    upstream: tools
    tool: pay
    schema:
      type: object
      additionalProperties: false
      properties: {amount: {type: number, maximum: 100}, to: {type: string}}
      required: [amount]
    %s
"""
PLAIN = """
  - {path: /plain, upstream: tools, tool: plain, schema: {type: object}}
"""
FOLDER = Path(callout_messages.__file__).parent
QUESTION = compile_check(parse((FOLDER / "question.schema.json").read_bytes()))


@dataclass
class Asked:
    """A proxy, its tool, and the service that it asks."""

    proxy: Proxied
    tool: Tool
    service: Tool

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The questions so far, each of which fits the published schema."""
        found = [json.loads(seen.body) for seen in self.service.seen]
        for seen in self.service.seen:
            value = parse(seen.body)
            assert not isinstance(value, JsonProblem)
            assert QUESTION.accepts(value), value
        return found

    @property
    def sent(self) -> list[bytes]:
        """The bodies that reached the tool."""
        return [seen.body for seen in self.tool.seen]

    async def pay(self, body: bytes = b'{"amount": 5.50}', *headers: str) -> Seen:
        """One call."""
        return await self.proxy.post("/pay", body, *headers)

    async def metrics(self) -> str:
        """The metrics of call-outs."""
        page = (await self.proxy.ask_admin("/metrics")).body.decode()
        return "\n".join(line for line in page.splitlines() if line.startswith("toolproxy_callout"))


def says(*answers: object) -> Script:
    """A service that gives these answers in turn."""
    return replies(*(answer("200 OK", json.dumps(each).encode(), JSON_TYPE) for each in answers))


@contextlib.asynccontextmanager
async def asked(
    script: Script,
    reply: bytes = OK,
    route: str = "",
    more: str = "",
    routes: str = "",
    headers: Callable[[str], str] = lambda url: f'{{url: "{url}"}}',
    **keys: str,
) -> AsyncIterator[Asked]:
    """A proxy whose call-out `policy` runs this script; `more` are further keys of it."""
    async with tool(replies(reply)) as server, tool(script) as service:
        upstreams = f'{{tools: {{url: "{server.url}"}}, policy: {headers(service.url)}}}'
        usual = {"upstreams": upstreams, "callout": f"[{{name: policy, upstream: policy{more}}}]"}
        async with proxied((ROUTES % route) + routes, **(usual | keys)) as proxy:
            yield Asked(proxy, server, service)
