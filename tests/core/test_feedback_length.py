"""A text says what a model needs, and says it once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.envelope.feedback import write_feedback
from proxy.core.model import codes
from proxy.core.model.codes import ViolationCode
from proxy.core.model.values import Pointer, Violation
from tests.core.test_feedback import MISSING, refused


def violation(path: Pointer, code: ViolationCode, message: str = "wrong", **more: Any) -> Violation:
    return Violation(code, path, message, **more)


def test_names_the_first_of_equal_errors_in_place_of_their_words() -> None:
    wrong = [
        Violation(codes.ENUM_MISMATCH, ("rows", at, "by"), "Invalid enum value 'sms'", "one of 'email', 'popup'",
                  "Send one of these, exactly as written.", value=sent)
        for at, sent in enumerate(["sms", "sms", "SMS"])
    ]  # fmt: skip
    lines = write_feedback(refused(*wrong)).split("\n")
    assert [
        "• /rows/0/by (VAL-008): Invalid enum value 'sms'. Send one of these, exactly as written.",
        "  Expected: one of 'email', 'popup'",
        '  Actual: "sms"',
        "• /rows/1/by (VAL-008): as at /rows/0/by",
        "• /rows/2/by (VAL-008): as at /rows/0/by",
        '  Actual: "SMS"',
    ] == lines[lines.index("Errors:") + 1 : -2]


def test_says_once_what_two_errors_of_one_place_share() -> None:
    low = Violation(codes.CONSTRAINT, ("a",), "Too low", "number (at least 1)", "`a`: Sum. Go up.", value=0)
    odd = Violation(codes.CONSTRAINT, ("a",), "Odd", "number (at least 1)", "`a`: Sum. Round it.", value=0)
    lines = write_feedback(refused(low, odd)).split("\n")
    assert [
        "• /a (VAL-003): Odd. `a`: Sum. Round it.",
        "  Expected: number (at least 1)",
        "  Actual: 0",
        "• /a (VAL-003): Too low. Go up.",
    ] == lines[lines.index("Errors:") + 1 : -2]


ACCEPTS = "{a: integer (required)}"


@pytest.mark.parametrize(
    ("is_shown", "broken"),
    [
        (False, violation(("a",), codes.TYPE_MISMATCH, expected="integer")),
        (False, violation(("a",), codes.TYPE_MISMATCH, expected="array of integer")),
        (False, violation(("a",), codes.ENUM_MISMATCH, expected="one of 'x', 'y'")),
        (False, violation(("a",), codes.ARRAY_LENGTH, expected="array of object (at most 5 items)")),
        (True, violation(("a",), codes.ENUM_MISMATCH, expected="one of 'x', 'y' (+9 more)")),
        (True, violation(("a",), codes.TYPE_MISMATCH, expected="array of object")),
        (True, violation(("a",), codes.TYPE_MISMATCH, expected="object or null")),
        (True, violation(("a",), codes.TYPE_MISMATCH, expected="array")),
        (True, violation(("a",), codes.REQUIRED_MISSING, expected="integer")),
        (True, violation(("a",), codes.UNKNOWN_FIELD, expected="one of the fields 'b'")),
        (True, replace(violation(("kind",), codes.ENUM_MISMATCH, expected="'x'"), keyword="oneOf")),
    ],
)
def test_shows_accepts_only_if_the_errors_do_not_say_it_all(is_shown: bool, broken: Violation) -> None:
    text = write_feedback(replace(refused(broken), accepts=(ACCEPTS,)))
    assert is_shown == (f"Accepts: {ACCEPTS}" in text)
    assert "one of the fields" not in text


def test_shows_a_short_signature_if_one_has_what_is_in_error() -> None:
    sizes = ("{" + "a: string, " * 60 + "}", "{" + "a: string, " * 20 + "}", "{a}")
    text = write_feedback(replace(refused(MISSING), accepts=sizes))
    assert f"Accepts: {sizes[1]}" in text
    unknown = violation(("x",), codes.UNKNOWN_FIELD, hint="If no other field takes it, leave it out.")
    assert f"Accepts: {sizes[0]}" in write_feedback(replace(refused(unknown), accepts=sizes))


def test_leaves_out_an_example_of_placeholders_in_a_long_text() -> None:
    shape = '{"a":"<string>","b":["<integer>"]}'
    long = violation(("a",), codes.REQUIRED_MISSING, message="m" * 300, hint="h" * 300, expected="e" * 300)
    for is_shown, broken, example in ((True, MISSING, shape), (False, long, shape), (True, long, '{"a":"x"}')):
        text = write_feedback(replace(refused(broken), accepts=(ACCEPTS,), example=example))
        assert is_shown == (example in text)


@pytest.mark.parametrize(
    ("closing", "code", "hint"),
    [
        ("leave out /a", codes.UNKNOWN_FIELD, "Leave it out."),
        ("rename or leave out /a", codes.UNKNOWN_FIELD, "If you did not mean 'b', leave it out."),
        ("rename /a", codes.UNKNOWN_FIELD, "Did you mean 'b'?"),
        ("move /a", codes.UNKNOWN_FIELD, "It belongs to '/b/a': move it there."),
        ("add /a", codes.REQUIRED_MISSING, "Add it, and do not guess its value."),
        ("send that value as /a", codes.REQUIRED_MISSING, "You sent '/A': rename it to 'a'."),
        ("send that value as /a", codes.REQUIRED_MISSING, "It was sent at '/b/a': move it to '/a'."),
        (
            "send that value as /a",
            codes.REQUIRED_MISSING,
            "You sent '/b/a', '/c/a': if one of them holds 'a', move that one.",
        ),
        ("correct /a", codes.TYPE_MISMATCH, "Send a JSON array, not text."),
    ],
)
def test_the_last_line_says_what_the_only_error_says(closing: str, code: ViolationCode, hint: str) -> None:
    text = write_feedback(refused(violation(("a",), code, hint=hint)))
    assert text.endswith(f"Please {closing} and call the tool again.")
