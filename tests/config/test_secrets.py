"""References in the config's text: what they put in, and that nothing ever shows it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from proxy.config.files.secrets import Secret, Substitution, Unresolved, restore_written, reveal
from proxy.config.load import load
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


def test_puts_a_secret_file_into_headers_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"abc\r\n")
    value, problems = put_in({"headers": "Bearer ${file:token}"}, tmp_path)
    assert ("Bearer abc", []) == (reveal(value["headers"]), problems)


def test_a_missing_secret_file_is_a_mistake(tmp_path: Path) -> None:
    _, problems = put_in({"headers": "${file:token}"}, tmp_path)
    assert ["the file token cannot be read: No such file or directory"] == [problem.message for problem in problems]


def test_replaces_nothing_in_a_schema() -> None:
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


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a-token-in-the-file", "***"),
        ("${ADMIN_TOKEN}", "${ADMIN_TOKEN}"),
        ("${ADMIN_TOKEN:-a-token-in-the-file}", "${ADMIN_TOKEN:-***}"),
        ("half-of-it-${ADMIN_TOKEN:-a-token}", "***${ADMIN_TOKEN:-***}"),
        ("${file:token.txt}", "${file:token.txt}"),
    ],
)
def test_a_dump_shows_only_the_references_of_both_tokens_of_the_operators_port(
    written: str, shown: str, tmp_path: Path
) -> None:
    (tmp_path / "token.txt").write_text("a-token-in-another-file")
    path = tmp_path / "c.yaml"
    for place, other in (("token", "readers"), ("readers", "token")):
        admin = {"listen": "127.0.0.1:0", place: written, other: "${OTHER:-another-token-1234567890}"}
        path.write_text(
            json.dumps({"version": 1, "admin": admin, "upstreams": {"t": {"url": "http://127.0.0.1:9"}},
                        "routes": [{"path": "/a", "upstream": "t", "passthrough": True}]})
        )  # fmt: skip
        dumped = load(path, {"ADMIN_TOKEN": "a-token-of-the-environment"}).config.written
        assert isinstance(dumped, dict)
        assert {"listen": "127.0.0.1:0", place: shown, other: "${OTHER:-***}"} == dumped["admin"]


def test_resolves_a_reference_in_the_names_of_the_admin_port(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "version: 1\nadmin: {hosts: ['${NAME}']}\nroutes: {/a: {upstream: none, tool: x, schema: {}}}"
    )
    admin = load(tmp_path / "c.yaml", {"NAME": "Proxy.example"}).config.admin
    assert admin is not None
    assert frozenset({"proxy.example"}) == admin.hosts
