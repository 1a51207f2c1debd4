"""`/-/trial`: judges arguments, or earlier calls of a tool, under an edited schema. Nothing is sent to a tool.

The schema is compiled in a thread. Only one comparison runs at a time, over at most 500 kept or recorded calls. It
judges one call in each turn of the event loop, so that a client's call waits for at most one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import MASK
from proxy.core.envelope.feedback import write_feedback
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.values import (
    Decision,
    Forward,
    JsonProblem,
    JsonValue,
)
from proxy.core.schema.dialects import map_subschemas, normalise, respell_bounds
from proxy.core.schema.drafts import SchemaError
from proxy.extensions.recording.comparing import ComparisonCounts, LineComparison, compare_line, compare_sent
from proxy.extensions.recording.line import decide_sent, explain_refusal
from proxy.extensions.recording.record_file import read_last_lines
from proxy.extensions.recording.recorder import RecordConfig, find_record
from proxy.routing import Route
from proxy.server.admin.api import list_current_tools
from proxy.server.admin.console_data import ConsoleData
from proxy.server.admin.page import Page, PageRequest, make_json_page, refuse_question
from proxy.server.lifecycle import Serving
from proxy.telemetry.recent.ring import read_value

MOST_CALLS: Final = 500
LONGEST_SCHEMA: Final = 256 * 1024
_NO_VALUES: Final = (
    "kept calls have no arguments: say `admin: {values: full}` (with a token), or compare over recorded calls"
)
_NO_RECORD: Final = "no call is recorded: say `record: {file: ...}` in the config (docs/recording.md)"
# The most changed places that a comparison shows.
_FEW: Final = 50
_MARKS: Final = (MASK, "...")


async def make_comparison_page(serving: Serving, question: PageRequest) -> Page:
    """Shows the verdicts on arguments (`text`), or on earlier calls (`over`), under an edited `schema`."""
    body, data = question.body, serving.console
    route, tool = str(body.get("route", "")), str(body.get("tool", ""))
    policy = list_current_tools(serving).get((route, tool)) or _find_learned(serving, route, tool)
    if data is None or policy is None:
        return refuse_question(f"no tool {tool[:128]!r} is served on the route {route[:128]!r}", 404)
    binding = serving.handler.snapshot.bindings[route]
    async with serving.comparing:
        return await compare_schema(data, find_record(serving.config), binding.route, policy, question)


def _find_learned(serving: Serving, route: str, tool: str) -> ToolPolicy | None:
    """A tool that the upstream of a route lists."""
    binding = serving.handler.snapshot.bindings.get(route)
    if binding is None or binding.route.learn is None:
        return None
    return binding.catalogues.get_latest(binding.route.learn).get(tool)


async def compare_schema(
    data: ConsoleData, record: RecordConfig | None, route: Route, policy: ToolPolicy, question: PageRequest
) -> Page:
    """Answers `/-/trial`: judges the arguments in `text` or `body`, or compares calls (`over` is kept or recorded)."""
    body, edited = question.body, policy
    if "schema" in body:
        made = await edit_policy(policy, body["schema"])
        if isinstance(made, str):
            return refuse_question(made)
        edited = made
    if "over" not in body:
        sent = str(body["text"]).encode("utf-8", "surrogatepass") if "text" in body else dumps(body.get("body", {}))
        return make_json_page(show_decision(decide_sent(sent, route.shape, edited), edited))
    if body["over"] not in ("kept", "recorded"):
        return refuse_question("`over` is kept or recorded")
    if question.role != "operator":
        return refuse_question("a reader may not see values, so only the operator's token may compare calls", 403)
    if body["over"] == "kept":
        found = await compare_kept(data, route, policy, edited)
    else:
        found = await compare_recorded(record, route, policy, edited)
    return refuse_question(found) if isinstance(found, str) else make_json_page(found.show(_FEW))


def show_decision(decision: Decision, policy: ToolPolicy) -> dict[str, JsonValue]:
    """Returns a decision as JSON: the arguments that would be sent, or the text that the model would read."""
    if isinstance(decision, Forward):
        checked = decision.checked
        value = parse(checked.arguments)
        return {
            "decision": "forward",
            "repairs": [{"rule": each.rule, "path": format_pointer(each.path)} for each in checked.repairs],
            "errors": [],
            "arguments": checked.arguments.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value,
        }
    failure = decision.failure
    return {
        "decision": "refuse",
        "code": failure.code.name,
        "repairs": [],
        "errors": [
            {"path": format_pointer(each.path), "code": each.code.name, "message": each.message}
            for each in failure.violations
        ],
        "content": write_feedback(explain_refusal(failure, policy)),
    }


async def edit_policy(policy: ToolPolicy, schema: JsonValue) -> ToolPolicy | str:
    """Returns the policy with another schema, or a text that says why the schema cannot be used.

    `schema` is a JSON value, or a string that holds JSON.
    """
    value = schema
    if isinstance(schema, str):
        if len(schema) > LONGEST_SCHEMA:
            return f"a schema here has at most {LONGEST_SCHEMA >> 10} KiB"
        value = parse(schema.encode("utf-8", "surrogatepass"))
        if isinstance(value, JsonProblem):
            return f"{value.line}:{value.column} the schema is not JSON: {value.reason}"
    try:
        return await asyncio.to_thread(_compile, policy, value)
    except SchemaError as error:
        return f"{format_pointer(error.path) or 'the schema'}: {error.message}"


def _compile(policy: ToolPolicy, schema: JsonValue) -> ToolPolicy:
    check = compile_check(rewrite_numeric_bounds(normalise(schema)[0]))
    return replace(policy, check=check, schema_id="edited", fingerprint=f"{policy.fingerprint} edited")


def rewrite_numeric_bounds(schema: JsonValue) -> JsonValue:
    """A copy with draft 4's `exclusiveMinimum: true` beside `minimum` in the spelling of the later drafts.

    This serves schemas that the operator cannot edit (learned from a server, replayed from a log); a schema in a file
    is refused with its remedy instead. Draft-4 schemas stay as they are.
    """
    if not isinstance(schema, dict) or "draft-04" in str(schema.get("$schema", "")):
        return schema
    made = map_subschemas(schema, lambda _, child: rewrite_numeric_bounds(child))
    respell_bounds(made)
    return made


async def compare_kept(
    data: ConsoleData, route: Route, policy: ToolPolicy, edited: ToolPolicy
) -> ComparisonCounts | str:
    """Counts the changed fates of a tool's kept calls under the edited policy, or returns why it cannot."""
    if data.recent.values is None:
        return _NO_VALUES
    key, found = (route.name, policy.tool), ComparisonCounts()
    of_tool = [kept for kept in data.recent.newest() if (read_value(kept, "route"), read_value(kept, "tool")) == key]
    for kept in of_tool[:MOST_CALLS]:
        values = data.recent.values.read(kept.seq)
        marks = _MARKS if data.values == "preview" else (MASK,)  # secrets are masked in both
        if values is None or _holds_mark(parse(values[0]), marks):
            compared = LineComparison("cannot_tell")
        else:
            compared = compare_sent(values[0], route.shape, policy, edited)
        found.add(kept.seq, policy.tool, compared)
        await asyncio.sleep(0)  # lets the calls of clients run in between
    return found


async def compare_recorded(
    record: RecordConfig | None, route: Route, policy: ToolPolicy, edited: ToolPolicy
) -> ComparisonCounts | str:
    """Counts the changed fates of a tool's last recorded calls, or returns why it cannot."""
    if record is None:
        return _NO_RECORD
    key = (route.name, policy.tool)
    lines = await asyncio.to_thread(read_last_lines, Path(record.file), *key, MOST_CALLS)
    if not lines:
        return f"no call of this tool is recorded in {Path(record.file).name}"
    old, new = {key: (route.shape, policy)}, {key: (route.shape, edited)}
    found = ComparisonCounts()
    for number, line in enumerate(lines, 1):
        found.add(number, policy.tool, compare_line(line, old, new))
        await asyncio.sleep(0)
    return found


def _holds_mark(value: JsonValue, marks: Iterable[str]) -> bool:
    """Whether a part of a kept value may be masked or cut. The judgement of such a value is not reliable."""
    text = dumps(value).decode("utf-8", "replace")
    return any(mark in text for mark in marks)
