"""Holds the generated quick repairs against the repair engine on every collected schema: the same result, or no word.

The calls are the collected ones, valid ones with numbers, booleans and containers spelt as text, and valid ones with a
model's mistakes. `run_all` exits 1 at any difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from proxy.core.check.validation import Check, SchemaError
from proxy.core.contract.policy import RepairPolicy
from proxy.core.json.jsontext import LosslessFloat, dumps, parse
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue
from proxy.core.repair.engine import repair
from proxy.core.repair.fast_repair import repair_quickly
from proxy.core.rules.rules import PLUMBING_KEYS, select_rules
from tests.corpora.calls import check_of, rows
from tests.corpora.generate import as_text, damaged, random_value
from tests.corpora.run_schemas import openapi_bodies

Found = Counter[str]
LEVELS: Final = ("basic", "standard", "lenient")
SEEDS: Final = 2


def collected(data: Path) -> Iterator[tuple[str, Found]]:
    """The collected calls, as they were sent."""
    found: Found = Counter()
    for row in rows(data / "real-failures/cases.jsonl"):
        if not row["kind"].startswith("tool_name"):
            _hold(row["schema"], parse(str(row["sent"]).encode()), found)
    for row in rows(data / "model_calls/invalid_calls.jsonl.gz"):
        raw = row["raw_arguments"]
        _hold(row["json_schema"], parse(raw.encode()) if isinstance(raw, str) else parse(dumps(raw)), found)
    yield "quick repairs, collected calls", found


def generated(data: Path) -> Iterator[tuple[str, Found]]:
    """Generated calls for every schema, damaged two ways."""
    catalogues = {
        "mcp-tools": (row["inputSchema"] for row in rows(data / "mcp-tools/tools.jsonl.gz")),
        "bfcl": (row["json_schema"] for row in rows(data / "bfcl/calls.jsonl.gz")),
        "openapi": (schema for _, schema in openapi_bodies(data)),
    }
    for name, schemas in catalogues.items():
        spelt, wrong = Found(), Found()
        for number, schema in enumerate(schemas):
            try:
                check = check_of(schema)
            except SchemaError:
                continue
            for seed in range(SEEDS):
                chance = Random(number * SEEDS + seed)
                value = random_value(check, chance)
                if value is not ABSENT:
                    _hold(schema, parse(dumps(as_text(check, value, chance))), spelt)
                    _hold(schema, parse(dumps(damaged(value, chance))), wrong)
        yield f"quick repairs, {name} spelt as text", spelt
        yield f"quick repairs, {name} with mistakes", wrong


def _hold(schema: JsonValue, value: JsonValue, found: Found) -> None:
    try:
        check = check_of(schema)
    except SchemaError:
        return
    if isinstance(value, JsonProblem) or check.accepts(value):
        return
    for level in LEVELS:
        found[_compared(check, value, level)] += 1


def _compared(check: Check, value: JsonValue, level: str) -> str:
    policy = RepairPolicy(select_rules(level, {}), PLUMBING_KEYS if level == "lenient" else frozenset())
    before, short = dumps(value), repair_quickly(check, value, policy)
    if before != dumps(value):
        print("WRONG", before[:300], "was changed")
        return "wrong"
    long = repair(check, value, policy)
    if short is None:
        return "left to the engine, which repairs" if long.accepted else "left to the engine, which refuses"
    if long.exhausted or (long.accepted and _typed(long.value) == _typed(short[0]) and long.repairs == short[1]):
        return "too much for the engine" if long.exhausted else "same"
    print("WRONG", level, before[:300], dumps(short[0])[:300], short[1], long.repairs)
    return "wrong"


def _typed(value: JsonValue) -> JsonValue:
    """A value with the type and text of each number, in which 1, 1.0 and true differ, and with the order of keys."""
    if isinstance(value, dict):
        return [(key, _typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return type(value), bytes(value) if isinstance(value, LosslessFloat) else value


RUNS: Final = (collected, generated)
