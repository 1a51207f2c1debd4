"""`/-/trial`: what would become of a call under an edited schema, and what of all calls that are kept.

Nothing is sent to a tool. The schema is compiled in a thread; one comparison runs at a time, over 500 calls
at most, one in each turn of the event loop, so that no call waits longer for it than for another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from proxy.adapters.base import CallShape
from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import MASK
from proxy.core.envelope.feedback import write_feedback
from proxy.core.fates import CHANGES, Fate, compare_fates
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.values import (
    Decision,
    Forward,
    JsonProblem,
    JsonValue,
)
from proxy.core.schema.dialects import normalise, rewrite_numeric_bounds
from proxy.core.schema.nodes import SchemaError
from proxy.recording.judging import decide_sent, explain_refusal, judge_sent
from proxy.routing import Route
from proxy.server.admin.console_data import ConsoleData
from proxy.server.admin.page import Page, PageRequest, make_json_page, refuse_question
from proxy.telemetry.recent.ring import CallFilter

MOST_CALLS: Final = 500
LONGEST_SCHEMA: Final = 256 * 1024
_NO_VALUES: Final = (
    "kept calls have no arguments: say `admin: {values: full}` (with a token), or compare over recorded calls "
    "(toolcall-proxy diff)"
)
_MARKS: Final = (MASK, "...")


async def compare_schema(data: ConsoleData, route: Route, policy: ToolPolicy, asked: PageRequest) -> Page:
    """The answer to `/-/trial`: arguments (`text`, or `body`) judged, or all kept calls compared (`over: kept`)."""
    body, edited = asked.body, policy
    if "schema" in body:
        made = await edit_policy(policy, body["schema"])
        if isinstance(made, str):
            return refuse_question(made)
        edited = made
    if "over" not in body:
        sent = str(body["text"]).encode("utf-8", "surrogatepass") if "text" in body else dumps(body.get("body", {}))
        return make_json_page(show_decision(decide_sent(sent, route.shape, edited), edited))
    if body["over"] != "kept":
        return refuse_question("recorded calls are compared by `toolcall-proxy diff`, beside the proxy")
    if asked.role != "operator":
        return refuse_question("readers see no values, and compare none", 403)
    found = await compare_kept(data, route.name, route.shape, policy, edited)
    return refuse_question(found) if isinstance(found, str) else make_json_page(found)


def show_decision(decision: Decision, policy: ToolPolicy) -> dict[str, JsonValue]:
    """What would become of a call: what would be sent, or what the model would read."""
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
    """The policy with another schema, given as a JSON value or as its text; or what is wrong with that."""
    value = schema
    if isinstance(schema, str):
        if len(schema) > LONGEST_SCHEMA:
            return f"a schema here has at most {LONGEST_SCHEMA >> 10} KiB"
        value = parse(schema.encode("utf-8", "surrogatepass"))
        if isinstance(value, JsonProblem):
            return f"{value.line}:{value.column} the schema is no JSON: {value.reason}"
    try:
        return await asyncio.to_thread(_compile, policy, value)
    except SchemaError as error:
        return f"{format_pointer(error.path) or 'the schema'}: {error.message}"


def _compile(policy: ToolPolicy, schema: JsonValue) -> ToolPolicy:
    value, _ = rewrite_numeric_bounds(normalise(schema)[0])
    check = compile_check(value)
    return replace(policy, check=check, schema_id="edited", fingerprint=f"{policy.fingerprint} edited")


async def compare_kept(
    data: ConsoleData, route: str, shape: CallShape, policy: ToolPolicy, edited: ToolPolicy
) -> dict[str, JsonValue] | str:
    """What the edited policy changes for the kept calls of a tool, or why that cannot be said."""
    if data.recent.values is None:
        return _NO_VALUES
    wanted = CallFilter(tool=frozenset({policy.tool}), route=frozenset({route}))
    counts: Counter[str] = Counter()
    changed: Counter[tuple[str, ...]] = Counter()
    for kept in list(data.recent.select(wanted, MOST_CALLS)):
        found = data.recent.values.read(kept.seq)
        counts["calls"] += 1
        if found is None or (data.values == "preview" and _is_cut(parse(found[0]))):
            counts["cannot_tell"] += 1
            continue
        before, after = (judge_sent(found[0], shape, each) for each in (policy, edited))
        change = compare_fates(before, after)
        counts[change] += 1
        if change != "same":
            changed[_describe(before, after)] += 1
        await asyncio.sleep(0)  # one call in each turn of the loop
    return show_comparison(counts, changed)


def show_comparison(counts: Mapping[str, int], changed: Counter[tuple[str, ...]]) -> dict[str, JsonValue]:
    """A comparison as the answer gives it: numbers by kind of change, and the places at which calls change."""
    shown: dict[str, Any] = {name: counts.get(name, 0) for name in ("calls", *CHANGES, "cannot_tell")}
    shown["changes"] = [
        {"path": path, "code": code, "before": before, "after": after, "calls": number}
        for (path, code, before, after), number in changed.most_common(50)
    ]
    return shown


def _describe(before: Fate, after: Fate) -> tuple[str, str, str, str]:
    """Where a call changes: an error that one of its fates has and the other lacks, and both fates in a word."""
    first, second = (set(fate.errors) for fate in (before, after))
    only = sorted(first - second) or sorted(second - first) or sorted(first) or [("", "")]
    code, path = only[0]
    return (path, code, *("forward" if fate.forwarded else "refuse" for fate in (before, after)))  # type: ignore[return-value]


def _is_cut(value: JsonValue) -> bool:
    """Whether a preview may hide something of the value, so that no verdict over it is sure."""
    text = dumps(value).decode("utf-8", "replace")
    return any(mark in text for mark in _MARKS)
