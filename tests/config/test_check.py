"""`toolcall-proxy check CONFIG`: what it prints and its exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from proxy.cli import check
from proxy.config.load import load

GOOD = """\
version: 1
tools: {a: {schema: {type: object}}}
routes: {/a: {upstream: none, tool: a}, '/t/{tool}': {upstream: none, mode: report}}
"""


def run(tmp_path: Path, text: str, *options: str) -> tuple[int, Path]:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    parser = argparse.ArgumentParser()
    check.register(parser.add_subparsers())
    return check.run(parser.parse_args(["check", str(path), *options])), path


def test_a_right_config_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, path = run(tmp_path, GOOD)
    assert 0 == code
    assert [
        f"{path}: ok, 2 routes, 1 tool",
        "  POST   /a         validate     a -> answered here",
        "  POST   /t/{tool}  validate     a -> answered here",
        "note: route '/t/{tool}': report only, invalid calls of tool 'a' go through",
    ] == capsys.readouterr().out.splitlines()


def test_quiet_says_nothing_of_a_right_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(tmp_path, GOOD, "--quiet")[0]
    assert ("", "") == tuple(capsys.readouterr())


def test_each_mistake_has_its_line_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, path = run(tmp_path, "version: 2\nroutes: {/a: {upstream: none, tol: a}}")
    assert 2 == code
    out, err = capsys.readouterr()
    assert "" == out
    assert [
        f"{path}:1:10  version  `version` expects 1; this is 2",
        f"{path}:2:10  route '/a'  nothing says which tool is called  (add `tool: NAME`, `dispatch: {{...}}`, "
        "`{tool}` in the path, or `passthrough: true`)",
        f"{path}:2:31  route '/a'  unknown key 'tol'  (did you mean 'tool'?)",
        f"{path}: 3 mistakes; nothing would be served",
    ] == err.splitlines()


def test_reports_hooks_next_to_other_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, path = run(tmp_path, f"{GOOD}workers: 0\nhooks: [{{use: 'no_such_module:Hook'}}]\n")
    assert 2 == code
    found = capsys.readouterr().err.splitlines()
    assert [f"{path}:4:10", f"{path}:5:9"] == [line.split("  ")[0] for line in found[:2]]
    assert "'no_such_module:Hook' cannot be loaded" in found[1]


# --- the config alone -------------------------------------------------------------------------------------------------
ELSEWHERE = """\
version: 1
listen: {host: "${HOST}", tls: {cert: /nowhere/cert.pem, key: /nowhere/key.pem}}
admin: {token: "${file:/nowhere/token}"}
upstreams:
  a: {url: "${A_URL}", timeouts: {response: "${TIME}"}}
  b: {url: "https://b", tls: {ca: /nowhere/ca.pem}, headers: {set: {authorization: "Bearer ${file:/nowhere/b}"}}}
defaults: {attempts: {max: "${MAX}"}, mode: "${MODE}"}
hooks: [{use: "nowhere:Hook", settings: {key: "${file:/nowhere/key}"}}]
routes:
  /a: {upstream: a, tool: a, schema: a.yaml}
  /b: {upstream: b, tool: b, schema: a.yaml}
"""


def test_config_only_needs_no_secret_variable_certificate_or_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("type: object")
    assert 0 == run(tmp_path, ELSEWHERE, "--config-only")[0], capsys.readouterr().err
    assert 2 == run(tmp_path, ELSEWHERE)[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a.yaml", "b.yaml", "b.yaml"),
        ("upstream: b,", "upstream: c,", "unknown upstream 'c'"),
        ("${MAX}", "${MA X}", "names no environment variable"),
        ("version: 1", "version: 2", "`version` expects 1"),
    ],
)
def test_config_only_still_rejects_a_wrong_config(
    old: str, new: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("type: object")
    assert 2 == run(tmp_path, ELSEWHERE.replace(old, new), "--config-only")[0]
    assert words in capsys.readouterr().err


def test_the_digest_is_over_the_files_next_to_the_config_and_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'version: 1\nadmin: {token: "${file:token}"}\nroutes: {/a: {upstream: none, tool: a, schema: a.yaml}}'

    def digest(schema: str, token: str | None) -> str:
        (tmp_path / "a.yaml").write_text(schema)
        (tmp_path / "token").unlink(missing_ok=True)
        if token is not None:
            (tmp_path / "token").write_text(token)
        code, path = run(tmp_path, text, "--digest", "--config-only")
        assert (0, load(path, {}, config_only=True).files_digest) == (code, capsys.readouterr().out.strip())
        return load(path, {}, config_only=True).files_digest

    first = digest("type: object", "0123456789abcdef")
    assert [first, first] == [digest("type: object", "fedcba9876543210"), digest("type: object", None)]
    assert first != digest("type: string", None)
