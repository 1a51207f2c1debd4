"""The texts of sixty rejected calls of collected tools: each has its facts, and none is large."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import pytest

from proxy.core.contract import attempts as contract
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.envelope import FORMATS, render_failure
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.view import FailureView
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model.codes import REQUIRED_MISSING
from proxy.core.model.values import (
    Conversation,
    Document,
    Failure,
    FailureRecorded,
    JsonValue,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.core.rules.rules import select_rules
from tests.collected_schemas import DATA
from tests.corpora.calls import check_of, rows

ONE_ERROR = 700
ESCALATION = 4096
CONVERSATION = Conversation("c", Rung.HEADER)


TRIAL = 60
# A value that no repair makes fit, by the type that a property wants.
WRONG: dict[str, JsonValue] = {
    "string": {"a": [1]},
    "integer": "many",
    "number": "north",
    "boolean": "perhaps",
    "array": {"a": 1},
    "object": 7,
}


class Refused(NamedTuple):
    """One refused call, why, and the policy of its tool."""

    call: ToolCall
    failure: Failure
    policy: ToolPolicy


def mistakes(schema: Any) -> Iterator[JsonValue]:
    """Yields what a model gets wrong: nothing sent, one value of another type, a list for the arguments."""
    yield {}
    for name, part in list(schema.get("properties", {}).items())[:1]:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in WRONG:
            yield {name: WRONG[kind]}
    yield [1, 2]


@cache
def refused_calls() -> list[Refused]:
    """The first sixty refused calls of every hundredth tool, then of the next ones."""
    tools, found = list(rows(DATA / "mcp-tools/tools.jsonl.gz")), []
    for row in (row for first in range(100) for row in tools[first::100]):
        schema, tool = row["inputSchema"], row["id"].rpartition("/")[2]
        policy = ToolPolicy(tool, check_of(schema), "f", repair=RepairPolicy(select_rules("standard", {})))
        for value in mistakes(schema):
            call = ToolCall(tool, Document(dumps(value), value), "call_abc123", CONVERSATION)
            decision = decide(call, policy)
            if isinstance(decision, Reject):
                found.append(Refused(call, decision.failure, policy))
        if len(found) >= TRIAL:
            break
    return found[:TRIAL]


def answer(refused: Refused, failures: int = 1) -> ToolResult:
    """Returns the answer after this many failed calls, each with other arguments."""
    recorded: FailureRecorded | None = None
    for number in range(failures):
        attempt = contract.make_failed_attempt(refused.failure, str(number))
        recorded = contract.add(recorded.episode if recorded else None, attempt)
    return add_advice(contract.grant_attempt(refused.call, refused.failure, recorded, refused.policy), refused.policy)


def beside(body: bytes, feedback: str) -> int:
    """The bytes of a body without the feedback in it."""
    return len(body) - len(json.dumps(feedback, ensure_ascii=False).encode()) + 2 if feedback else len(body)


def test_the_trial_has_sixty_calls_with_one_error_and_with_more() -> None:
    assert len(refused_calls()) == TRIAL
    assert 10 < sum(len(refused.failure.violations) == 1 for refused in refused_calls()) < 50


@pytest.mark.parametrize("name", FORMATS)
def test_one_error_takes_at_most_700_bytes_next_to_the_feedback(name: str) -> None:
    large = {}
    for refused in refused_calls():
        if len(refused.failure.violations) == 1:
            result = answer(refused)
            size = beside(
                render_failure(result, name, "category").body, write_feedback(result) if name != "hpd" else ""
            )
            if size > ONE_ERROR:
                large[refused.call.tool] = size
    assert {} == large


@pytest.mark.parametrize("name", FORMATS)
def test_an_escalation_takes_at_most_4_kb(name: str) -> None:
    sizes = [
        (len(render_failure(answer(refused, 3), name, "category").body), refused.call.tool)
        for refused in refused_calls()
    ]
    assert [] == [each for each in sizes if each[0] > ESCALATION]


def test_the_text_has_at_most_600_characters_in_the_median() -> None:
    assert median(len(write_feedback(answer(refused))) for refused in refused_calls()) <= 600


@pytest.mark.parametrize("number", range(TRIAL))
def test_every_text_says_where_what_was_expected_what_was_sent_and_what_to_do(number: int) -> None:
    refused = refused_calls()[number]
    lines = write_feedback(answer(refused)).split("\n")
    assert lines[0].startswith(f"Validation failed for tool '{refused.call.tool}' (attempt 1/3):")
    violations = answer(refused).failure.violations
    one = len(violations) == 1 and violations[0].path != ()
    verb = "add" if violations[0].code is REQUIRED_MISSING else "correct"
    which = f"{verb} {format_pointer(violations[0].path)}" if one else "correct these errors"
    assert lines[-1] == f"Please {which} and call the tool again."
    told = FailureView(answer(refused)).shown
    assert told
    for shown in told:
        at = next(
            i for i, line in enumerate(lines) if line.startswith(f"• {shown.path or 'arguments'} ({shown[0].code})")
        )
        block = [line.strip() for line in itertools.takewhile(lambda line: line.startswith("  "), lines[at + 1 :])]
        assert [] == [
            f"{label}: {said}"
            for label, said in (("Expected", shown.expected[:200]), ("Actual", shown.actual))
            if said and not any(line.startswith(f"{label}: {said}") for line in block)
        ]
    missing = [each for each in told if each.violation.code is REQUIRED_MISSING]
    assert not missing or any(line.startswith("Accepts: ") for line in lines)
