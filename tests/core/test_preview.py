"""The shown form of a value: short, on one line, whole characters, and never a secret."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.display.graphemes import cut, cut_parts, escape, find_boundary
from proxy.core.display.preview import make_hider, sanitise_value, write_preview
from proxy.core.display.secrets import find_sensitive_names, is_secret_name, mask_credentials, shorten_paths
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import ABSENT, FeedbackLimits
from proxy.core.schema.nodes import Schemas
from tests.core.values import SECRETS, anything
from tests.tables import each_row

limits_of_any_size = st.builds(
    FeedbackLimits, max_errors=st.integers(-1, 12), max_chars=st.integers(-5, 300), max_preview=st.integers(-5, 120)
)


# --- shapes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shown", "sent"),
    [
        ("null", b"null"),
        ("true", b"true"),
        ("35.60", b"35.60"),
        ('"uft8"', b'"uft8"'),
        ('"a \\"quoted\\" line\\n\\u0000"', b'"a \\"quoted\\" line\\n\\u0000"'),
        ('{"a": 1, "b": [true, null]}', b'{"a":1,"b":[true,null]}'),
        ("[]", b"[]"),
        ("{}", b"{}"),
        ("(an integer of about 100 digits)", b"9" * 100),
    ],
)
def test_a_small_value_is_shown_as_json(shown: str, sent: bytes) -> None:
    assert shown == write_preview(parse(sent))


def test_a_long_string_ends_in_three_dots_within_the_limit() -> None:
    assert "<" + "x" * 95 + "...>" == write_preview("x" * 300)


def test_a_long_array_shows_its_first_and_last_items() -> None:
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... (+988 more), 999]" == write_preview(list(range(1000)))


def test_a_deep_object_stops_at_a_depth() -> None:
    assert '{"a": {"b": {"c": {"d": {...}}}}}' == write_preview({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}})


def test_a_wide_object_says_how_many_keys_are_left_out() -> None:
    shown = write_preview({f"key_{number}": number for number in range(50)})
    assert '{"key_0": 0, "key_1": 1, "key_2": 2, "key_3": 3, "key_4": 4, "key_5": 5, ... (+44 more)}' == shown


def test_nothing_is_shown_for_what_was_not_sent() -> None:
    assert write_preview(ABSENT) == ""


@given(anything, limits_of_any_size)
def test_a_preview_never_raises_and_never_exceeds_its_limit(value: Any, limits: FeedbackLimits) -> None:
    shown = write_preview(value, limits)
    assert len(shown) <= max(limits.max_preview, 0)
    assert shown.encode().decode() == shown
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    assert shown == write_preview(value, limits)


# --- values for machines --------------------------------------------------------------------------------------------
def test_a_small_clean_value_stays_as_it_is() -> None:
    value = parse(b'{"function":"Add","a":5,"b":10.50,"tags":["x",null,true]}')
    assert value == sanitise_value(value)


@pytest.mark.parametrize("number", ["1e308", "1e+308", "-1.7976931348623157e308", "5e-324", "-0.0"])
def test_a_number_near_the_end_of_the_doubles_stays_a_number_however_it_is_written(number: str) -> None:
    value = parse(number.encode())
    assert value == sanitise_value(value)


def test_a_sanitised_value_is_masked_and_shortened() -> None:
    value = {"password": "hunter2", "note": "n" * 200, "list": list(range(100)), "deep": [[[[[["x"]]]]]]}
    assert {
        "password": "<***>",
        "note": f"<{'n' * 97}...>",
        "list": [*range(19), "<80 more>", 99],
        "deep": [[[["<list>"]]]],
    } == sanitise_value(value)


@given(anything, limits_of_any_size)
def test_a_sanitised_value_can_always_be_written_as_json(value: Any, limits: FeedbackLimits) -> None:
    assert dumps(sanitise_value(value, limits)).decode()


# --- secrets --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    ["password", "dbPassword", "X-Api-Key", "api_key", "apikey", "Authorization", "access_token", "accessToken",
     "token", "tokens", "client_secret", "pwd", "ｐassword", "PASSWORD_HASH", "private-key",
     "AWS_SECRET_ACCESS_KEY", "cookie"],
)  # fmt: skip
def test_a_name_that_says_secret_is_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["path", "max_tokens", "token_count", "compass", "passenger", "author", "key", "keyword", "location", ""]
)
def test_an_ordinary_name_is_not_taken_for_a_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_a_secret_name_masks_whatever_lies_below_it() -> None:
    assert write_preview({"login": {"password": {"value": "hunter2"}, "user": "al"}}) == (
        '{"login": {"password": <***>, "user": "al"}}'
    )
    assert "<***>" == write_preview("hunter2", path=("login", "password"))
    assert "<***>" == write_preview("hunter2", path=("credentials", 0, "value"))
    assert "<***>" == write_preview(12345, sensitive=True)


def test_a_name_the_schema_marks_is_masked_like_a_secret_one() -> None:
    limits = FeedbackLimits(secret_names=frozenset({"answer"}))
    assert '{"answer": <***>, "question": "pet"}' == write_preview({"answer": "Rex", "question": "pet"}, limits)


def test_the_marks_of_a_schema_are_found_through_references() -> None:
    schema = {
        "properties": {
            "a": {"writeOnly": True},
            "b": {"type": "object", "properties": {"c": {"format": "password"}, "d": {"type": "string"}}},
            "e": {"$ref": "#/$defs/secret"},
        },
        "$defs": {"secret": {"type": "string", "x-sensitive": True}},
    }
    assert {"a", "c", "e"} == find_sensitive_names(Schemas(schema))


@each_row("secret", SECRETS)
@each_row("around", ["{}", "use {} now", "key={}", "({})", "https://x.test/?k={}&b=1", '{{"k": "{}"}}', "\n{}"])
def test_a_well_known_credential_is_masked_in_any_text(secret: str, around: str) -> None:
    text = around.format(secret)
    for shown in (
        write_preview(text),
        write_preview([text]),
        str(sanitise_value({"t": text})),
        mask_credentials(text),
        make_hider(None).hide(text),
    ):
        assert secret not in shown
        assert secret[-8:] not in shown
        assert "***" in shown


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("password=***", "password=hunter2"),
        ('{"password": "***", "a": 1}', '{"password": "hun ter2", "a": 1}'),
        ("{'api_key': '***'}", "{'api_key': 'abc def'}"),
        ('{\\"token\\": \\"***\\"}', '{\\"token\\": \\"abc\\"}'),
        ("Authorization: ***", "Authorization: Bearer abc"),
        ("curl -H 'X: ***'", "curl -H 'X: Bearer abcdef0123456789'"),
        ("postgres://***@db/x", "postgres://al:hunter2@db/x"),
        ("max_tokens=100 and basic understanding", "max_tokens=100 and basic understanding"),
        ("a task-list and a disk-partition", "a task-list and a disk-partition"),
    ],
)
def test_masks_a_credential_in_an_assignment(shown: str, text: str) -> None:
    assert shown == mask_credentials(text)


@given(
    st.sampled_from(SECRETS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=150),
    st.text(max_size=1500),
    limits_of_any_size,
)
def test_a_planted_credential_never_shows_not_even_cut_in_half(
    secret: str, before: str, after: str, limits: FeedbackLimits
) -> None:
    text = f"{before} {secret} {after}"
    assert secret[:12] not in write_preview(text, limits)
    assert secret[:12] not in write_preview({"deep": [text]}, limits)
    assert secret[:12] not in str(sanitise_value({"deep": [text]}, limits))


@given(st.text(st.characters(categories=["L", "N"]), min_size=4, max_size=40), limits_of_any_size)
def test_a_value_under_a_secret_name_never_shows(secret: str, limits: FeedbackLimits) -> None:
    value = {"x": {"password": f"<{secret}>", "n": 1}}
    assert f"<{secret}>" not in write_preview(value, limits)
    assert f"<{secret}>" not in str(sanitise_value(value, limits))
    assert f"<{secret}>" not in make_hider(value, limits).hide(f"got '<{secret}>'")


def test_the_beginning_of_a_secret_that_a_message_cut_short_is_hidden_too() -> None:
    hider = make_hider("hunter2-and-more-of-it", path=("password",))
    assert "got '***...'" == hider.hide("got 'hunter2-and-mo...'")


def test_masking_a_megabyte_looks_at_its_beginning_only() -> None:
    assert mask_credentials("a " * 500_000, 100) == ("a " * 500_000)[:612]


# --- file paths -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("src/a.py", "/srv/repo/src/a.py"),
        (".", "/srv/repo/"),
        ("…/secret/x.txt", "/home/alice/secret/x.txt"),
        ("…/etc/passwd", "/srv/repo/../../etc/passwd"),
        ("…/repository/a.py", "/srv/repository/a.py"),
        ("…/My Documents/x y.txt", "/home/alice/My Documents/x y.txt"),
        ("…/alice/x.txt", r"C:\Users\alice\x.txt"),
        ("…/share/x.txt", r"\\server\share\x.txt"),
        ("…/alice/x", "file:///home/alice/x"),
        ("open …/alice/x: no such file", "open /home/alice/x: no such file"),
        ("path=…/alice/x", "path=/home/alice/x"),
        ("https://host/a/b/c", "https://host/a/b/c"),
        ("see https://host/a/b/c.", "see https://host/a/b/c."),
        ("/word", "/word"),
        ("a/b/c", "a/b/c"),
        ("1/2", "1/2"),
        ("text/plain", "text/plain"),
    ],
)
def test_an_absolute_path_is_shown_below_a_root_or_by_its_last_steps(shown: str, text: str) -> None:
    assert shown == shorten_paths(text, ("/srv/repo",))


def test_a_windows_root_compares_without_case() -> None:
    assert "src/A.py" == shorten_paths(r"c:\Work\src\A.py", (r"C:\work",))


def test_a_path_in_a_message_is_shortened_as_in_the_value() -> None:
    assert "Invalid enum value '…/al/x.txt'" == make_hider("/home/al/x.txt").hide("Invalid enum value '/home/al/x.txt'")


# --- characters -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "character",
    [
        "e\u0301",
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "👍🏽",
        "한",
        "각",
        "\r\n",
        "क्ष",
        "❤\ufe0f",
        "🏴\U000e0067\U000e0062\U000e007f",
        "กำ",
    ],
)
def test_a_cut_never_falls_inside_a_character(character: str) -> None:
    text = "ab" + character * 3 + "z"
    for limit in range(len(text)):
        kept = text[: find_boundary(text, limit)]
        assert kept in {"", "a", "ab", "ab" + character, "ab" + character * 2, "ab" + character * 3}
        assert len(cut(text, limit)) <= limit


def test_a_text_within_the_limit_is_not_cut() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "..."
    assert cut("abcdef", 5) == "ab..."
    assert cut("abcdef", 0) == ""


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("a\\nb\\tc\\u001b[31m", "a\nb\tc\x1b[31m"),
        ("\\u202eevil", "\u202eevil"),
        ("\\u2028", "\u2028"),
        ("\\ud800", "\ud800"),
        ("\\u200bhidden", "\u200bhidden"),
        ("\\U000e0041", "\U000e0041"),
        ("🏴\U000e0067\U000e007f", "🏴\U000e0067\U000e007f"),
        ("héé 漢字 👍", "héé 漢字 👍"),
    ],
)
def test_escapes_characters_that_could_steer_a_reader(shown: str, text: str) -> None:
    assert shown == escape(text)


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (99, "one of 'EUR', 'CN, Y', 'USD'"),
        (24, "one of 'EUR', ..."),  # the comma inside an item ends none
        (27, "one of 'EUR', 'CN, Y', ..."),
        (14, "..."),
    ],
)
def test_cuts_a_list_behind_an_item(limit: int, shown: str) -> None:
    assert shown == cut_parts("one of 'EUR', 'CN, Y', 'USD'", limit)
