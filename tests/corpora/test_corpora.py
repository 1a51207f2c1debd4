"""The corpus runs over the samples in tests/data: what each level makes of them, and nothing wrong anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from proxy.core.explain.explain import list_violations
from proxy.core.model import codes
from proxy.core.model.values import Failure
from proxy.core.rules.rules import LEVELS
from tests.corpora.calls import check_of
from tests.corpora.run_advice import advice, advice_on_generated, find_untrue
from tests.corpora.run_all import RUNS, reported
from tests.corpora.run_engine import engine
from tests.corpora.run_lint import lint_of_operations, lint_of_schemas
from tests.corpora.run_renaming import renamed
from tests.corpora.run_repair import (
    bfcl,
    count_rules,
    fresh_failures,
    model_calls,
    one_meaning,
    real_failures,
    two_meanings,
)
from tests.corpora.run_schemas import mcp_tools
from tests.corpora.run_text import DIFFERING, DUPLICATE_KEYS, READ_AT_LENIENT, READ_AT_STANDARD, malformed, parsing

pytestmark = pytest.mark.large

DATA: Final = Path(__file__).parent.parent / "data"

Run = Callable[[Path], Iterator[tuple[str, Counter[str]]]]

# Newer cases of a set, of which the tests hold only that nothing is wrong.
SECOND_PART: Final = ", second part at "

# run -> what comes of it; the figures are the point: a change of one is a change of behaviour
EXPECTED: Final[dict[Run, dict[str, dict[str, int]]]] = {
    real_failures: {
        "real-failures at off": {"right": 27, "refused": 63, "wrong": 0},
        "real-failures at basic": {"right": 47, "refused": 43, "wrong": 0},
        "real-failures at standard": {"right": 72, "refused": 18, "wrong": 0},
        "real-failures at lenient": {"right": 79, "refused": 11, "wrong": 0},
    },
    fresh_failures: {
        "real-failures-2026 at off": {"right": 7, "refused": 24, "wrong": 0},
        "real-failures-2026 at basic": {"right": 10, "refused": 21, "wrong": 0},
        "real-failures-2026 at standard": {"right": 19, "refused": 12, "wrong": 0},
        "real-failures-2026 at lenient": {"right": 25, "refused": 6, "wrong": 0},
    },
    two_meanings: {
        "two-meanings at off": {"right": 100, "refused": 2, "wrong": 0},
        "two-meanings at basic": {"right": 100, "refused": 2, "wrong": 0},
        "two-meanings at standard": {"right": 100, "refused": 2, "wrong": 0},
        "two-meanings at lenient": {"right": 98, "refused": 2, "wrong": 0, "likely": 2},
    },
    one_meaning: {
        "one-meaning at off": {"right": 0, "refused": 31, "wrong": 0},
        "one-meaning at basic": {"right": 2, "refused": 29, "wrong": 0},
        "one-meaning at standard": {"right": 16, "refused": 15, "wrong": 0},
        "one-meaning at lenient": {"right": 28, "refused": 3, "wrong": 0},
    },
    parsing: {
        "json-parsing at off": {"i_ read": 5, "i_ refused": 30, "n_ refused": 188, "y_ read": 93, "y_ refused": 2},
        "json-parsing at standard": {
            "i_ read": 5, "i_ refused": 30, "n_ read by text repair": 4, "n_ refused": 184,
            "y_ read": 93, "y_ refused": 2,
        },
        "json-parsing at lenient": {
            "i_ read": 5, "i_ refused": 30, "n_ read by text repair": 15, "n_ refused": 173,
            "y_ read": 93, "y_ refused": 2,
        },
    },
    malformed: {
        "malformed-json at off": {"refused": 709, "refused, valid JSON": 1, "valid, as it is": 140},
        "malformed-json at standard": {
            "read differently, with reason": 5, "refused": 686, "refused, valid JSON": 1, "right": 18,
            "valid, as it is": 140,
        },
        "malformed-json at lenient": {
            "read differently, with reason": 6, "refused": 636, "refused, valid JSON": 1, "right": 67,
            "valid, as it is": 140,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("run", EXPECTED, ids=lambda run: run.__name__)
def test_a_corpus_comes_out_as_it_did(run: Run) -> None:
    assert EXPECTED[run] == {name: dict(found) for name, found in run(DATA) if SECOND_PART not in name}


@pytest.mark.parametrize("run", [fresh_failures, two_meanings, one_meaning], ids=lambda run: run.__name__)
def test_accepts_nothing_wrong_in_a_second_part(run: Run) -> None:
    second = {name: found["wrong"] for name, found in run(DATA) if SECOND_PART in name}
    assert dict.fromkeys(second, 0) == second
    assert len(second) == len(LEVELS)


def test_valid_calls_stay_unchanged_at_every_level_and_damaged_ones_come_out_right() -> None:
    runs = {name: dict(found) for name, found in bfcl(DATA)}
    for level in LEVELS:
        assert {"untouched": 205, "wrong": 0} == runs[f"bfcl, valid, at {level}"]
        off, basic = level == "off", level in ("off", "basic")
        for kind, count, repaired in (
            ("numbers", 94, 0 if off else 94),
            ("booleans", 27, 0 if off else 27),
            ("containers", 22, 0 if basic else 22),
            ("all", 126, 0 if off else 104 if basic else 126),
        ):
            expected = {"right": repaired, "refused": count - repaired, "wrong": 0}
            assert expected == runs[f"bfcl, {kind} as text, at {level}"]


def test_calls_that_models_really_made_are_sent_right_or_not_at_all() -> None:
    runs = {name: dict(found) for name, found in model_calls(DATA)}
    other = "repaired; the model meant another value"
    for level, (right, refused, meant) in {
        "off": (0, 180, 0), "basic": (0, 178, 2), "standard": (13, 148, 19), "lenient": (13, 148, 19),
    }.items():  # fmt: skip
        valid = {"untouched": 53, "refused, as the schema does": 1, "wrong": 0}
        assert valid == runs[f"model_calls, valid, at {level}"]
        expected = {"right": right, "refused": refused, "wrong": 0, other: meant}
        assert {key: count for key, count in expected.items() if count or key != other} == runs[
            f"model_calls, invalid, at {level}"
        ]


def test_generated_calls_of_real_tools_stay_untouched_or_are_recovered() -> None:
    runs = {name: dict(found) for name, found in mcp_tools(DATA)}
    assert {"minimal example": 117} == runs["mcp-tools, schemas"]
    assert {"untouched": 702} == runs["mcp-tools, generated calls"]
    assert {"nothing to spell": 424, "recovered": 278} == runs["mcp-tools, spelt as text"]
    assert {"refused", "repaired", "valid"} == runs["mcp-tools, with mistakes"].keys()


def test_no_collected_schema_that_is_right_has_a_mistake() -> None:
    runs = {name.partition(",")[0]: dict(found) for name, found in lint_of_schemas(DATA)}
    assert dict.fromkeys(runs, 0) == {name: found["wrong"] for name, found in runs.items()}
    assert {"right": 116, "wrong": 0} == runs["mcp-tools"]
    assert {"cannot be satisfied": 9, "right": 105, "wrong": 0} == runs["model_calls"]


def test_the_table_of_rules_counts_every_use_and_no_rule_was_ever_wrong() -> None:
    counted = count_rules(DATA)
    assert dict.fromkeys(counted, 0) == {rule: uses["wrong"] for rule, uses in counted.items()}
    assert {"right": 50, "wrong": 0, "other": 0, "likely": 0} == counted["parse_json_string"]


def test_the_engine_validates_and_reports_collected_calls_as_its_peers_do() -> None:
    ((_, found),) = engine(DATA)
    assert (0, True) == (found["wrong"], found["values"] > 1000)


def test_each_followed_piece_of_advice_corrects_its_place() -> None:
    runs = {**dict(advice(DATA)), **dict(advice_on_generated(DATA))}
    assert [0, 0] == [found["wrong"] for found in runs.values()]
    assert all(found["held"] > 40 for found in runs.values())


@pytest.mark.parametrize(
    ("accepts", "example", "complete", "untrue"),
    [
        (("{a: integer (required), b?: string}",), '{"a": 1}', True, []),
        (("{a: integer (required), b: string}",), '{"a": 1}', True, ["Accepts requires b"]),
        (("{a: integer (required)}",), '{"a": "x"}', True, ["the example is what was sent", "the example is not"]),
        (("{a: integer (required)}",), '{"b": "x"}', False, ["the shape lacks {'a'}"]),
    ],
)
def test_finds_untrue_statements_in_a_text(
    accepts: tuple[str, ...], example: str, complete: bool, untrue: list[str]
) -> None:
    check = check_of(
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
    )
    told = (accepts, example, complete)
    failure = Failure(codes.INVALID_ARGUMENTS, "", list_violations(check, {"a": "x"}, ()), sent={"a": "x"}, advice=told)
    found = list(find_untrue(check, "tool", failure))
    assert len(untrue) == len(found)
    assert all(lack.startswith(start) for lack, start in zip(found, untrue, strict=True))


def test_a_wrong_case_fails_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(data: Path) -> Iterator[tuple[str, Counter[str]]]:
        yield "a run", Counter({"right": 3, "wrong": 1})

    assert 1 == reported((wrong,), DATA)
    assert "a run" + " " * 56 + "right 3, wrong 1\n" == capsys.readouterr().out
    assert {
        two_meanings,
        one_meaning,
        real_failures,
        fresh_failures,
        bfcl,
        model_calls,
        parsing,
        malformed,
        mcp_tools,
        engine,
        advice,
        advice_on_generated,
        renamed,
        lint_of_schemas,
        lint_of_operations,
    } <= set(RUNS)


def test_the_lists_of_exceptions_are_short_and_reasoned() -> None:
    assert (2, 4, 15, 6) == (len(DUPLICATE_KEYS), len(READ_AT_STANDARD), len(READ_AT_LENIENT), len(DIFFERING))
    assert READ_AT_STANDARD < READ_AT_LENIENT
    assert all(DIFFERING.values())
