"""The shared parts of the corpus runs: a call validated by the code that serves, and the reader of packed JSON
lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from proxy.core.check.validation import Check, compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import TextLimits, are_equal, dumps, parse, read_document
from proxy.core.model.values import Conversation, Decision, Document, Forward, JsonValue, Rung, ToolCall
from proxy.core.rules.rules import TEXT_RULES, select_rules
from proxy.core.schema.dialects import normalise
from proxy.extensions.recording.comparing import rewrite_numeric_bounds

# The sets of calls whose right arguments are known. Those of other kinds (`further`) are only in tests/data.
KNOWN_SETS: Final = (
    "real-failures/cases.jsonl", "real-failures-2026/failures.jsonl", "real-failures-2026/failures-2.jsonl",
    "two-meanings/cases.jsonl", "two-meanings/cases-2.jsonl", "two-meanings/further.jsonl",
    "one-meaning/cases.jsonl", "one-meaning/cases-2.jsonl", "one-meaning/further.jsonl",
    "model_calls/invalid_calls.jsonl.gz",
)  # fmt: skip


@dataclass(frozen=True)
class KnownCall:
    """A collected call. `expected` holds the right arguments, or None if the call must be refused. `asked`: the model
    was asked for other values, so a faithful repair may differ from `expected`."""

    id: str
    folder: str
    tool: str
    schema: JsonValue
    sent: str
    expected: JsonValue
    debatable: bool
    asked: bool

    @property
    def has_two_meanings(self) -> bool:
        """Returns whether level `lenient` may read the call, by the operator's choice."""
        return self.folder == "two-meanings"


def known_calls(data: Path) -> Iterator[dict[str, Any]]:
    """The calls of all sets that are there."""
    for name in KNOWN_SETS:
        if (data / name).exists():
            yield from rows(data / name)


def read_known_calls(data: Path) -> Iterator[KnownCall]:
    """The same calls with one set of fields, without those whose tool's name is the mistake."""
    for name in KNOWN_SETS:
        if (data / name).exists():
            found = (row for row in rows(data / name) if not str(row.get("kind", "")).startswith("tool_name"))
            yield from (_read_known_call(name.partition("/")[0], row) for row in found)


def _read_known_call(folder: str, row: dict[str, Any]) -> KnownCall:
    raw = row["raw_arguments"] if "raw_arguments" in row else row["sent"]
    return KnownCall(
        id=row["id"],
        folder=folder,
        tool=row["tool"],
        schema=row["json_schema"] if "json_schema" in row else row["schema"],
        sent=raw if isinstance(raw, str) else json.dumps(raw),
        expected=row["expected_arguments"] if "expected_arguments" in row else row.get("expected"),
        debatable=row.get("debatable", False),
        asked=row.get("expected_note", "same up to types") != "same up to types",
    )


def check_of(schema: JsonValue) -> Check:
    """The compiled check of a schema as it was collected. Raises SchemaError."""
    return _check(json.dumps(schema))


@lru_cache(maxsize=4096)
def _check(schema: str) -> Check:
    return compile_check(rewrite_numeric_bounds(normalise(json.loads(schema))[0]))


def judged(
    schema: JsonValue,
    sent: str | bytes,
    level: str,
    switches: Mapping[str, bool] | None = None,
    tool: str = "tool",
) -> Decision:
    """The decision on arguments sent as text, under a schema, at a repair level; a tool's name tells what it does."""
    rules = select_rules(level, switches)
    policy = ToolPolicy(tool, check_of(schema), "corpus", repair=RepairPolicy(rules))
    text = sent.encode() if isinstance(sent, str) else sent
    document = read_document(text, TextLimits(), rules & TEXT_RULES) if text else Document(b"", None)
    return decide(ToolCall(tool, document, "call", Conversation("corpus", Rung.HEADER)), policy)


def outcome(decision: Decision, text: str | bytes, expected: JsonValue) -> str:
    """`untouched`, `right`, `refused` or `wrong` (forwarded with other arguments than expected; None: any is wrong)."""
    if not isinstance(decision, Forward):
        return "refused"
    sent = text.encode() if isinstance(text, str) else text
    if decision.checked.arguments == sent:
        same = expected is not None and are_equal(decision.checked.value, exact(expected))
        return "untouched" if same else "wrong"
    right = expected is not None and are_equal(parse(decision.checked.arguments), exact(expected))
    return "right" if right else "wrong"


def exact(value: JsonValue) -> JsonValue:
    """A value of the standard json module as our own parser gives it."""
    return parse(dumps(value))


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a .jsonl or .jsonl.gz file."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in text.splitlines():
        yield json.loads(line)
