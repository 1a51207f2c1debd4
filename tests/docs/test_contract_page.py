"""docs/contract.md and docs/reference/formats.md show answers as they are made, and name every format, header and
container setting."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from proxy.core.contract import attempts as contract
from proxy.core.contract import container, refusals
from proxy.core.contract.attempts import KEPT_ATTEMPTS
from proxy.core.contract.container import EVENTS, FUNCTION_KEYS
from proxy.core.contract.policy import AttemptsPolicy, CallCap, ToolPolicy
from proxy.core.display import suggestions as names
from proxy.core.envelope import FORMATS, Detail, render_failure
from proxy.core.envelope.feedback import write_feedback
from proxy.core.model import codes
from proxy.core.model.values import (
    Attempt,
    Container,
    ContainerFunction,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    JsonValue,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text() for name in ("contract.md", "reference/contract.md"))
FORMATS_PAGE = (DOCS / "reference" / "formats.md").read_text()

MATH = Container(
    "Math", "plugin", tuple(map(ContainerFunction, ("Add", "Multiply", "Abs", "Square", "Subtract", "Min")))
)
MISSING = Violation(
    codes.REQUIRED_MISSING,
    ("path",),
    "Required field 'path' is missing",
    "string",
    "You sent '/file_path': if you meant 'path', rename it; if not, leave it out.",
)
ENCODING = Violation(
    codes.ENUM_MISMATCH,
    ("encoding",),
    "Invalid enum value 'uft8'",
    "one of 'utf-8', 'ascii', 'utf-16'",
    "Did you mean 'utf-8'?",
    value="uft8",
)
SENT = {"file_path": "/home/ann/notes/todo.txt", "encoding": "uft8"}
FAILURE = Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, (MISSING, ENCODING), sent=SENT)


def call(tool: str, sent: JsonValue = None) -> ToolCall:
    return ToolCall(tool, Document(b"", sent), "call_abc123", Conversation("c-1", Rung.HEADER))


REFUSED = ToolResult(
    call("write_file"),
    FAILURE,
    Attempt(2, 3),
    accepts=("{path: string (required), content?: string, encoding?: 'utf-8' | 'ascii' | 'utf-16'}",),
    example='{"path":"<string>","encoding":"<one of utf-8, ascii, utf-16>"}',
    example_complete=False,
)


def escalation() -> ToolResult:
    recorded = None
    for sent in ("a", "b", "c"):
        recorded = contract.add(recorded.episode if recorded else None, contract.make_failed_attempt(FAILURE, sent))
    return contract.grant_attempt(call("write_file"), FAILURE, recorded, ToolPolicy("write_file", None, "f"))


def cap() -> ToolResult:
    searching = call("web_search")
    slot = refusals.make_reservation(searching, ToolPolicy("web_search", None, "f", cap=CallCap(5)))
    assert slot is not None
    return ToolResult(searching, refusals.make_cap_failure(searching, slot))


TIMEOUT = Failure(
    codes.UPSTREAM_TIMEOUT,
    "No answer within 30 seconds.",
    details={"executed": "unknown"},
)
SENTENCES = {
    "refused": REFUSED,
    "sent again": replace(REFUSED, repeated=True, accepts=(), example=""),
    "escalation": escalation(),
    "unknown tool": ToolResult(
        call("get_wether"), names.make_unknown_tool_failure("get_wether", ["get_weather"]), Attempt(1, 3)
    ),
    "container": ToolResult(
        call("Math"), container.make_misuse_failure(MATH, {"function": "Add", "a": 5, "b": 10}), attempt=Attempt(1, 3)
    ),
    "cap": cap(),
    "upstream": ToolResult(call("get_weather"), TIMEOUT),
}


COLUMNS = 120
MACHINES = "toolcall-proxy/feedback"
DETAILS: tuple[Detail, Detail] = ("compact", "full")
SHORT = replace(REFUSED, accepts=(), example="")

# The page leaves out repeated lines of an answer. Each key is a text of SENTENCES, each value the line from which on
# `…` is in its place.
CUT = {"sent again": "Errors:", "escalation": "Errors:"}


def text(name: str) -> str:
    """A sentence as the page shows it."""
    lines = write_feedback(SENTENCES[name]).split("\n")
    if name not in CUT:
        return "\n".join(lines)
    return "\n".join([*lines[: lines.index(CUT[name])], "…", lines[-1]])


def shown(name: str) -> str:
    """A format as the page shows it: the page has the sentence, and all errors but the first, only once."""
    result = SENTENCES["container"] if name == "hpd" else SHORT
    body = json.loads(render_failure(result, name, "category", detail="compact").body)
    if name == "mcp":  # the part for machines is on the page once, at `tool_result`
        assert body["_meta"] == {MACHINES: json.loads(render_failure(SHORT, "tool_result", "category").body)["error"]}
        body["_meta"] = {MACHINES: "<the error of tool_result>"}
    return lay_out(shorten(body))


def shown_more(name: str) -> str:
    """Returns what `detail: full` adds to a format, as the page shows it."""
    compact, full = (json.loads(render_failure(SHORT, name, "category", detail=detail).body) for detail in DETAILS)
    return lay_out(shorten(added(compact, full)))


def added(before: dict[str, JsonValue], after: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The members of an object that another one lacks or has otherwise, at every depth of objects."""
    assert set(before) <= set(after)
    return {
        key: added(was, value) if isinstance(was := before.get(key), dict) and isinstance(value, dict) else value
        for key, value in after.items()
        if key not in before or before[key] != value
    }


