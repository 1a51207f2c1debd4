"""Regular expressions have ECMA-262 meaning, not Python's and not Rust's."""

from __future__ import annotations

import pytest

from proxy.core.engine.judge import pattern_matcher


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
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, matches: list[str], misses: list[str]) -> None:
    search, _ = pattern_matcher(pattern)
    assert (matches, []) == ([text for text in matches if search(text)], [text for text in misses if search(text)])


@pytest.mark.parametrize(("pattern", "linear"), [("^a+$", True), ("(?=a)a", False), (r"(a)\1", False)])
def test_only_lookaround_and_backreferences_are_not_linear(pattern: str, linear: bool) -> None:
    assert linear is pattern_matcher(pattern)[1]
