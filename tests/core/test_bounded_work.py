"""The bounded cost of one value or one schema: equal hashes, patterns in number and in size, numbers of very many
digits.

Nothing is timed: each case takes minutes without its bound, and the test ends or it does not.
"""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.contract.policy import ToolPolicy, UnknownKeys
from proxy.core.decide import decide
from proxy.core.envelope import render_failure
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import LosslessFloat, dumps
from proxy.core.model.values import JsonValue, Reject, ToolResult
from proxy.core.model.work import MATCHING
from proxy.core.schema.matching import LIMITS, SearchGivenUp, make_matcher
from tests.core.repairing import call, policy

# CPython hashes an int by its remainder: all multiples of this one have one hash.
MODULUS = 2**61 - 1
# A host name without double hyphens, with the usual mistake of an optional dot: exponential in most engines.
HOSTS = r"^(?:(?!--)[a-z0-9-]+\.?)+$"
NAMES = r"^[\p{L}\p{N} ]{1,255}$"


def test_distinguishes_integers_of_one_hash_in_linear_time() -> None:
    check = compile_check({"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
    items = [number * MODULUS for number in range(60_000)]
    assert (True, False) == (check.accepts(items), check.accepts([*items, MODULUS]))


@pytest.mark.parametrize(
    "written", [2**61, LosslessFloat(b"2305843009213693952.0"), LosslessFloat(b"2305843009213693952e0")]
)
def test_a_large_integer_equals_itself_however_it_is_spelt(written: Any) -> None:
    assert [True, True, False] == [
        compile_check({"enum": [2**61]}).accepts(written),
        compile_check({"const": 2**61}).accepts(written),
        compile_check({"uniqueItems": True}).accepts([2**61, written]),
    ]


def test_texts_that_backtrack_share_what_one_call_may_cost() -> None:
    check = compile_check({"type": "array", "items": {"type": "string", "pattern": HOSTS}})
    value = ["a" * 30 + "!"] * 20_000
    assert (False, False) == (check.linear, check.accepts(value))
    found = check.list_broken(value)
    assert {("pattern", ("pattern", HOSTS))} == {
        (entry.keyword, ("pattern", entry.node.get("pattern"))) for entry in found
    }
    assert 1 <= len(found) <= MATCHING / LIMITS[0] + 1  # nothing is said of texts that nobody looked at


def test_a_call_that_is_refused_repaired_and_explained_has_one_such_budget() -> None:
    check = compile_check({"type": "object", "properties": {"hosts": {"type": "array", "items": {"pattern": HOSTS}}}})
    value = {"hosts": ["a" * 30 + "!"] * 5_000}
    sent = call(dumps(value))
    decision = decide(sent, ToolPolicy("t", check, "f"))
    assert isinstance(decision, Reject)
    assert {("hosts",)} == {violation.path[:1] for violation in decision.failure.violations}


def test_many_short_texts_that_match_are_not_refused() -> None:
    check = compile_check({"type": "array", "items": {"type": "string", "pattern": HOSTS}})
    assert check.accepts(["example.org", "a-b.example.net"] * 300)


def test_a_class_repeated_many_times_loads_and_counts() -> None:
    check = compile_check({"pattern": NAMES})
    assert [True, True, False, False, False] == [
        check.accepts(text) for text in ("Zoë 1", "é" * 255, "é" * 256, "", "a\n")
    ]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"(?:(?:\p{L}{1000}){1000}){1000}", "is legal but beyond the matcher"),
        (r"(?=a)(?:(?:a{1000}){1000}){1000}", "with its repetitions written out it has more than 100,000 parts"),
        ("(?=a)" + "a" * 3_000, "is legal but beyond the matcher"),
        ("(?<a>x)" + r"\k<a>" * 200_000, "is beyond the matcher: it has 1,000,007 characters, and at most"),
        ("|".join(["a"] * 2_000_000), "at most 50,000 are matched"),
    ],
)
def test_names_the_reason_when_a_legal_pattern_is_beyond_the_matcher(pattern: str, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_check({"properties": {"a": {"pattern": pattern}}})
    assert (("properties", "a", "pattern"), True) == (caught.value.path, said in caught.value.message)
    assert len(caught.value.message) < 400


def test_a_pattern_that_needs_more_memory_than_the_linear_matcher_has_is_matched_within_limits() -> None:
    check = compile_check({"pattern": r"^(?:[\p{L}\p{M}\p{N}]{900}x|y)$"})
    words = ["y", "é" * 900 + "x", "é" * 899 + "x", "z", ""]
    assert [True, True, False, False, False] == [check.accepts(text) for text in words]


def test_references_by_name_cost_no_more_than_those_by_number() -> None:
    named = make_matcher("^(?<first>a)" + r"\k<first>" * 200 + "$")
    assert [True, False] == [named.search("a" * 201), named.search("a" * 200)]


def test_a_matcher_goes_with_the_last_schema_that_holds_it() -> None:
    check = compile_check({"pattern": r"^matcher\p{Lu}of one schema$"})
    assert check.accepts("matcherÉof one schema")
    kept = weakref.ref(check.schemas.matchers[r"^matcher\p{Lu}of one schema$"])
    assert kept() is not None
    del check
    gc.collect()
    assert kept() is None


def test_a_search_that_could_outgrow_its_automaton_on_a_huge_text_is_refused() -> None:
    matcher = make_matcher(r"(?:[\p{L}x]{100}|y)*(?:a|b){900}c")
    with pytest.raises(SearchGivenUp):
        matcher.search("ab" * 2_000_000)


@pytest.mark.parametrize("keyword", ["multipleOf", "minimum", "maximum", "maxLength", "minItems"])
def test_a_limit_of_very_many_digits_is_refused_with_its_place(keyword: str) -> None:
    with pytest.raises(SchemaError, match="more than 4,000 digits") as caught:
        compile_check({"properties": {"a": {keyword: 10**5_000}}})
    assert ("properties", "a", keyword) == caught.value.path


# 15 levels of two references each, and one to a published meta-schema: once judged by an engine without bounds.
def test_a_chain_next_to_a_published_meta_schema_is_validated_in_bounded_work() -> None:
    levels = 60
    defs: dict[str, Any] = {
        f"n{level}": {"allOf": [{"$ref": f"#/$defs/n{level + 1}"}, {"$ref": f"#/$defs/n{level + 1}"}]}
        for level in range(levels)
    }
    defs[f"n{levels}"] = {"type": "string"}
    defs["meta"] = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    check = compile_check({"$ref": "#/$defs/n0", "properties": {"m": {"$ref": "#/$defs/meta"}}, "$defs": defs})
    assert (True, False) == (check.accepts("x"), check.accepts(1))
    assert 1 <= len(check.list_broken({"m": {"type": 1}})) < 20


def test_dynamic_references_with_too_many_meanings_are_refused() -> None:
    names = [f"a{number}" for number in range(16)]
    defs: dict[str, Any] = {}
    for number, name in enumerate(names):
        following = f"https://example.org/{number + 1}"
        leads = {"anyOf": [{"$ref": f"{following}/x"}, {"$ref": f"{following}/y"}]} if number + 1 < len(names) else {}
        for side in "xy":
            uri = f"https://example.org/{number}/{side}"
            defs[f"{number}{side}"] = {"$id": uri, **leads, "$defs": {"d": {"$dynamicAnchor": name, "const": side}}}
    last = {
        "properties": {
            name: {"$dynamicRef": f"https://example.org/{number}/x#{name}"} for number, name in enumerate(names)
        }
    }
    defs["15x"] |= last
    with pytest.raises(SchemaError, match="different meanings"):
        compile_check({"$ref": "https://example.org/0/x", "$defs": defs})


# --- what writing the code costs --------------------------------------------------------------------------------------
def count_functions(check: Check) -> int:
    return check.source().count("\ndef ") + check.source().startswith("def ")


def test_equal_parts_share_one_function() -> None:
    same: JsonValue = {"type": "integer", "maximum": 5}
    check = compile_check({"properties": {f"k{number}": {**same, "title": f"T{number}"} for number in range(200)}})
    assert count_functions(check) == 3
    judges = {check.accepts_at(node, 6) for node in check.schemas.nodes() if node.path}
    assert (judges, count_functions(check)) == ({False}, 4)


def test_parts_that_differ_in_a_keyword_or_refer_elsewhere_share_no_function() -> None:
    schema: JsonValue = {
        "$defs": {"small": {"maximum": 5}, "large": {"maximum": 50}},
        "properties": {
            "a": {"properties": {"x": {"$ref": "#/$defs/small"}}},
            "b": {"properties": {"x": {"$ref": "#/$defs/large"}}},
            "c": {"$defs": {"small": {"maximum": 500}}, "properties": {"x": {"const": 1}}},
            "d": {"properties": {"x": {"const": 1.0}}},
            "e": {"properties": {"x": {"const": True}}},
        },
    }
    check = compile_check(schema)
    nodes = {key: check.root.properties[key] for key in "abcde"}
    judged = {key: [check.accepts_at(node, {"x": value}) for value in (1, True, 20, 60)] for key, node in nodes.items()}
    assert judged == {
        "a": [True, True, False, False],
        "b": [True, True, True, False],
        "c": [True, False, False, False],
        "d": [True, False, False, False],
        "e": [False, True, False, False],
    }


def test_a_report_on_many_properties_is_written_if_a_value_breaks_one() -> None:
    names = [f"k{number}" for number in range(200)]
    check = compile_check({"properties": {name: {"type": "integer", "title": name} for name in names}})
    assert [] == check.list_broken({"k1": 1})
    before = count_functions(check)
    assert [("type", ("k7",), "k7"), ("type", ("k9",), "k9")] == [
        (broken.keyword, broken.path, broken.node.get("title")) for broken in check.list_broken({"k9": "x", "k7": "x"})
    ]
    assert 2 == count_functions(check) - before


# Calls with a long text that holds a word again and again.
LONG_CALLS: dict[str, Callable[[str], JsonValue]] = {
    "a key": lambda word: {f"{word}_word_" * 5_000: 1},
    "the tail of a declared key": lambda word: {"unit" + "_" * 50_000 + f"_{word}": "kW", "UNIT" + "_" * 50_000: "kW"},
    "an action": lambda word: {"action": f"get_{word}_" * 5_000},
    "a word of a list": lambda word: {"unit": f"kilo_{word}_" * 5_000},
    "the name of the tool": lambda word: {"amount": 1, "tool": f"get {word} " * 5_000},
    "a text that may be a list": lambda word: {"amount": 1, "parts": f"{word}_word," * 5_000},
}


@pytest.mark.large
@pytest.mark.parametrize("make", LONG_CALLS.values(), ids=LONG_CALLS)
def test_of_a_long_text_nothing_stays_behind_its_call(make: Callable[[str], JsonValue]) -> None:
    properties: JsonValue = {
        "amount": {"type": "integer"},
        "action": {"type": "integer"},
        "unit": {"enum": ["kW", "MW"]},
        "parts": {"type": "array", "items": {"type": "integer"}},
    }
    schema: JsonValue = {
        "type": "object", "properties": properties, "required": ["amount"], "additionalProperties": False,
    }  # fmt: skip
    under = policy(schema, "lenient", unknown_keys=UnknownKeys.REFUSE)

    def refuse(sent: JsonValue) -> None:
        asked = call(dumps(sent))
        decision = decide(asked, under)
        assert isinstance(decision, Reject)
        assert render_failure(add_advice(ToolResult(asked, decision.failure), under), "auto", "category").body

    refuse(make("first"))  # the first call computes all that depends only on the schema
    gc.collect()
    tracemalloc.start()
    try:
        refuse(make("kept"))
        gc.collect()
        assert 20_000 > tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
