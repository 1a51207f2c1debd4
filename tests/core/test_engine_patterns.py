"""Regular expressions have ECMA-262 meaning, not Python's and not RE2's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.files.published import load_published_schema
from proxy.core.schema.drafts import META_SCHEMA, SchemaError
from proxy.core.schema.matching import SearchGivenUp, make_matcher, match_any, trust_patterns
from proxy.core.schema.nodes import Schemas
from tests.generated import examples


@pytest.mark.parametrize(
    ("pattern", "matches", "misses"),
    [
        ("b", ["abc"], ["a"]),  # a search, not a full match
        ("a$", ["a"], ["a\n"]),
        (r"^\d$", ["5"], ["٤"]),
        (r"^\w$", ["a"], ["é"]),
        (r"^\s$", [" ", "\u00a0", "\ufeff"], ["\x1c", "\x85"]),
        (r"^.$", ["x", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"a\b", ["a", "aé"], ["ab"]),
        (r"(?=a)a\b", ["a", "aé"], ["ab"]),
        (r"^\cA$", ["\x01"], ["A"]),
        (r"^\u{1f600}$", ["\U0001f600"], ["u"]),
        (r"^\ud83d\ude00$", ["\U0001f600"], [""]),
        (r"^\0$", ["\0"], ["0"]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"\<", ["<"], ["a"]),
        ("[^]", ["\n", "x"], [""]),
        ("a[]", [], ["a", "a[]"]),
        ("^[a&&b]$", ["&", "a", "b"], ["c"]),
        ("^[[]$", ["["], ["]"]),
        ("^[+--]$", ["+", ",", "-"], ["."]),
        (r"^[\d-x]$", ["1", "-", "x"], ["e"]),
        (r"^\p{Lu}$", ["É"], ["é"]),
        (r"^(?<q>['\"]).*\k<q>$", ["'a'", '"a"'], ["'a\""]),
        ("^(?!no)", ["yes"], ["no"]),
        (r"^(a)\1٣$", ["aa٣"], ["aaa", "a٣"]),  # a digit of another script is a character
        (r"^\0٣$", ["\0٣"], ["\0"]),
        ("^a{٣}$", ["a{٣}"], ["aaa"]),
        ("^[a]{٣٠}$", [], ["a" * 30]),
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, matches: list[str], misses: list[str]) -> None:
    search = make_matcher(pattern).search
    assert (matches, []) == ([text for text in matches if search(text)], [text for text in misses if search(text)])


@pytest.mark.parametrize(("pattern", "linear"), [("^a+$", True), ("(?=a)a", False), (r"(a)\1", False)])
def test_only_lookaround_and_backreferences_are_not_linear(pattern: str, linear: bool) -> None:
    assert linear is make_matcher(pattern).linear


@pytest.mark.parametrize(
    "patterns",
    [
        ("^a", "b$", "[0-9]{2}"),
        ("a|b", "c.", ""),
        (r"^\d", "^[^a]", r"\bx"),
        ("(?=a)a", "b", "^(?!x)c"),
        ("(a)", "(b)", "c"),
    ],
)
def test_joined_patterns_match_as_each_single_one_does(patterns: tuple[str, ...]) -> None:
    together = match_any(patterns)
    assert together is not None
    texts = ["", "a", "ab", "b", "bc", "cd", "xc", "c", "x", "12", "a1", "1a", "é", "\n"]
    alone = [any(make_matcher(pattern).search(text) for pattern in patterns) for text in texts]
    assert alone == [together(text) for text in texts]


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?<q>a)\k<q>", "(?i)a"])
def test_does_not_join_patterns_that_would_change_their_meaning(pattern: str) -> None:
    assert match_any((pattern, "b", "c")) is None


def test_the_limit_of_one_pattern_is_not_that_of_all_together() -> None:
    slow = "^(?:(?=a)a|(?=a)aa)+b$"
    with pytest.raises(SearchGivenUp):
        make_matcher(slow).search("a" * 90)
    together = match_any(("a$", slow, "^x"))
    assert together is not None
    assert (True, True, False) == (together("a" * 90), together("x"), together("b"))


def list_own_patterns() -> Iterator[str]:
    """Every pattern of the published schema and of the meta-schemas."""
    for schema in (load_published_schema(), *({"$ref": uri} for uri in META_SCHEMA.values())):
        for node in Schemas(schema).nodes():
            yield from node.pattern_properties
            if isinstance(pattern := node.get("pattern"), str):
                yield pattern


OWN = sorted(set(list_own_patterns()))
# Pieces of configs and schemas, and characters that only one engine takes for a blank, a digit, a letter or an end.
PIECES = (
    "/", "a", "Z", "_", ".", "-", "0", "12", "1.5", "ms", "kB", "MiB", "off", "null", "*", "[::1]", ":", "8080",
    "unix:/", "http://", "https://a", "?", "#", "~0", "~2", "{", "}", " ", "\n", "\r", "\t", "\u00a0", "\ufeff", "\x1c",
    "\x85", "\u2028", "\u0661", "é", "\u017f", "\u212a", "\ud800", "",
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=5).map("".join))
def test_our_own_patterns_mean_the_same_to_the_engine_that_strangers_do_not_get(text: str) -> None:
    with trust_patterns():
        trusted = [make_matcher(pattern).search(text) for pattern in OWN]
    assert [make_matcher(pattern).search(text) for pattern in OWN] == trusted


def test_matches_a_foreign_pattern_in_linear_time_even_if_it_equals_one_of_ours() -> None:
    assert len(OWN) > 20
    with trust_patterns():
        kept = [make_matcher(pattern) for pattern in OWN]
    assert not {id(make_matcher(pattern)) for pattern in OWN} & {id(matcher) for matcher in kept}
    with trust_patterns(), pytest.raises(SchemaError):
        make_matcher("(")
