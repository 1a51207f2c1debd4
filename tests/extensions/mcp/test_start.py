"""The modules of an MCP route are loaded before its first request."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cli.test_start import list_not_needed, loaded_by

MCP: Final = """
version: 1
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
upstreams: {tools: {url: 'http://127.0.0.1:9'}}
routes: [{path: /mcp, protocol: mcp, upstream: tools}]
"""


async def test_a_config_loads_its_modules_before_the_first_call(tmp_path: Path) -> None:
    loaded = await loaded_by(tmp_path, MCP)
    assert {"proxy.extensions.mcp"} == list_not_needed(loaded)
    assert "proxy.extensions.mcp.server.lists.learner" in loaded
