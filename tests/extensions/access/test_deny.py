"""Rules of `deny`: what they deny stays denied whatever `allow` says, and is not listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.check import summarize
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.access.core.access_rules import Identity, may_fit_caller, may_name_tool
from proxy.extensions.access.core.settings import AccessRule
from tests.extensions.access.issuer import OK, guarded
from tests.extensions.access.test_access_config import HASH, MAIN, write
from tests.extensions.access.test_mcp_access import AUTH as MCP_AUTH
from tests.extensions.access.test_mcp_access import BEARER, DROP, LIST, MANY, ask, names
from tests.extensions.access.test_rules import AUTH, READER, TOOLS, WRITER, call
from tests.extensions.mcp.conversation import feedback, refusal, talk, text
from tests.extensions.mcp.server import ADD, McpServer
from tests.extensions.mcp.server import call as mcp_call
from tests.serving.proxied import code, proxied, told
from tests.serving.wire import replies, tool

MODES = pytest.mark.parametrize("mode", ["", ", mode: report"])


def route(rules: str, mode: str = "") -> str:
    return f"  - {{path: '/files/{{tool}}', upstream: tools, auth: {AUTH}, {rules}{mode}}}"


@MODES
@pytest.mark.parametrize("allow", ["", "allow: [{tools: ['*']}], ", "allow: [{tools: [delete_file, read_file]}], "])
async def test_rejects_a_denied_tool_whatever_is_allowed(mode: str, allow: str) -> None:
    rules = f"{allow}deny: [{{tools: ['delete_*']}}]"
    async with tool(replies(OK)) as server, proxied(route(rules, mode), server.url, tools=TOOLS) as proxy:
        for name in ("delete_file", "DELETE_file", "Delete_File", "%20delete_file", "ｄelete_file"):
            assert 400 <= (await call(proxy, name, {"secret_flag": True})).status < 500
        seen = await call(proxy, "delete_file", {"secret_flag": "x"})
        assert ((403, "CALL_NOT_ALLOWED"), []) == (code(seen), server.seen)
        error = told(seen)["error"]
        assert (False, False) == (error["retryable"], "secret_flag" in json.dumps(told(seen)))
        assert "denies this caller every call of 'delete_file'" in json.dumps(told(seen))
        assert 200 == (await call(proxy, "read_file", {"path": "/a"})).status


@MODES
async def test_rejects_denied_arguments_and_allows_the_others(mode: str) -> None:
    rules = 'deny: [{tools: ["*_file"], arguments: {properties: {path: {pattern: "^/etc/"}}}}]'
    async with tool(replies(OK)) as server, proxied(route(rules, mode), server.url, tools=TOOLS) as proxy:
        for path in ("/etc/passwd", "/data/../etc/passwd", "/data/%2e%2e/etc/x", "//etc/x", "/./etc/x", "\\etc\\x"):
            assert (403, "CALL_NOT_ALLOWED") == code(await call(proxy, "read_file", {"path": path})), path
        for body in (b'{"path": ["/etc/passwd"]}', b'{"Path": "/etc/passwd"}', b"{}", b"[]", b"", b"{not JSON"):
            assert 400 <= (await call(proxy, "read_file", body)).status < 500, body
        assert [] == server.seen
        assert 200 == (await call(proxy, "read_file", {"path": "/data/a"})).status


async def test_denies_only_the_callers_that_a_rule_is_for() -> None:
    rules = "deny: [{when: {token: reader}, tools: [write_file]}]"
    async with tool(replies(OK)) as server, proxied(route(rules), server.url, tools=TOOLS) as proxy:
        statuses = [(await call(proxy, "write_file", {"path": "/a"}, token)).status for token in (READER, WRITER)]
    assert [403, 200] == statuses


async def test_denies_a_caller_whose_claim_cannot_be_evaluated() -> None:
    rules = "jwt: {}, deny: [{when: {claims: {group: [intern]}}, tools: [weather]}]"
    cases: list[tuple[Any, int]] = [
        ("staff", 200), (["staff"], 200), ([], 200), ("intern", 403), (["staff", "intern"], 403),
        (None, 403), ({"intern": True}, 403), (["staff", 7], 403), (True, 403),
    ]  # fmt: skip
    one = f"  - {{path: /weather, upstream: tools, tool: weather, schema: {{type: object}}, {rules}}}"
    async with guarded(one) as there:
        seen = [(value, (await there.call(there.issuer.sign(group=value))).status) for value, _ in cases]
        without = (await there.call(there.issuer.sign())).status
    assert (cases, 403) == (seen, without)


async def test_denies_a_caller_a_relayed_route() -> None:
    one = f"  - {{path: /relay, upstream: tools, passthrough: true, auth: {AUTH}, deny: [{{when: {{token: reader}}}}]}}"
    async with tool(replies(OK)) as server, proxied(one, server.url) as proxy:
        seen = [await proxy.post("/relay", b"x", f"Authorization: Bearer {token}") for token in (READER, WRITER)]
        assert ([403, 200], 1) == ([each.status for each in seen], len(server.seen))
        assert "A rule of this route denies this caller everything." in json.dumps(told(seen[0]))


async def test_a_route_adds_to_the_rules_of_the_defaults_unless_its_deny_is_off() -> None:
    routes = """
  - {path: /a, upstream: tools, tool: a, schema: {type: object}}
  - {path: /b, upstream: tools, tool: b, schema: {type: object}, deny: off}
  - {path: /c, upstream: tools, tool: a, schema: {type: object}, deny: [{tools: [c]}]}
  - {path: /d, upstream: tools, tool: d, schema: {type: object}, deny: [{tools: [d]}]}
  - {path: /e, upstream: tools, tool: e, schema: {type: object}, deny: [{tools: [d]}]}
