"""Runs the repair engine over the collected calls and prints what each level makes of them.

`run_all` exits 1 if one call is forwarded with arguments other than the right ones, or a right call is changed.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proxy.core.model import Forward, JsonValue
from proxy.core.sites import facts
from proxy.core.validation import compile_check
from tests.corpora.calls import judged, outcome, rows

Found = Counter[str]


def real_failures(data: Path) -> Iterator[tuple[str, Found]]:
    """Reported failures: right at the level each case names, wrong nowhere."""
    cases = [row for row in rows(data / "real-failures/cases.jsonl") if not row["kind"].startswith("tool_name")]
    for level in ("off", "basic", "standard", "lenient"):
        found: Found = Counter()
        for case in cases:
            made = outcome(judged(case["schema"], case["sent"], level), case["sent"], case["expected"])
            good = case["expected"] is None if made == "refused" else made != "wrong"
            found["right" if good else "wrong" if made == "wrong" else "refused though repairable"] += 1
            due = case["suggested_level"] != "L2" or level == "lenient"
            if level in ("standard", "lenient") and due and not good:
                found[f"missed {case['id']}"] += 1
        yield f"real-failures at {level}", found


Damage = Callable[[JsonValue, frozenset[str]], JsonValue]


def _numbers(value: JsonValue, types: frozenset[str]) -> JsonValue:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return json.dumps(value) if numeric and "string" not in types else value


def _booleans(value: JsonValue, types: frozenset[str]) -> JsonValue:
    return json.dumps(value) if isinstance(value, bool) and "string" not in types else value


def _containers(value: JsonValue, types: frozenset[str]) -> JsonValue:
    return json.dumps(value) if isinstance(value, dict | list) and "string" not in types else value


def _all(value: JsonValue, types: frozenset[str]) -> JsonValue:
    for damage in (_numbers, _booleans, _containers):
        value = damage(value, types)
    return value


DAMAGES: dict[str, Damage] = {"numbers": _numbers, "booleans": _booleans, "containers": _containers, "all": _all}


def damaged(schema: JsonValue, arguments: dict[str, Any], damage: Damage) -> dict[str, Any]:
    """The call with each top-level value turned into text where the schema states types that exclude text."""
    check = compile_check(schema)
    broken = copy.deepcopy(arguments)
    for key, value in arguments.items():
        member = check.root.properties.get(key)
        if member is not None and not facts(member).site.free_text:
            broken[key] = damage(value, facts(member).site.types)
    return broken


def _undamaged_and_damaged(name: str, calls: list[tuple[JsonValue, dict[str, Any]]]) -> Iterator[tuple[str, Found]]:
    found: Found = Counter()
    for schema, arguments in calls:
        text = json.dumps(arguments)
        made = outcome(judged(schema, text, "standard"), text, arguments)
        # 3.0 for an integer is respelt by rule integral_float: the same number
        found["untouched" if made == "untouched" else "respelt" if made == "right" else made] += 1
    yield f"{name}, as they are", found
    for kind, damage in DAMAGES.items():
        found = Counter()
        for schema, arguments in calls:
            broken = damaged(schema, arguments, damage)
            if broken == arguments:
                continue
            text = json.dumps(broken)
            found[outcome(judged(schema, text, "standard"), text, arguments)] += 1
        yield f"{name}, {kind} as text", found


def bfcl(data: Path) -> Iterator[tuple[str, Found]]:
    """The expected calls of BFCL, as they are and damaged four ways."""
    calls = [(row["json_schema"], row["arguments"]) for row in rows(data / "bfcl/calls.jsonl.gz")]
    yield from _undamaged_and_damaged("bfcl", calls)


def model_calls(data: Path) -> Iterator[tuple[str, Found]]:
    """Real calls by models: the valid ones stay untouched; of the invalid ones none is repaired wrongly."""
    found: Found = Counter()
    for row in rows(data / "model_calls/valid_calls.jsonl.gz"):
        text = json.dumps(row["arguments"])
        found[outcome(judged(row["json_schema"], text, "standard"), text, row["arguments"])] += 1
    yield "model_calls, valid", found
    for level in ("standard", "lenient"):
        by_class: dict[str, Found] = {}
        for row in rows(data / "model_calls/invalid_calls.jsonl.gz"):
            raw = row["raw_arguments"]
            text = raw if isinstance(raw, str) else json.dumps(raw)
            decision = judged(row["json_schema"], text, level)
            kind = ",".join(sorted({error.get("class") or error["keyword"] for error in row["errors"]}))
            made = "refused"
            if isinstance(decision, Forward):
                made = outcome(decision, text, row["expected_arguments"])
                if made == "wrong" and row["expected_note"] != "same up to types":
                    made = "repaired; the model meant another value"
            by_class.setdefault(kind, Counter())[made] += 1
            if made == "wrong":
                print("WRONG", row["id"], text[:200], json.dumps(row["expected_arguments"])[:200])
        for kind, counted in sorted(by_class.items()):
            yield f"model_calls at {level}, {kind}", counted


RUNS = (real_failures, bfcl, model_calls)
