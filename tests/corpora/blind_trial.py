"""Calls that real models made and the proxy rejects, with the text of each rejection: the blind trial.

The question is whether the text is enough. Somebody who sees only the call and the text, and never a schema, writes
down the arguments to send next; `answers.json` holds them. `test_blind_trial.py` sends them, and checks that each name
in them is in the call or the text.

python -m tests.corpora.blind_trial     writes the calls and the texts to stdout
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.core.contract import attempts as contract
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.envelope.feedback import write_feedback
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import TextLimits, read_document
from proxy.core.model.values import Conversation, Decision, JsonValue, Reject, Rung, ToolCall
from proxy.core.rules.rules import TEXT_RULES, select_rules
from tests.corpora.calls import check_of, rows

DATA: Final = Path(__file__).parent.parent / "data"
ANSWERS: Final = DATA / "blind-trial" / "answers.json"
HARD: Final = DATA / "blind-trial" / "hard.json"
TRIAL: Final = 59
_LISTS: Final = (
    ("real-failures/cases.jsonl", "schema", "sent"),
    ("real-failures-2026/failures.jsonl", "schema", "sent"),
    ("model_calls/invalid_calls.jsonl.gz", "json_schema", "raw_arguments"),
)
_RULES: Final = select_rules("standard")


class TrialCall(NamedTuple):
    """One rejected call: its name in its list, its tool with the schema, the sent arguments, and the text of the
    rejection."""

    id: str
    tool: str
    schema: JsonValue
    sent: str
    text: str


def judge(tool: str, schema: JsonValue, sent: str) -> tuple[Decision, ToolCall, ToolPolicy]:
    """The decision on arguments sent as text, at the usual level."""
    policy = ToolPolicy(tool, check_of(schema), "trial", repair=RepairPolicy(_RULES))
    document = read_document(sent.encode(), TextLimits(), _RULES & TEXT_RULES)
    call = ToolCall(tool, document, "call", Conversation("trial", Rung.HEADER))
    return decide(call, policy), call, policy


def trial_calls() -> list[TrialCall]:
    """The calls of the trial, the same ones each time."""
    answered = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return [call for call in _refused() if call.id in answered]


def hard_calls() -> list[tuple[TrialCall, JsonValue]]:
    """Harder calls, each with what is to be sent next: deep and large schemas, unions, five languages."""
    held = json.loads(HARD.read_text(encoding="utf-8"))
    return [
        (call, row["answer"])
        for row in held["calls"]
        for call in _told(row["id"], row["tool"], held["schemas"][row["schema"]], row["sent"])
    ]


def _refused() -> Iterator[TrialCall]:
    for name, schema, sent in _LISTS:
        for row in rows(DATA / name):
            yield from _told(row["id"], row["tool"], row[schema], row[sent])


def _told(name: str, tool: str, schema: JsonValue, sent: Any) -> Iterator[TrialCall]:
    written = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
    decision, call, policy = judge(tool, schema, written)
    if isinstance(decision, Reject):
        attempt = contract.make_failed_attempt(decision.failure, "")
        result = contract.grant_attempt(call, decision.failure, contract.add(None, attempt), policy)
        text = write_feedback(add_advice(result, policy))
        if "takes no value at all" not in text:  # a schema that contradicts itself
            yield TrialCall(name, tool, schema, written, text)


if __name__ == "__main__":
    for number, each in enumerate(trial_calls(), 1):
        sys.stdout.write(f"=== {number} {each.id}\n{each.tool}({each.sent})\n--- answered\n{each.text}\n\n")