"""
    deny = "{deny: [{tools: [a]}, {tools: [b]}]}"
    async with tool(replies(OK, OK)) as server, proxied(routes, server.url, defaults=deny) as proxy:
        assert [403, 200, 403, 403, 200] == [(await proxy.post(f"/{path}", b"{}")).status for path in "abcde"]


def test_reports_a_rule_of_the_defaults_that_a_route_cannot_apply(tmp_path: Path) -> None:
    config = "version: 1\nupstreams: {tools: {url: http://h}}\ndefaults: {deny: [{tools: [a]}]}\nroutes:\n"
    for own, wrong in (("deny: [{}]", True), ("deny: off", False)):
        path = tmp_path / "config.yaml"
        path.write_text(f"{config}  - {{path: /r, upstream: tools, passthrough: true, {own}}}\n")
        found: list[str] = []
        try:
            load(path, {})
        except ConfigError as error:
            found = [mistake.text for mistake in error.mistakes]
        hint = "defaults  `tools` means nothing on route '/r': no call is read there  (write `deny: off` on the route)"
        assert [hint] * wrong == found


def test_notes_a_rule_without_a_condition(tmp_path: Path) -> None:
    notes = load(write(tmp_path, MAIN, "jwt: {}, deny: [{tools: [b]}, {name: all}]"), {}).config.notes
    assert "route '/a': rule 2 of `deny` has no condition: it denies every call" in notes


# --- MCP --------------------------------------------------------------------------------------------------------------
DENY = f"{MCP_AUTH}, deny: [{{tools: ['drop_*']}}]"


@MODES
@pytest.mark.parametrize("events", [False, True])
async def test_a_denied_tool_is_neither_listed_nor_called(events: bool, mode: str) -> None:
    async with talk(McpServer([ADD, DROP], events=events), more=f"{DENY}{mode}") as client:
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(mcp_call("drop_all", {}), BEARER))
        assert b"drop_all" not in (await client.send(LIST, BEARER)).body
        for name in ("drop_all", "Drop_All", "DROP_ALL", " drop_all", "functions.drop_all", "<|x|>drop_all:3"):
            answer = await client.ask(mcp_call(name, {"secret_flag": True}), BEARER)
            assert True is refusal(answer)[0], name
            assert "secret_flag" not in json.dumps(feedback(answer))
        assert '{"a": 1, "b": 2}' == text(await ask(client, mcp_call("add", {"a": 1, "b": 2})))
        assert [{"a": 1, "b": 2}] == client.received


async def test_rejects_a_respelled_denied_tool_while_unknown_tools_are_forwarded() -> None:
    async with talk(McpServer([ADD, DROP]), "unknown_schema: forward", f"{DENY}, mode: report") as client:
        for name in ("Drop_All", "drop_ALL", "ｄrop_all", " drop_all ", "drop_none", "'tools.DROP_all'"):
            assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(mcp_call(name, {}), BEARER)), name
        assert [] == client.server.calls


@pytest.mark.parametrize("dispatch", ["", ", auto_expand: dispatch"])
async def test_a_container_and_its_search_show_no_denied_tool(dispatch: str) -> None:
    async with talk(McpServer(MANY), f"collapse: {{name: everything{dispatch}}}", DENY) as client:
        shown = [
            await client.ask(message, BEARER)
            for message in (
                LIST,
                mcp_call("everything", {}),
                mcp_call("search_tools", {"query": "drop all drops"}),
                mcp_call("describe_tool", {"name": "drop_all"}),
                mcp_call("everything", {"function": "drop_all", "arguments": {"secret_flag": True}}),
            )
        ]
        assert [False] * 4 == ["secret_flag" in json.dumps(each["result"]) for each in shown[:4]]
        assert [] == client.received


async def test_callers_with_other_denied_tools_see_other_lists() -> None:
    rules = f"{MCP_AUTH}, deny: [{{when: {{token: reader}}, tools: [drop_all]}}]".replace(
        "bearer: {", f"bearer: {{other: 'sha256:{HASH}', "
    )
    async with talk(McpServer([ADD, DROP]), more=rules) as client:
        others = await client.ask(LIST, "Authorization: Bearer x")
        assert ["add", "drop_all"] == [each["name"] for each in others["result"]["tools"]]
        assert ["add"] == await names(client)


async def test_a_denied_hint_hides_the_tools_that_have_it_or_say_nothing() -> None:
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, **({"annotations": hints} if hints is not None else {})}
        for name, hints in (("read", {"readOnlyHint": True, "destructiveHint": False}), ("wipe", {}), ("silent", None))
    ]
    rules = f"{MCP_AUTH}, deny: [{{annotations: {{destructiveHint: true}}}}]"
    async with talk(McpServer(tools), "trust_annotations: on", rules) as client:
        assert ["read"] == await names(client)
        for name in ("wipe", "silent"):
            assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(mcp_call(name, {}), BEARER))
        assert "{}" == text(await client.ask(mcp_call("read", {}), BEARER))


# --- what cannot be judged --------------------------------------------------------------------------------------------
def test_a_condition_that_cannot_be_evaluated_counts_as_met() -> None:
    caller = Identity(issuer="main", claims={"a": "x", "n": 1})
    fits = {
        True: [AccessRule("r"), AccessRule("r", claims={"a": ("x",)}), AccessRule("r", claims={"b": ("x",)}),
               AccessRule("r", claims={"n": ("1",)}), AccessRule("r", claims={"n": (True,)})],
        False: [AccessRule("r", claims={"a": ("y",)}), AccessRule("r", tokens=("ci",)), AccessRule("r", scopes=("s",)),
                AccessRule("r", claims={"b": ("x",)}, issuers=("other",)), AccessRule("r", claims={"n": (2,)})],
    }  # fmt: skip
    for expected, rules in fits.items():
        assert [expected] * len(rules) == [may_fit_caller(rule, caller) for rule in rules]
    for hints in (None, {}, {"readOnlyHint": False}, {"destructiveHint": True, "readOnlyHint": True}):
        assert may_name_tool(AccessRule("r", hints={"readOnlyHint": False}), "a", hints)
    assert not may_name_tool(AccessRule("r", hints={"readOnlyHint": False}), "a", {"readOnlyHint": True})
    assert not may_name_tool(AccessRule("r", ("b*",)), "a", {})


# --- the config -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("deny: [{when: {scope: x}}]", "`scope` means nothing on route '/a', which takes no signed tokens"),
        ("deny: [{when: {claims: {a: b}}}]", "`claims` means nothing on route '/a'"),
        ("jwt: {}, deny: [{when: {token: ci, claims: {a: b}}}]", "the rule contradicts itself"),
        ("deny: [{when: {token: ci}}]", "route '/a' knows no token 'ci'  (add it to `auth.bearer`)"),
        ("deny: [{arguments: {properties: {a: {type: strng}}}}]", "no usable schema"),
        ("deny: [{arguments: {properties: {a: {patern: x}}}}]", "unknown keyword 'patern'"),
        ("deny: [{arguments: {anyOf: [{required: [a]}]}}]", "get past `anyOf` in `deny`  (write one rule for each"),
        ("deny: [{arguments: {properties: {a: {if: {const: 1}}}}}]", "get past `if` in `deny`"),
        ("deny: [{arguments: {properties: {a: {$ref: '#'}}}}]", "get past `$ref` in `deny`"),
        (
            "deny: [{arguments: {properties: {a: {items: {const: 1}}}}}]",
            "one more item or key gets a call past `items`",
        ),
        ("deny: [{arguments: {additionalProperties: false}}]", "gets a call past `additionalProperties` in `deny`"),
        ("deny: [{arguments: {not: {not: {maxProperties: 1}}}}]", "gets a call past `maxProperties` in `deny`"),
        ("deny: [{annotations: {readOnlyHint: false}}]", "`annotations` are unknown on route '/a'"),
        ("jwt: {}, deny: [{equals: {a: sub}}]", "`equals` means nothing in `deny`  (write a rule of `allow` with it"),
        ("deny: []", "deny"),
        ("deny: [{when: {}}]", "when"),
        ("deny: [{allow: x}]", "unknown key 'allow'"),
        ("deny: all", "off, or a list of rules"),
    ],
)
def test_reports_a_mistake_with_its_line_and_a_remedy(tmp_path: Path, rules: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, MAIN, rules), {})
    lines = list(map(str, raised.value.mistakes))
    assert all(line.startswith(f"{tmp_path}/config.yaml:5:") for line in lines), lines
    assert any(message in line for line in lines), lines


def test_check_shows_what_is_denied_and_notes_a_tool_that_is_not_there(tmp_path: Path) -> None:
    rules = (
        "jwt: {}, deny: [{when: {claims: {group: x}}, tools: ['dele*']}, "
        "{name: etc, arguments: {properties: {p: {}}}}, {tools: [aa]}]"
    )
    lines = summarize(load(write(tmp_path, MAIN, rules), {}), "config.yaml")
    at = lines.index("who may call what:")
    assert [
        "  /a     deny-1  claim group=x   NOT dele*       any arguments",
        "  /a     etc     signed by main  NOT every tool  arguments that fit: p",
        "  /a     deny-3  signed by main  NOT aa          any arguments",
        "  /a     -       signed by main  every tool      any arguments",
    ] == lines[at + 2 : at + 6]
    assert "note: route '/a': a rule of `deny` names the tool 'aa', which the route does not have" in lines
