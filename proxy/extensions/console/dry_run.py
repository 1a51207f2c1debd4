"""Judges a call without sending it, for operators (POST /-/validate).

The call runs through the same steps as a real one, but without an upstream and with its own empty store, so that
no earlier attempt counts. A report-only tool is judged as if it were enforced; the field `mode` of the answer says
`report`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.call_record import CallRecord
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.values import (
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
from proxy.interfaces import Services
from proxy.plugin import make_store, run_call, write_feedback
from proxy.routing import DryRoute, MethodNotAllowed, find_dry_target
from proxy.server import Serving
from proxy.server.admin.page import Page, PageRequest, make_json_page, refuse_question
from proxy.server.bound_route import RouteBinding

if TYPE_CHECKING:
    from proxy.plugin import Snapshot

_NAME: Final = "dry-run"
_NO_BODY: Final = "say `body` (any JSON), or `text` (a string)"


async def make_verdict_page(serving: Serving, question: PageRequest) -> Page:
    """The verdict on a call, or the mistake in the question."""
    snapshot = serving.handler.snapshot
    found = read_question(snapshot, question.body)
    if isinstance(found, str):
        return refuse_question(found)
    return make_json_page(await judge_question(*found, snapshot.services))


def read_question(snapshot: Snapshot, question: Mapping[str, JsonValue]) -> tuple[RouteBinding, RawRequest] | str:
    """Returns the route and the request that the operator describes, or a text about the mistake.

    `route` is a route's name, its path, or the path and query of a request. `method` is needed if the path has several
    routes. `tool` fills `{tool}` in the path. `headers` are the headers of the request. `body` is its body as a JSON
    value, `text` its body as a string, which need not be JSON; the request of an operation may have no body. On an MCP
    route with `tool`, `body` holds the arguments only; without `tool`, `body` is a whole message.
    """
    route, tool, method = question.get("route"), question.get("tool"), question.get("method", "")
    if not isinstance(route, str) or not isinstance(tool, str | None) or not isinstance(method, str):
        return "say `route`, a route's name or path, and `tool` where the path holds {tool}"
    text = question.get("text", "")
    if ("body" in question and "text" in question) or not isinstance(text, str):
        return _NO_BODY
    headers = question.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        return "say `headers` as an object of texts"
    found = find_dry_target(snapshot.table, route, method.upper())
    if isinstance(found, MethodNotAllowed):
        return f"say `method`, one of: {', '.join(found.methods)}"
    if found is None or found.route.kind == "passthrough":
        known = [one.name for one in snapshot.table.routes if one.kind != "passthrough"]
        return f"no such route validates calls; these do: {', '.join(known) or 'none'}"
    if "body" not in question and "text" not in question and found.route.shape.operation is None:
        return _NO_BODY
    param = found.route.shape.tool_param
    if param and tool is None and param not in found.params:
        return f"say `tool`, one of: {', '.join(found.route.tools)}"
    body = dumps(question["body"]) if "body" in question else text.encode("utf-8", "surrogatepass")
    if found.route.learn is not None and tool is not None:  # `body` holds the arguments only
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":' + dumps(tool)
        body += b',"arguments":' + dumps(question.get("body", question.get("text"))) + b"}}"
    request = found.request(body, {} if tool is None else {"tool": tool}, tuple(headers.items()))
    return snapshot.bindings[found.route.key], request


async def judge_question(binding: RouteBinding, request: RawRequest, services: Services) -> JsonValue:
    """Returns the verdict on a request: the decision, repairs, errors, and the text for the model."""
    call = binding.adapter.decode(request, binding.route.shape, _NAME)
    shown: dict[str, JsonValue] = {"route": binding.route.name, "upstream": binding.route.upstream}
    if isinstance(call, Passthrough):
        return {"decision": "forward", **shown, "repairs": [], "errors": []}
    if isinstance(call, Failure):
        no_call = ToolCall("", Document(b"", None), _NAME, Conversation(_NAME, Rung.HEADER))
        return _show_refused(binding, request, ToolResult(no_call, call), (), shown)
    record = CallRecord(_NAME, binding.route.name)
    tools: Mapping[str, ToolPolicy] = binding.route.tools
    if binding.route.learn is not None:
        tools = binding.catalogues.get_latest(binding.route.learn)
    outcome = await run_call(call, DryRoute(_Enforced(tools)), make_dry_services(services), record)
    policy = tools.get(record.tool)
    shown |= {"tool": record.tool, "mode": policy.mode.value if policy else "enforce", "schema_id": record.schema_id}
    if isinstance(outcome, Delivered):
        body = outcome.reply.body if isinstance(outcome.reply.body, bytes) else b""
        value = parse(body)
        arguments = body.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value
        warnings = [_error(violation) for violation in outcome.warnings]
        return {"decision": "forward", **shown, "repairs": _repairs(outcome.repairs), "errors": [],
                "warnings": warnings, "arguments": arguments}  # fmt: skip
    return _show_refused(binding, request, outcome, tuple(record.repairs), shown)


def make_dry_services(services: Services) -> Services:
    """The services of a dry run: nothing leaves the process, and nothing is counted. Every field is named here, so that
    a new one is not forgotten."""
    return Services(
        store=make_store("memory", services.clock),
        clock=services.clock,
        upstreams={},
        pacing=services.pacing,
        extra_lines=services.extra_lines,
        corrector=None,
        hooks=None,
        elsewhere=services.elsewhere,
        sampled=None,
        confirm=None,
        escalated=_ignore_escalation,
    )


def _ignore_escalation(_result: ToolResult, _record: CallRecord) -> None:
    """Ignores an escalation."""


class _Enforced(Mapping[str, ToolPolicy]):
    """The same tools, each with mode `enforce`."""

    def __init__(self, tools: Mapping[str, ToolPolicy]) -> None:
        self._tools = tools

    def __getitem__(self, name: str) -> ToolPolicy:
        return replace(self._tools[name], mode=Mode.ENFORCE)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


def _show_refused(
    binding: RouteBinding,
    request: RawRequest,
    result: ToolResult,
    repairs: tuple[Repair, ...],
    shown: dict[str, JsonValue],
) -> JsonValue:
    reply = binding.adapter.encode(
        result, binding.route.envelope, binding.route.error_status, "", request, binding.route.detail
    )
    return {
        "decision": "refuse",
        **shown,
        "code": result.failure.code.name,
        "repairs": _repairs(repairs),
        "errors": [_error(violation) for violation in result.failure.violations],
        "content": write_feedback(result),
        "status": reply.status,
        "answer": parse(reply.body),
    }


def _repairs(repairs: tuple[Repair, ...]) -> JsonValue:
    return [{"rule": repair.rule, "path": format_pointer(repair.path)} for repair in repairs]


def _error(violation: Violation) -> JsonValue:
    return {"path": format_pointer(violation.path), "code": violation.code.name, "message": violation.message}
