"""The flags of `serve` that plugins add, beside each other."""

from __future__ import annotations

import socket

import pytest

from proxy.__main__ import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve --mcp http://a --openapi b", "serve: --mcp and --openapi cannot be combined: use one of them\n"),
        ("serve a.yaml --upstream http://a", "serve: --upstream goes only with --openapi\n"),
        (
            "serve a.yaml --null-optional drop",
            "serve: --null-optional goes only with --mcp and --openapi; a config says `null_optional`\n",
        ),
        (
            "serve --mcp python x.py",
            "serve: CONFIG and --mcp cannot be combined: use one of them  (write a command after --: "
            "toolcall-proxy serve --mcp -- python x.py)\n",
        ),
        ("serve --mcp http://a b.yaml", "serve: CONFIG and --mcp cannot be combined: use one of them\n"),
        ("serve a.yaml --as mcp", "serve: --as goes only with --openapi\n"),
    ],
)
def test_rejects_words_that_exclude_each_other(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(words.split())
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            "--mcp npx -y server",
            "unrecognized arguments: -y  (write a command after --: toolcall-proxy serve --mcp -- npx server)",
        ),
        ("--mcp http://a -y", "unrecognized arguments: -y\n"),
        ("a.yaml -y", "unrecognized arguments: -y\n"),
    ],
)
def test_an_unknown_option_may_belong_to_a_command(words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", *words.split()])
    assert hint in capsys.readouterr().err


def test_a_program_in_place_of_a_url_may_be_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["serve", "--mcp", "sh"])
    assert "serve: write a command after --: toolcall-proxy serve --mcp -- sh ...\n" in capsys.readouterr().err


def test_a_taken_port_names_the_flags_without_a_config(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["serve", "--mcp", "http://127.0.0.1:9/mcp", "--admin", "off", "--listen", f"127.0.0.1:{port}"]
        assert 2 == main(words)
    assert "(--listen and --admin take other ports)" in capsys.readouterr().err
