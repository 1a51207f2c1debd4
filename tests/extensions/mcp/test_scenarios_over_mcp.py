"""Every scenario file with the key `mcp` is a test over MCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.mcp.over_mcp import run_over_mcp
from tests.scenarios.runner import read_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
OVER_MCP = [path for path in SCENARIOS if "mcp" in read_scenario(path)]


@pytest.mark.large
@pytest.mark.parametrize("era", ["old", "new"])
@pytest.mark.parametrize("path", OVER_MCP, ids=lambda path: path.stem)
async def test_the_scenario_goes_as_written_over_mcp(path: Path, era: str, tmp_path: Path) -> None:
    found = await run_over_mcp(read_scenario(path), tmp_path / "config.yaml", new=era == "new")
    assert not found, "\n".join(["", *found])
