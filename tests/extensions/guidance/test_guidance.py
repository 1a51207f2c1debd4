"""Guidance: the header always, examples that are true, bounded; and what a conversation has used up, where wanted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.contract.policy import Mode, RepairPolicy, ToolPolicy, UnknownKeys
from proxy.core.decide import decide
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import (
    Container,
    ContainerFunction,
    Conversation,
    Document,
    Forward,
    JsonValue,
    Reject,
    Rung,
    ToolCall,
)
from proxy.extensions.guidance.core.prompt import (
    REACT_HEADER,
    TYPE_RULES,
    ToolState,
    Wrong,
    make_lesson,
    write_guidance,
    write_section,
    write_state,
)
from tests.collected_schemas import policy, real_tools
from tests.extensions.correction.running import ROOT
from tests.extensions.mcp.conversation import talk
from tests.serving.proxied import Proxied, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

WEATHER = {
    "type": "object",
    "properties": {
        "lat": {"type": "number", "minimum": -90, "maximum": 90},
        "days": {"type": "integer"},
        "hourly": {"type": "boolean"},
        "unit": {"enum": ["C", "F"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["lat"],
    "additionalProperties": False,
}


def decided(policy: ToolPolicy, value: JsonValue) -> Forward | Reject:
    text = dumps(value)
    return decide(ToolCall(policy.tool, Document(text, value), "c", Conversation("c", Rung.HEADER)), policy)


# --- lessons ----------------------------------------------------------------------------------------------------------
def test_the_first_mistakes_shown_are_the_usual_ones() -> None:
    taught = make_lesson(policy(WEATHER), decide)
    right = {"lat": 35.5, "days": 10, "hourly": False, "unit": "C", "tags": ["..."]}
    assert [right, {"lat": 0}] == [json.loads(dumps(value)) for value in taught.right]
    assert [
        ({**right, "lat": "35.5"}, "lat: a number takes no quotes", ""),
        ({key: value for key, value in right.items() if key != "lat"}, "lat is missing", "VAL-001"),
        ({**right, "hourly": "false"}, "hourly: true and false take no quotes", ""),
        ({**right, "unit": "C_or_else"}, "unit: only the values that are listed are known", "VAL-008"),
    ] == [(json.loads(dumps(wrong.value)), wrong.what, wrong.code) for wrong in taught.wrong]


def test_without_repairs_a_number_in_quotes_is_refused_and_the_lesson_says_so() -> None:
    taught = make_lesson(policy(WEATHER, repair=RepairPolicy()), decide)
    assert "VAL-002" == taught.wrong[0].code


@pytest.mark.parametrize("strict", [False, True])
def test_every_example_of_every_real_tool_is_true(strict: bool) -> None:
    untrue, shown = [], 0
    for name, each in real_tools().items():
        tool = replace(each, unknown_keys=UnknownKeys.REFUSE) if strict else each
        taught = make_lesson(tool, decide)
        shown += len(taught.right) + len(taught.wrong)
        untrue += [(name, value) for value in taught.right if not is_right(tool, value)]
        untrue += [(name, wrong) for wrong in taught.wrong if not is_told_right(tool, wrong)]
    assert [] == untrue
    assert shown > 3 * len(real_tools())


def is_right(policy: ToolPolicy, value: JsonValue) -> bool:
    """Returns whether a right example is forwarded byte for byte."""
    decision = decided(policy, value)
    return isinstance(decision, Forward) and (decision.checked.arguments, decision.checked.repairs) == (
        dumps(value),
        (),
    )


def is_told_right(policy: ToolPolicy, wrong: Wrong) -> bool:
    """Returns whether the text about a wrong example is true."""
    match decided(policy, wrong.value):
        case Forward(checked):
            return wrong.code == "" and checked.repairs != ()
        case Reject(failure):
            return wrong.code == failure.violations[0].code.name


def test_a_report_only_tool_teaches_like_an_enforced_one() -> None:
    assert make_lesson(policy(WEATHER), decide) == make_lesson(policy(WEATHER, mode=Mode.REPORT), decide)


def test_shows_no_example_if_none_can_be_found() -> None:
    impossible = policy({"type": "object", "properties": {"a": False}, "required": ["a"]})
    assert ((), ()) == (make_lesson(impossible, decide).right, make_lesson(impossible, decide).wrong)
    assert "CORRECT" not in write_section(impossible, decide)


# --- the text ---------------------------------------------------------------------------------------------------------
def test_the_text_begins_with_the_header_and_the_rules() -> None:
    text = write_guidance({"weather": policy(WEATHER, "weather", description="Weather of a place.")}, 12_000, decide)
    assert text.startswith(
        f"{REACT_HEADER}\n\n{TYPE_RULES}\n\n## weather\nWeather of a place.\nArguments: {{lat: number"
    )
    for word in ("THINK:", "ACT:", "OBSERVE:", "35.6897", '"Tokyo"'):
        assert word in text
    assert '✓ CORRECT: {"lat":35.5,' in text
    assert '✗ WRONG: {"lat":"35.5",' in text
    assert "(lat: a number takes no quotes; has to be repaired)" in text
    assert "(lat is missing; refused with VAL-001)" in text


def test_containers_final_outputs_and_schemaless_tools_have_their_own_sections() -> None:
    container = Container("Math", functions=(ContainerFunction("Add"),))
    assert "First call 'Math' with NO arguments" in write_section(
        ToolPolicy("Math", None, "f", container=container), decide
    )
    assert "answer only with the JSON" in write_section(policy(WEATHER, finalising=True), decide)
    assert "## free\nArguments: as its description says." == write_section(ToolPolicy("free", None, "f"), decide)


@pytest.mark.parametrize("room", [0, 1000, 3000, 20_000])
def test_the_text_is_bounded_and_names_what_it_leaves_out(room: int) -> None:
    text = write_guidance(real_tools(), room, decide)
    fixed = len(REACT_HEADER) + len(TYPE_RULES) + 400
    assert len(text) <= max(room, fixed) + 6
    assert text.startswith(REACT_HEADER)
    assert "Further tools, each with separate guidance:" in text
    assert text == write_guidance(real_tools(), room, decide)


def test_the_state_of_a_conversation_follows_the_rules() -> None:
    states = [ToolState("weather", 2, 3, 1, 3), ToolState("search", 5, 5, 0, 3), ToolState("pay", None, None, 3, 3)]
    assert """\
