"""`import mcp` of real servers in both eras: a config that is checked, served, and judges by what was imported."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from proxy.__main__ import main
from tests.parties.conftest import Stage
from tests.parties.environment import ADMIN, proxy
from tests.parties.mistakes import BOOK
from tests.parties.rawmcp import opened

pytestmark = pytest.mark.large

ERAS: Final = {"high": "2026-07-28", "ts1": "2025-11-25", "everything": "2025-11-25"}


@pytest.mark.parametrize("server", ERAS)
def test_the_tools_of_a_server_are_imported_and_served(
    server: str, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["import", "mcp", stage.direct_url(server), "--into", str(tmp_path)])
    assert f"an MCP server, revision {ERAS[server]}, " in capsys.readouterr().out
    config = tmp_path / "config.yaml"
    assert 0 == main(["check", str(config), "--live"])
    assert "0 changed, 0 gone" in capsys.readouterr().out
    if server == "everything":
        return
    schema = tmp_path / "schemas" / "book.yaml"
    schema.write_text(schema.read_text().replace("enum: [small, large]", "enum: [small]"))
    config.write_text(config.read_text() + ADMIN)
    with proxy(config) as port:
        session = opened(f"http://127.0.0.1:{port}/mcp")
        good = session.call({"name": "book", "arguments": {**BOOK, "copies": "3"}}).message["result"]
        tightened = session.call({"name": "book", "arguments": {**BOOK, "size": "large"}}).message["result"]
    assert not good.get("isError")
    assert tightened["isError"]
    assert "/size" in tightened["content"][0]["text"]
