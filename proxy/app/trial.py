"""A call judged without sending it, for the operator who asks "what would you do with this?" (POST /-/validate).

The story that serves is told once more with nothing behind it: no upstream, and a memory of its own that knows no
earlier attempt. A report-only route is judged as if it enforced; the answer says in `mode` that it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from proxy.app.handler import Snapshot
from proxy.app.lane import Way
from proxy.core.jsontext import dumps, format_pointer, parse
from proxy.core.model import (
    Conversation,
    Delivered,
    Document,
    Failure,
    JsonProblem,
    JsonValue,
    Passthrough,
    RawRequest,
    Repair,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.policy import Mode, ToolPolicy
from proxy.core.sentence import compose
from proxy.interfaces import CallRecord, Services
from proxy.pipeline import run_call
from proxy.routing import Match
from proxy.state import make_store
from proxy.story.nowhere import Nowhere

_NAME: Final = "dry-run"
_HEADERS: Final = (("content-type", "application/json"), ("x-conversation-id", _NAME))


def asked(snapshot: Snapshot, wanted: Mapping[str, JsonValue]) -> tuple[Way, RawRequest] | str:
    """The route and the request that are meant, or what is wrong with the question.

    `route` is a route's name, its path, or a path it matches; `tool` fills `{tool}`; `body` is the request's body as
    JSON, `text` the same as text, for what is no JSON. On an MCP route `tool` and `body` are the call's.
    """
    route, tool = wanted.get("route"), wanted.get("tool")
    if not isinstance(route, str) or not isinstance(tool, str | None):
        return "say `route`, a route's name or path, and `tool` where the path holds {tool}"
    if ("body" in wanted) == ("text" in wanted) or not isinstance(wanted.get("text", ""), str):
        return "say `body` (any JSON), or `text` (a string)"
    params = {} if tool is None else {"tool": tool}
    found = next((one for one in snapshot.table.routes if route in (one.name, one.path)), None)
    if found is None and isinstance(match := snapshot.table.match("POST", route), Match):
        found, params = match.route, {**match.params, **params}
    if found is None or found.kind == "passthrough":
        known = [one.name for one in snapshot.table.routes if one.kind != "passthrough"]
        return f"no such route judges calls; these do: {', '.join(known) or 'none'}"
    if found.shape.tool_param and found.shape.tool_param not in params:
        return f"say `tool`, one of: {', '.join(found.tools)}"
    body = dumps(wanted["body"]) if "body" in wanted else str(wanted["text"]).encode("utf-8", "surrogatepass")
    if found.learn is not None and tool is not None:  # the arguments alone; else it is a whole message
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":' + dumps(tool)
        body += b',"arguments":' + dumps(wanted.get("body", wanted.get("text"))) + b"}}"
    return snapshot.ways[found.name], RawRequest("POST", found.path, "", _HEADERS, body, params, "")


async def judged(way: Way, request: RawRequest, services: Services) -> JsonValue:
    """What would become of a request: decision, repairs, errors, and what the model would read."""
    call = way.adapter.decode(request, way.route.shape, _NAME)
    shown: dict[str, JsonValue] = {"route": way.route.name, "upstream": way.route.upstream}
    if isinstance(call, Passthrough):
        return {"decision": "forward", **shown, "repairs": [], "errors": []}
    if isinstance(call, Failure):
        nobody = ToolCall("", Document(b"", None), _NAME, Conversation(_NAME, Rung.HEADER))
        return _refused(way, request, ToolResult(nobody, call), (), shown)
    record = CallRecord(_NAME, way.route.name)
    tools: Mapping[str, ToolPolicy] = way.route.tools
    if way.route.learn is not None:
        tools = way.catalogues.latest(way.route.learn)
    alone = replace(services, store=make_store("memory", services.clock), upstreams={}, hooks=None, corrector=None)
    outcome = await run_call(call, Nowhere(_Enforced(tools)), alone, record)
    policy = tools.get(record.tool)
    shown |= {"tool": record.tool, "mode": policy.mode.value if policy else "enforce", "schema_id": record.schema_id}
    if isinstance(outcome, Delivered):
        body = outcome.reply.body if isinstance(outcome.reply.body, bytes) else b""
        value = parse(body)
        arguments = body.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value
        warnings = [_error(violation) for violation in outcome.warnings]
        return {"decision": "forward", **shown, "repairs": _repairs(outcome.repairs), "errors": [],
                "warnings": warnings, "arguments": arguments}  # fmt: skip
    return _refused(way, request, outcome, tuple(record.repairs), shown)


class _Enforced(Mapping[str, ToolPolicy]):
    """Tools as if none was report-only."""

    def __init__(self, tools: Mapping[str, ToolPolicy]) -> None:
        self._tools = tools

    def __getitem__(self, name: str) -> ToolPolicy:
        return replace(self._tools[name], mode=Mode.ENFORCE)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


def _refused(
    way: Way, request: RawRequest, result: ToolResult, repairs: tuple[Repair, ...], shown: dict[str, JsonValue]
) -> JsonValue:
    reply = way.adapter.encode(result, way.route.envelope, way.route.error_status, "", request)
    return {
        "decision": "refuse",
        **shown,
        "code": result.failure.code.name,
        "repairs": _repairs(repairs),
        "errors": [_error(violation) for violation in result.failure.violations],
        "content": compose(result),
        "status": reply.status,
        "answer": parse(reply.body),
    }


def _repairs(repairs: tuple[Repair, ...]) -> JsonValue:
    return [{"rule": repair.rule, "path": format_pointer(repair.path)} for repair in repairs]


def _error(violation: Violation) -> JsonValue:
    return {"path": format_pointer(violation.path), "code": violation.code.name, "message": violation.message}
