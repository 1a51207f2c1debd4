"""References in the config's text: what they put in, and that nothing ever shows it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from proxy.config.files.secrets import Secret, Substitution, Unresolved, restore_written, reveal
from proxy.core.model.values import JsonValue

ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "HOST": "tools"}


def put_in(value: JsonValue, folder: Path = Path("/nowhere")) -> tuple[JsonValue, list[Unresolved]]:
    problems: list[Unresolved] = []
    substitution = Substitution(
        ENVIRON, Path.read_bytes, folder, lambda path: path[:1] == ("schema",), lambda path: path[:1] == ("headers",)
    )
    return substitution.apply(value, problems), problems


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("${TOKEN}", "s3cret"),
        ("Bearer ${TOKEN}", "Bearer s3cret"),
        ("http://${HOST}:${PORT:-9101}/", "http://tools:9101/"),
        ("${EMPTY:-else}", "else"),
        ("${EMPTY}", ""),
        ("${MISSING:-}", ""),
        ("$$", "$"),
        ("$${TOKEN}", "${TOKEN}"),
        ("costs 5$", "costs 5$"),
        ("$TOKEN", "$TOKEN"),
        ("${MISSING:-a:-b}", "a:-b"),
    ],
)
def test_references_are_put_in(written: str, text: str) -> None:
    value, problems = put_in({"key": written})
    assert [] == problems
    assert text == reveal(value["key"])


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("${MISSING}", "the environment variable MISSING is not set"),
        ("${}", "${} names no environment variable"),
        ("${1X}", "${1X} names no environment variable"),
        ("${TOKEN", "'${' without '}'"),
        ("${file:/etc/hostname}", "${file:...} would show a secret here"),
    ],
)
def test_a_reference_that_leads_nowhere_is_a_mistake_at_its_place(written: str, words: str) -> None:
    _, problems = put_in({"a": ["x", written]})
    assert [(("a", 1), words)] == [(problem.path, problem.message) for problem in problems]


def test_a_secret_file_stands_in_headers_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"abc\r\n")
    value, problems = put_in({"headers": "Bearer ${file:token}"}, tmp_path)
    assert ("Bearer abc", []) == (reveal(value["headers"]), problems)


def test_a_missing_secret_file_is_a_mistake(tmp_path: Path) -> None:
    _, problems = put_in({"headers": "${file:token}"}, tmp_path)
    assert ["the file token cannot be read: No such file or directory"] == [problem.message for problem in problems]


def test_a_schema_is_left_alone() -> None:
    assert ({"schema": {"pattern": "^$${x}$"}}, []) == put_in({"schema": {"pattern": "^$${x}$"}})


def test_a_secret_prints_as_it_is_written_however_it_is_printed() -> None:
    secret = Secret("s3cret", "${TOKEN}")
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>20}",
        f"{secret!r}",
        repr({"a": [secret]}),
        "{}".format(secret),  # noqa: UP032 - the other way to print
    ]
    assert [] == [text for text in shown if "s3cret" in text]
    assert "${TOKEN}" == str(secret)
    assert b"s3cret" not in pickle.dumps(secret)


def test_only_reveal_gives_the_text_and_a_dump_gives_what_is_written() -> None:
    secret = Secret("s3cret", "${TOKEN}")
    assert ("s3cret", "plain", str) == (reveal(secret), reveal("plain"), type(reveal(secret)))
    assert {"a": ["${TOKEN}", 1], "b": "x"} == restore_written({"a": [secret, 1], "b": "x"})