State of this conversation:
- weather: 2 of 3 calls used, 1 left; 1 failed attempt of 3, 2 left
- search: 5 of 5 calls used, 0 left; 0 failed attempts of 3, 3 left; do not call it again
- pay: 3 failed attempts of 3, 0 left; ask the user before you call it again
Progress:
- pay failed 3 times: stop, and ask the user.
- search is used up: go on with what you have.
- Mend what weather was last refused for, and change nothing else: 2 tries are left.""" == write_state(states)
    assert f"{TYPE_RULES}\n\n{write_state(states)}\n\n" in write_guidance(
        {"w": policy(WEATHER)}, 12_000, decide, states
    )


# --- the operator's port ----------------------------------------------------------------------------------------------
ROUTES = """
  - {path: /weather, upstream: tools, tool: weather, caps: {default: 3}, schema: {type: object, required: [lat]}}
  - {path: /search, upstream: tools, tool: search, schema: {type: object}}
"""
OK = answer("200 OK", b"{}", JSON_TYPE)


async def asked(proxy: Proxied, query: str = "") -> str:
    seen = await proxy.ask_admin(f"/-/guidance{query}")
    assert (200, "text/plain; charset=utf-8") == (seen.status, seen.header("content-type"))
    return seen.body.decode()


async def test_the_page_lists_all_tools_or_the_requested_ones() -> None:
    async with proxied(ROUTES) as proxy:
        whole, one = await asked(proxy), await asked(proxy, "?tool=search")
        wrong = await proxy.ask_admin("/-/guidance?tool=wether")

    assert ["weather", "search"] == re.findall(r"^## (\w+)$", whole, re.MULTILINE)
    assert ["search"] == re.findall(r"^## (\w+)$", one, re.MULTILINE)
    assert whole.startswith(REACT_HEADER)
    assert (404, "no tool 'wether' is served here  (did you mean 'weather'?)") == (wrong.status, told(wrong)["error"])


async def test_the_page_shows_the_state_of_a_conversation_and_changes_nothing() -> None:
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        for body in (b'{"lat": 1}', b'{"lat": 2}', b"{}"):
            await proxy.post("/weather", body, "X-Conversation-Id: c")
        first, again = [await asked(proxy, "?tool=weather&conversation=c") for _ in range(2)]
        other = await asked(proxy, "?tool=weather&conversation=d")
        elsewhere = await asked(proxy, "?tool=weather&conversation=c&rung=session")
        wrong = await proxy.ask_admin("/-/guidance?conversation=c&rung=colour")

    line = "- weather: 2 of 3 calls used, 1 left; 1 failed attempt of 3, 2 left"
    fresh = "- weather: 0 of 3 calls used, 3 left; 0 failed attempts of 3, 3 left"
    assert first == again
    assert line in first
    assert fresh in other
    assert fresh in elsewhere
    assert 400 == wrong.status


async def test_the_switch_takes_the_state_away_and_leaves_the_header() -> None:
    async with proxied(ROUTES, guidance="{dynamic_state: off}") as proxy:
        text = await asked(proxy, "?conversation=c")

    assert "State of this conversation" not in text
    assert text.startswith(REACT_HEADER)


async def test_the_config_bounds_the_page() -> None:
    async with proxied(ROUTES, guidance="{max_chars: 1000}") as proxy:
        assert len(await asked(proxy)) < 2000


async def test_lists_the_tools_of_an_mcp_server_once_they_are_learned() -> None:
    async with talk() as client:
        before = await asked(client.proxy)
        await client.ask(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "now", "arguments": {}}}
        )
        after = await asked(client.proxy, "?conversation=c")

    assert [] == re.findall(r"^## (\w+)$", before, re.MULTILINE)
    assert ["add", "now"] == re.findall(r"^## (\w+)$", after, re.MULTILINE)
    assert "- add: 0 failed attempts of 3, 3 left" in after


# --- the command line -------------------------------------------------------------------------------------------------
def test_the_verb_prints_what_the_page_gives(capsys: pytest.CaptureFixture[str]) -> None:
    from proxy.__main__ import main

    config = str(ROOT / "config.example.yaml")
    assert 0 == main(["guidance", "--config", config, "--tool", "weather"])
    text = capsys.readouterr().out
    assert text.startswith(REACT_HEADER)
    assert ["weather"] == re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert 2 == main(["guidance", "--config", config, "--tool", "wether"])
    assert "guidance: no route serves a tool 'wether'  (did you mean 'weather'?)" in capsys.readouterr().err


PINNED = """\
version: 1
upstreams: {server: {url: "http://127.0.0.1:9"}}
routes:
  - path: /mcp
    upstream: server
    protocol: mcp
    mcp: {tools: {add: {schema: {type: object, properties: {a: {type: integer}}}}, now: {mode: report}}}
