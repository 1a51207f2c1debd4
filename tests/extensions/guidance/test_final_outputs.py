"""Final outputs for the vendors' structured outputs: strict where that can be, and what comes back passes the check."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from proxy.core.decide import decide
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Conversation, Document, Forward, Rung, ToolCall
from proxy.core.schema.dialects import is_strict
from proxy.extensions.guidance.core.export import VENDORS, export, export_outputs
from proxy.extensions.guidance.core.vendorschema import make_strict_schema
from tests.collected_schemas import policy, real_tools

ROOT: Final = Path(__file__).parents[3]
SDK: Final = ROOT / ".parties/sdk"
_HOW: Final = "no .parties/sdk here: run .ci/sdks"
REPORT: Final = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "score": {"type": "number", "minimum": 0},
        "kind": {"enum": ["a", "b"]},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "required": ["title"],
}
OPEN: Final = {
    "type": "object",
    "properties": {"by_name": {"type": "object", "additionalProperties": {"type": "number"}}},
}
FINAL: Final = {
    "report": policy(REPORT, "report", finalising=True, description="The report."),
    "call": policy({"type": "object"}, "call"),
}


def output(vendor: str) -> tuple[Any, tuple[str, ...]]:
    made = export_outputs(FINAL, vendor)
    (one,) = made.tools
    return json.loads(dumps(one)), made.losses


def test_openai_gets_a_strict_response_format_and_the_losses_are_listed() -> None:
    made, losses = output("openai")
    told = made["response_format"]["json_schema"]
    assert ("json_schema", "report", "The report.", True) == (
        made["response_format"]["type"], told["name"], told["description"], told["strict"],
    )  # fmt: skip
    assert is_strict(told["schema"])
    assert ["title", "score", "kind", "rows"] == told["schema"]["required"]
    assert (["number", "null"], 0) == (told["schema"]["properties"]["score"]["type"], 0)
    assert "report: minLength at /title is left out" in losses


def test_anthropic_gets_an_output_format_without_the_bounds_that_it_refuses() -> None:
    made, losses = output("anthropic")
    assert {"output_format"} == made.keys()
    assert "minimum" not in json.dumps(made)
    assert "report: minimum at /score is left out" in losses


def test_gemini_gets_a_response_schema_and_mcp_has_none() -> None:
    made, _ = output("gemini")
    assert ("application/json", "OBJECT") == (made["response_mime_type"], made["response_schema"]["type"])
    assert ((), ("report",)) == (export_outputs(FINAL, "mcp").tools, export_outputs(FINAL, "mcp").left_out)


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "gemini"])
def test_a_final_output_is_no_tool(vendor: str) -> None:
    made = export(FINAL, vendor)
    assert (1, 0) == (len(made.tools), len(made.left_out))
    assert any("`--final`" in loss for loss in made.losses)


def test_says_that_an_open_schema_cannot_be_strict() -> None:
    final = {"map": policy(OPEN, "map", finalising=True)}
    (made,) = export_outputs(final, "openai").tools
    assert False is json.loads(dumps(made))["response_format"]["json_schema"]["strict"]
    assert any("strict is off" in loss for loss in export_outputs(final, "openai").losses)
    assert ("map",) == export_outputs(final, "anthropic").left_out


def test_the_proxy_accepts_the_answer_of_a_strict_model() -> None:
    """An optional key that strict mode requires comes as null, and the proxy takes it for left out."""
    strict, _ = make_strict_schema(REPORT)
    said = {"title": "T", "score": None, "kind": None, "rows": [{"n": None}]}
    assert Draft202012Validator(strict or {}).is_valid(said)
    text = json.dumps(said).encode()
    call = ToolCall("report", Document(text, parse(text)), "c", Conversation("c", Rung.HEADER))
    decision = decide(call, FINAL["report"])
    assert isinstance(decision, Forward)
    assert b'{"title":"T","rows":[{}]}' == decision.checked.arguments


def test_every_strict_schema_of_a_real_tool_is_one_and_takes_less() -> None:
    made = 0
    for name, tool in real_tools().items():
        raw = json.loads(dumps(tool.check.root.raw if tool.check is not None else {}))
        strict, losses = make_strict_schema(raw) if isinstance(raw, dict) else (None, [])
        if strict is None:
            continue
        made += 1
        Draft202012Validator.check_schema(json.loads(dumps(strict)))
        assert is_strict(strict), (name, losses)
    assert made > 50


@pytest.mark.large
def test_the_vendors_own_types_take_them() -> None:
    if not (SDK.parent / "sdk.stamp").is_file():
        if os.environ.get("CI") == "true":
            pytest.fail(_HOW)
        pytest.skip(_HOW)
    outputs = {vendor: output(vendor)[0] for vendor in VENDORS if vendor != "mcp"}
    lines = [json.dumps({"vendor": f"{vendor} output", "tool": made}) for vendor, made in outputs.items()]
    done = subprocess.run(
        [SDK / "bin/python", "tests/extensions/guidance/judge.py"],
        cwd=ROOT, input="\n".join(lines), capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert ["", "", ""] == done.stdout.split("\n")[:3]
