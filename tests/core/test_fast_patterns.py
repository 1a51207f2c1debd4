"""Patterns that Python's `re` matches are those RE2 would match, and take linear time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.schema import fast_patterns
from proxy.core.schema.drafts import SchemaError
from proxy.core.schema.fast_patterns import compile_plain_pattern
from proxy.core.schema.matching import Matcher, make_matcher

PIECES = ["a", "Z", "0", " ", "_", "-", "@", "[a-z]", "[^a]", "[A-Z0-9_.-]", "[-a]", r"\d", r"\w", r"\D", r"\W", r"\.",
          r"[\d.]", r"[^\w]", r"\[", "[+*]"]  # fmt: skip
TIMES = ["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,1}"]
TEXTS = st.text(st.sampled_from("aZ0 _-@.[]é\n\u0660\U0001f600b+*"), max_size=8)


@pytest.mark.parametrize(
    "pattern",
    ["^[a-z0-9_-]{1,64}$", r"^\d{4}-\d{2}-\d{2}$", "^[^#]*#?$", "^[A-Za-z_][-A-Za-z0-9._]*$", "^a", "^$", "^"],
)
def test_the_patterns_of_most_schemas_are_plain(pattern: str) -> None:
    assert compile_plain_pattern(pattern) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        "^a|b",
        "^(a)",
        "^a*b*$",
        "^.$",
        r"^\s$",
        "^[[a]$",
        "^[a&&b]$",
        "^a*a{9}a",
        "^a{1,9}b{3000}$",
        r"^a\$",
        "^a**",
    ],
)
def test_what_is_not_plain_goes_to_re2(pattern: str) -> None:
    assert (None, True) == (compile_plain_pattern(pattern), True)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(TIMES)), max_size=5), st.booleans(), st.lists(TEXTS))
def test_a_plain_pattern_says_what_re2_says(pieces: list[tuple[str, str]], ends: bool, texts: list[str]) -> None:
    pattern = "^" + "".join(map("".join, pieces)) + ("$" if ends else "")
    quick = compile_plain_pattern(pattern)
    if quick is None:
        return
    fast_patterns.ENABLED = False
    try:
        plain = Matcher(pattern)
    finally:
        fast_patterns.ENABLED = True
    assert plain.size > 0
    assert [plain.search(text) for text in texts] == [quick(text) for text in texts]


def test_a_legal_pattern_beyond_the_matcher_is_not_called_wrong() -> None:
    with pytest.raises(SchemaError) as found:
        make_matcher(r"(?:(?:\p{L}{1000}){1000}){1000}")
    assert "is legal but beyond the matcher" in str(found.value)
    assert "not a regular expression" not in str(found.value)