"""


def test_the_verbs_know_the_tools_of_an_mcp_server_whose_schema_the_config_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from proxy.__main__ import main

    (tmp_path / "pinned.yaml").write_text(PINNED)
    (tmp_path / "none.yaml").write_text(PINNED.partition("    mcp:")[0])
    assert 0 == main(["guidance", "--config", str(tmp_path / "pinned.yaml")])
    assert ["add"] == re.findall(r"^## (\w+)$", capsys.readouterr().out, re.MULTILINE)
    assert 0 == main(["export", "--config", str(tmp_path / "pinned.yaml"), "--format", "mcp"])
    assert ["add"] == [one["name"] for one in json.loads(capsys.readouterr().out)]
    for verb, more in (("guidance", []), ("export", ["--format", "mcp"])):
        assert 0 == main([verb, "--config", str(tmp_path / "none.yaml"), *more])
        assert f"{verb}: the config names no tool with a schema" in capsys.readouterr().err


def test_the_length_of_the_guidance_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    from proxy.__main__ import main

    with pytest.raises(SystemExit, match="2"):
        main(["guidance", "--config", "any.yaml", "--max-chars", "-3"])
    assert "'-3' is not a number of characters, such as 12000" in capsys.readouterr().err


def test_the_verb_exports_a_tool_per_line_and_its_losses_next_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    from proxy.__main__ import main

    config = str(ROOT / "config.example.yaml")
    for vendor in ("openai", "anthropic", "gemini", "mcp"):
        assert 0 == main(["export", "--config", config, "--format", vendor])
        printed = capsys.readouterr()
        assert len(json.loads(printed.out)) == len(printed.out.splitlines()) - 2
    assert 0 == main(["export", "--config", config, "--format", "gemini", "--tool", "weather"])
    assert 1 == len(json.loads(capsys.readouterr().out))
    assert 2 == main(["export", "--config", config, "--format", "gemini", "--tool", "wether"])
    assert "export: no route serves a tool 'wether'" in capsys.readouterr().err
