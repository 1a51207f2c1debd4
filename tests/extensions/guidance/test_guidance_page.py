"""docs/guidance.md shows what is made: a tool's section, a conversation's state; and its config can be served."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.config.load import load
from proxy.config.model import find_default
from proxy.core.decide import decide
from proxy.extensions.guidance.cli.export import FORMATS
from proxy.extensions.guidance.core.prompt import ToolState, write_section, write_state
from proxy.extensions.guidance.guidance_section import Guidance
from proxy.routing import build_routes
from tests.collected_schemas import policy

PAGE = (Path(__file__).parents[3] / "docs/guidance.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_section_on_the_page_is_the_one_that_is_made() -> None:
    weather = policy(
        {
            "type": "object",
            "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}, "unit": {"enum": ["C", "F"]}},
            "required": ["lat"],
        },
        "weather",
        description="Current weather at a place.",
    )
    shown = next(block for block in BLOCKS if block.startswith("## weather"))
    made = write_section(weather, decide).split("\n")
    assert shown.rstrip("\n").split("\n") == made[:7]


def test_the_state_on_the_page_is_the_one_that_is_made() -> None:
    states = [ToolState("weather", 2, 3, 1, 3), ToolState("search", 5, 5, 0, 3)]
    assert write_state(states) + "\n" in BLOCKS


def test_the_config_of_a_final_output_can_be_served(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/report.json").write_text('{"type": "object"}')
    block = next(block for block in BLOCKS if "finalize_output_retries" in block)
    (tmp_path / "config.yaml").write_text("version: 1\n" + block)
    (route,) = build_routes(load(tmp_path / "config.yaml", {}).config).routes
    assert ("validate", 3, True) == (
        route.kind,
        route.tools["report"].attempts.max_attempts,
        route.tools["report"].finalising,
    )


def test_the_page_names_every_format_and_the_defaults() -> None:
    assert FORMATS == tuple(re.findall(r"^\| `(\w+)` \| `\{", PAGE, re.MULTILINE))
    assert f"max_chars: {find_default(Guidance, 'max_chars')}" in PAGE
    assert find_default(Guidance, "dynamic_state")
