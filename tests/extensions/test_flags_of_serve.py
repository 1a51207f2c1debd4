"""The flags of `serve` that plugins add, beside each other."""

from __future__ import annotations

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
        ("serve a.yaml --as mcp", "serve: --as goes only with --openapi\n"),
    ],
)
def test_rejects_words_that_exclude_each_other(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(words.split())
    assert said in capsys.readouterr().err