def lay_out(value: JsonValue, indent: str = "") -> str:
    """JSON with each object or array on one line of at most 120 columns, else a line for each member."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= COLUMNS or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + lay_out(item, deeper) for item in value) + f"\n{indent}]"
    members = (f"{deeper}{json.dumps(key)}: {lay_out(member, deeper)}" for key, member in value.items())
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


def shorten(value: JsonValue) -> JsonValue:
    """The same value with `<the feedback>` for the sentence, and the second error named only."""
    match value:
        case dict():
            return {
                key: [inner[0], "<the error at /path>"]
                if key == "errors" and [error["path"] for error in inner] == ["/encoding", "/path"]
                else shorten(inner)
                for key, inner in value.items()
            }
        case list():
            return [shorten(inner) for inner in value]
        case _:
            return "<the feedback>" if value == write_feedback(SHORT) else value


@pytest.mark.parametrize("name", SENTENCES)
def test_the_page_shows_a_feedback_as_it_is_made(name: str) -> None:
    assert f"```text\n{text(name)}\n```" in PAGE


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_shows_a_format_as_it_is_made(name: str) -> None:
    assert f"## `{name}`" in FORMATS_PAGE
    assert f"```json\n{shown(name)}\n```" in FORMATS_PAGE


def test_the_page_shows_the_whole_part_for_machines_as_it_is_made() -> None:
    assert f"```json\n{shown_more('tool_result')}\n```" in FORMATS_PAGE


@pytest.mark.parametrize("header", ["Tool-Error", "Tool-Attempt", "Tool-Format", "Tool-Repairs", "Tool-Warnings",
                                    "Retry-After", "Cache-Control"])  # fmt: skip
def test_a_header_is_explained(header: str) -> None:
    assert f"| `{header}` |" in PAGE


def test_the_page_names_defaults_and_closed_lists() -> None:
    limits, attempts = FeedbackLimits(), AttemptsPolicy()
    expected = [
        f"`max_errors` {limits.max_errors}",
        f"`max_chars` {limits.max_chars}",
        f"`max_preview` {limits.max_preview}",
        f"`max: {attempts.max_attempts}`",
        f"the last {KEPT_ATTEMPTS} failed calls",
        *(f"`{event}`" for event in EVENTS),
        *(f"`{key}`" for key in FUNCTION_KEYS),
        *(f"`{field.name}`" for field in fields(Container)),
    ]
    assert [] == [text for text in expected if text not in PAGE]
