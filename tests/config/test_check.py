"""`toolcall-proxy check CONFIG`: what it prints and its exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from proxy.cli import check

GOOD = """\
version: 1
tools: {a: {schema: {}}}
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
