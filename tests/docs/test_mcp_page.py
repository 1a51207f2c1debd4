"""docs/mcp.md and docs/reference/mcp.md: their configs can be served, their figures and names are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.core.contract.listed_tool import MAX_NODES
from proxy.core.contract.policy import ToolPolicy
from proxy.core.envelope.formats import MCP_FEEDBACK
from proxy.extensions.mcp.adapters.mcplist import MAX_LIST, MAX_PAGES
from proxy.extensions.mcp.config.mcp_section import MCP_DEFAULTS
from proxy.extensions.mcp.core.listed_tools import LearnPolicy
from proxy.extensions.mcp.server.lists.asking import CREDENTIALS
from proxy.extensions.mcp.server.lists.learner import NEW
from tests.telemetry.all_metrics import list_metrics

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("mcp.md", "reference/mcp.md"))
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HEAD = 'version: 1\nupstreams: {github: {url: "http://127.0.0.1:9"}}\n'
ROUTE = HEAD + "routes:\n  - path: /mcp\n    upstream: github\n    protocol: mcp\n"


def test_every_config_on_the_page_can_be_served(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "search.yaml").write_text("{type: object}")
    for block in BLOCKS:
        text = block if "version:" in block else HEAD + block if block.startswith("routes:") else ROUTE + block
        path = tmp_path / "c.yaml"
        path.write_text(text)
        (route,) = load(path, {"TOKEN": "t"}).config.routes
        assert "mcp" == route.adapter
    assert 6 == len(BLOCKS)


LEARN = LearnPolicy(ToolPolicy("", None, ""))
SAID = [
    f"at most {MAX_LIST // 1024 // 1024} MiB, {MAX_PAGES} pages",
    f"{MAX_NODES:,} values in one schema",
    f"older than {NEW:g} seconds",
    f"`ttl` ({LEARN.ttl / 60:g} minutes)",
    f"`{LEARN.unknown_schema}` is the default",
    MCP_FEEDBACK,
    *(f"`{name}`" for name in sorted(CREDENTIALS)),
    *(f"`{source['meta']}`" for source in MCP_DEFAULTS["conversation"] if "meta" in source),
]


@pytest.mark.parametrize("said", SAID)
def test_the_page_says_what_the_code_does(said: str) -> None:
    assert said in PAGE


def test_the_answer_on_the_page_is_one() -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    answer = json.loads(text)

    assert {"isError", "content", "_meta"} == set(answer["result"])


def test_metrics_on_the_page_are_there() -> None:
    assert set(re.findall(r"`(toolproxy_\w+)`", PAGE)) <= set(list_metrics())
