"""Words of `import openapi` that cannot stand together are named."""

from __future__ import annotations

import pytest

from proxy.__main__ import main


def test_requests_are_not_relayed_to_clients_that_call_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["import", "openapi", "b", "--as", "mcp", "--relay"])
    said = "import: --relay and --as mcp cannot stand together: an MCP client"
    assert capsys.readouterr().err.startswith(said)
