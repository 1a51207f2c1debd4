"""Options of `import openapi` and `serve --openapi` that exclude each other are named."""

from __future__ import annotations

import pytest

from proxy.__main__ import main


@pytest.mark.parametrize("words", [["import", "openapi", "b"], ["serve", "--openapi", "b"]])
def test_requests_are_not_relayed_to_clients_that_call_tools(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main([*words, "--as", "mcp", "--relay"])
    said = f"{words[0]}: --relay and --as mcp cannot be combined: an MCP client"
    assert capsys.readouterr().err.startswith(said)
