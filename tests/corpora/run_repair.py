"""Runs the repair engine over the collected calls and prints what each level makes of them.

`run_all` exits 1 if one call is forwarded with arguments other than the right ones, or a right call is changed.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proxy.core.check.validation import compile_check
from proxy.core.model.values import Forward, JsonValue
from proxy.core.rules.facts import read_facts
from proxy.core.rules.rules import LEVELS, RULES
from tests.corpora.calls import check_of, exact, judged, outcome, read_known_calls, rows

Found = Counter[str]


def _counts() -> Found:
    """Returns what every run tells, none of it counted yet."""
    return Counter({"right": 0, "refused": 0, "wrong": 0})


def real_failures(data: Path) -> Iterator[tuple[str, Found]]:
    """Reported failures: right at the level each case names, wrong nowhere."""
    yield from _failures("real-failures", data / "real-failures/cases.jsonl")


def fresh_failures(data: Path) -> Iterator[tuple[str, Found]]:
    """Failures reported in 2026, with nulls that clear a field and markup that leaked into a value."""
    yield from _failures("real-failures-2026", data / "real-failures-2026/failures.jsonl")
    yield from _failures("real-failures-2026, second part", data / "real-failures-2026/failures-2.jsonl")


def two_meanings(data: Path) -> Iterator[tuple[str, Found]]:
    """Hand-made calls with two meanings: no level below `lenient` may take one."""
    yield from _failures("two-meanings", data / "two-meanings/cases.jsonl", may_pass=("lenient",))
    yield from _failures("two-meanings, second part", data / "two-meanings/cases-2.jsonl", may_pass=("lenient",))


def one_meaning(data: Path) -> Iterator[tuple[str, Found]]:
    """Hand-made calls that a fair human accepts."""
    yield from _failures("one-meaning", data / "one-meaning/cases.jsonl")
    yield from _failures("one-meaning, second part", data / "one-meaning/cases-2.jsonl")


def count_rules(data: Path) -> dict[str, Found]:
    """Counts for every rule its uses at level `lenient` over all sets, by the outcome of the call. The outcomes are
    right, wrong, another call than the one that the user asked for (`other`), or one of two meanings (`likely`)."""
    counted = {rule: Counter({"right": 0, "wrong": 0, "other": 0, "likely": 0}) for rule in RULES}
    for call in read_known_calls(data):
        decision = judged(call.schema, call.sent, "lenient", tool=call.tool)
        if not isinstance(decision, Forward) or call.debatable:
            continue
        made = outcome(decision, call.sent, call.expected)
        if made == "wrong" and call.has_two_meanings and call.expected is None:
            made = "likely"
        elif made == "wrong" and call.asked:
            made = "other"
        for repair in decision.checked.repairs:
            counted[repair.rule][made] += 1
    return counted


def rules_used(data: Path) -> Iterator[tuple[str, Found]]:
    """Every rule with its uses and two shares at `lenient`: its right uses among the calls that have one meaning, and
    its uses among the calls that have two. A rule without a right use is seen here."""
    calls = [call for call in read_known_calls(data) if not call.debatable]
    one = sum(call.expected is not None for call in calls)
    two = sum(call.expected is None and call.has_two_meanings for call in calls)
    for rule, uses in count_rules(data).items():
        yield f"rule {rule}, {uses['right'] / one:.1%} right, {uses['likely'] / two:.1%} likely", uses


def _failures(name: str, path: Path, may_pass: tuple[str, ...] = ()) -> Iterator[tuple[str, Found]]:
    """`may_pass`: the levels at which a reading of a call with two meanings counts as `likely`, not as `wrong`."""
    cases = [row for row in rows(path) if not row["kind"].startswith("tool_name")]
    for level in LEVELS:
        found = _counts()
        for case in cases:
            decision = judged(case["schema"], case["sent"], level, tool=case["tool"])
            made = outcome(decision, case["sent"], case["expected"])
            good = case["expected"] is None if made == "refused" else made != "wrong"
            if made == "wrong":
                likely = level in may_pass and case["expected"] is None
                made = "debatable" if case.get("debatable") else "likely" if likely else made
            found["right" if good else made] += 1
        yield f"{name} at {level}", found


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
        if member is not None and not read_facts(member).site.free_text:
            broken[key] = damage(value, read_facts(member).site.types)
    return broken


def _valid(name: str, calls: list[tuple[JsonValue, dict[str, Any]]]) -> Iterator[tuple[str, Found]]:
    """Valid calls: the bytes that came, but for 3.0 spelt as an integer (`respelt`); anything else is wrong."""
    for level in LEVELS:
        found = Counter({"untouched": 0, "wrong": 0})
        for schema, arguments in calls:
            found[_kept(schema, json.dumps(arguments), level)] += 1
        yield f"{name}, valid, at {level}", found


def _kept(schema: JsonValue, text: str, level: str) -> str:
    decision = judged(schema, text, level)
    if not isinstance(decision, Forward) or decision.checked.warnings:
        valid = check_of(schema).accepts(exact(json.loads(text)))
        return "wrong" if valid or isinstance(decision, Forward) else "refused, as the schema does"
    if decision.checked.arguments == text.encode():
        return "untouched"
    made, sent = decision.checked, text.encode()
    plain = all(repair.rule == "integral_float" for repair in made.repairs)
    spelt = re.sub(rb"\b([0-9]+)\.0+\b", rb"\1", sent)
    return "respelt" if plain and re.sub(rb"\b([0-9]+)\.0+\b", rb"\1", made.arguments) == spelt else "wrong"


def _damaged(name: str, calls: list[tuple[JsonValue, dict[str, Any]]]) -> Iterator[tuple[str, Found]]:
    for kind, damage in DAMAGES.items():
        broken = [(schema, arguments, damaged(schema, arguments, damage)) for schema, arguments in calls]
        for level in LEVELS:
            found = _counts()
            for schema, arguments, sent in broken:
                if sent != arguments:
                    text = json.dumps(sent)
                    found[outcome(judged(schema, text, level), text, arguments)] += 1
            yield f"{name}, {kind} as text, at {level}", found


def bfcl(data: Path) -> Iterator[tuple[str, Found]]:
    """The expected calls of BFCL, as they are and damaged four ways."""
    calls = [(row["json_schema"], row["arguments"]) for row in rows(data / "bfcl/calls.jsonl.gz")]
    yield from _valid("bfcl", calls)
    yield from _damaged("bfcl", calls)


def model_calls(data: Path) -> Iterator[tuple[str, Found]]:
    """Real calls by models: the valid ones stay untouched; of the invalid ones none is repaired wrongly."""
    valid = [(row["json_schema"], row["arguments"]) for row in rows(data / "model_calls/valid_calls.jsonl.gz")]
    yield from _valid("model_calls", valid)
    for level in LEVELS:
        found = _counts()
        for row in rows(data / "model_calls/invalid_calls.jsonl.gz"):
            raw = row["raw_arguments"]
            text = raw if isinstance(raw, str) else json.dumps(raw)
            decision = judged(row["json_schema"], text, level, tool=row["tool"])
            made = outcome(decision, text, row["expected_arguments"])
            if made == "wrong" and row["expected_note"] != "same up to types":
                made = "repaired; the model meant another value"
            found[made] += 1
            if made == "wrong":
                print("WRONG", row["id"], text[:200], json.dumps(row["expected_arguments"])[:200])
        yield f"model_calls, invalid, at {level}", found


RUNS = (real_failures, fresh_failures, two_meanings, one_meaning, bfcl, model_calls, rules_used)
