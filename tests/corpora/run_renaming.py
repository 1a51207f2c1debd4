"""Runs each collected call next to the same call under other names. The decision, the rules, the places and the
arguments have to be the same at `standard`, since a repair reads no meaning out of a name.

`wrong` counts the calls of which one differs, and a set of which fewer than 95 % of the calls could be renamed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from proxy.core.check.validation import SchemaError
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import ABSENT, Decision, Forward, JsonValue
from tests.corpora import generate
from tests.corpora.calls import check_of, judged, read_known_calls, rows
from tests.corpora.renaming import Case, Renaming, UnrenamableError, rename_case
from tests.corpora.run_repair import DAMAGES, damaged

Found = Counter[str]
LEVEL: Final = "standard"
LEAST_RENAMED: Final = 0.95


def list_known(data: Path) -> Iterator[Case]:
    """The calls whose right arguments are known."""
    for call in read_known_calls(data):
        yield Case(f"{call.folder} {call.id}", call.tool, call.schema, call.sent)


def list_model_calls(data: Path) -> Iterator[Case]:
    """The right calls that models made."""
    for row in rows(data / "model_calls/valid_calls.jsonl.gz"):
        yield Case(row["id"], row["tool"], row["json_schema"], json.dumps(row["arguments"]))


def list_bfcl(data: Path) -> Iterator[Case]:
    """The right calls of BFCL, as they are and with each value as text."""
    for row in rows(data / "bfcl/calls.jsonl.gz"):
        schema, arguments = row["json_schema"], row["arguments"]
        yield Case(row["id"], row["tool"], schema, json.dumps(arguments))
        broken = damaged(schema, arguments, DAMAGES["all"])
        if broken != arguments:
            yield Case(f"{row['id']} as text", row["tool"], schema, json.dumps(broken))


def list_generated(data: Path) -> Iterator[Case]:
    """Generated calls of real tools: a right one, one spelled as text, and one with the mistakes of a model."""
    for number, row in enumerate(rows(data / "mcp-tools/tools.jsonl.gz")):
        schema: JsonValue = row["inputSchema"]
        tool = row["id"].rpartition("/")[2]
        try:
            check = check_of(schema)
        except SchemaError:
            continue
        chance = Random(number)
        value = generate.random_value(check, chance)
        if value is not ABSENT:
            spelled, wrong = generate.as_text(check, value, chance), generate.damaged(value, chance)
            for kind, sent in (("right", value), ("as text", spelled), ("with mistakes", wrong)):
                yield Case(f"{row['id']} {kind}", tool, schema, dumps(sent).decode())


SETS: Final = {
    "known calls": list_known,
    "model_calls": list_model_calls,
    "bfcl": list_bfcl,
    "mcp-tools": list_generated,
}


def summarize(decision: Decision, renaming: Renaming) -> dict[str, Any]:
    """Returns what has to be the same of two calls that differ by names only."""
    if not isinstance(decision, Forward):
        return {"decision": "reject"}
    made = decision.checked
    uses = [json.dumps([repair.rule, renaming.normalize(repair.path)]) for repair in made.repairs]
    arguments = renaming.normalize(parse(made.arguments)) if made.arguments else None
    return {"decision": "forward", "repairs": sorted(uses), "arguments": dumps(arguments)}


def compare(case: Case) -> tuple[str, str]:
    """`same`, `not renamed` or `wrong`, with the parts of the summary that differ."""
    try:
        other, renaming = rename_case(case)
    except UnrenamableError:
        return "not renamed", ""
    kind = "same" if (other.tool, other.sent, other.schema) != (case.tool, case.sent, case.schema) else "not renamed"
    before = summarize(judged(case.schema, case.sent, LEVEL, tool=case.tool), renaming)
    after = summarize(judged(other.schema, other.sent, LEVEL, tool=other.tool), renaming)
    differing = [key for key, value in before.items() if after.get(key, value) != value]
    return ("wrong", ", ".join(differing)) if differing else (kind, "")


def compare_all(cases: Iterable[Case]) -> tuple[Found, list[str]]:
    """The counts over some cases, and a line for each that differs."""
    found, lines = Found({"same": 0, "not renamed": 0, "wrong": 0}), []
    for case in cases:
        made, differing = compare(case)
        found[made] += 1
        if made == "wrong":
            other, _ = rename_case(case)
            lines.append(f"{case.id}: {differing}\n  {case.tool} {case.sent[:200]}\n  {other.tool} {other.sent[:200]}")
    return found, lines


def is_renamed_enough(found: Found) -> bool:
    """Returns whether the renaming changes at least 95 % of the calls."""
    return found["not renamed"] <= (1 - LEAST_RENAMED) * found.total()


def renamed(data: Path) -> Iterator[tuple[str, Found]]:
    """Every set under other names."""
    for name, cases in SETS.items():
        found, lines = compare_all(cases(data))
        for line in lines:
            print("WRONG", line)
        if not is_renamed_enough(found):
            print("WRONG", name, "has too many calls that cannot be renamed")
            found["wrong"] += 1
        yield f"{name}, renamed, at {LEVEL}", found


RUNS: Final = (renamed,)
