"""Access over MCP: what a caller may not call is not listed to it; whom to ask for a token (RFC 9728)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from proxy.core.json.contentcoding import list_data
from tests.extensions.access.issuer import AUDIENCE, guarded
from tests.extensions.mcp.conversation import Talk, feedback, refusal, talk, text
from tests.extensions.mcp.server import ADD, NOW, McpServer, as_json, call, result
from tests.serving.wire import Seen, exchange, post

TOKEN = "reader-token-0123456"
BEARER = f"Authorization: Bearer {TOKEN}"
AUTH = f"auth: {{bearer: {{reader: 'sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}'}}}}"
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
DROP = {
    "name": "drop_all", "description": "Drops.",
    "inputSchema": {"type": "object", "properties": {"secret_flag": {"type": "boolean"}}, "required": ["secret_flag"]},
}  # fmt: skip
RULES = "allow: [{when: {token: reader}, tools: [add, 'tool_1*']}]"
MANY = [ADD, DROP, *({"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(30))]


async def ask(client: Talk, message: Any) -> Any:
    """The answer to a message, out of a stream too."""
    body = (await client.send(message, BEARER)).body
    return json.loads(body if body.startswith(b"{") else list(list_data(body))[-1])


async def names(client: Talk, *headers: str) -> list[str]:
    return [tool["name"] for tool in (await client.ask(LIST, BEARER, *headers))["result"]["tools"]]


@pytest.mark.parametrize("mode", ["", ", mode: report"])
@pytest.mark.parametrize("events", [False, True])
async def test_hides_and_rejects_tools_that_a_caller_may_not_call(events: bool, mode: str) -> None:
    async with talk(McpServer([ADD, NOW, DROP], events=events), more=f"{AUTH}, {RULES}{mode}") as client:
        assert b"drop_all" not in (await client.send(LIST, BEARER)).body
        assert '{"a": 1, "b": 2}' == text(await ask(client, call("add", {"a": 1, "b": 2})))
        for arguments in ({"secret_flag": True}, {"secret_flag": "x"}, {}):
            answer = await client.ask(call("drop_all", arguments), BEARER)
            assert (True, "CALL_NOT_ALLOWED") == refusal(answer)
            assert ("secret_flag" in json.dumps(feedback(answer)), feedback(answer)["retryable"]) == (False, False)
        assert [{"a": 1, "b": 2}] == client.received


@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_a_hidden_tool_is_refused_before_any_list_was_asked_for(mode: str) -> None:
    async with talk(McpServer([ADD, DROP]), more=f"{AUTH}, {RULES}{mode}") as client:
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("drop_all", {}), BEARER))
        assert (True, "UNKNOWN_TOOL" if not mode else "CALL_NOT_ALLOWED") == refusal(
            await client.ask(call("nothing_of_the_kind", {}), BEARER)
        )
        assert [] == client.received


async def test_suggests_only_tools_of_the_caller_for_a_misspelt_name() -> None:
    async with talk(McpServer([ADD, DROP]), more=f"{AUTH}, {RULES}") as client:
        answer = await client.ask(call("drop-all", {"secret_flag": True}), BEARER)
        assert (True, "UNKNOWN_TOOL") == refusal(answer)
        assert "drop_all" not in json.dumps(feedback(answer))
        near = await client.ask(call("Add", {"a": 1, "b": 2}), BEARER)
        assert ("UNKNOWN_TOOL", True, []) == (refusal(near)[1], "'add'" in text(near), client.received)


@pytest.mark.parametrize("dispatch", ["", ", auto_expand: dispatch"])
async def test_a_container_and_its_search_show_what_the_caller_may_call(dispatch: str) -> None:
    mcp = f"collapse: {{name: everything{dispatch}}}"
    async with talk(McpServer(MANY), mcp=mcp, more=f"{AUTH}, {RULES.replace('tool_1*', 'tool_*')}") as client:
        listed = (await client.send(LIST, BEARER)).body
        assert (b"everything" in listed, b"tool_1" in listed, b"drop_all" in listed) == (True, True, False)
        answers = [
            await client.ask(call(name, arguments), BEARER)
            for name, arguments in (
                ("everything", {}),
                ("search_tools", {"query": "drop all drops"}),
                ("describe_tool", {"name": "drop_all"}),
                ("everything", {"function": "drop_all", "arguments": {"secret_flag": True}}),
            )
        ]
        assert ["secret_flag" in json.dumps(answer["result"]["content"]) for answer in answers[:3]] == [False] * 3
        assert [] == client.received


async def test_a_servers_own_tool_of_the_searchs_name_is_no_exception() -> None:
    own = {"name": "search_tools", "inputSchema": {"type": "object"}}
    mcp = "collapse: {name: everything}, unknown_schema: forward"
    async with talk(McpServer([ADD, own]), mcp=mcp, more=f"{AUTH}, {RULES}") as client:
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("search_tools", {"query": "x"}), BEARER))
        assert [] == client.received


async def test_a_list_that_a_session_was_shown_does_not_grow_for_another_caller() -> None:
    session = "Mcp-Session-Id: s1"
    async with talk(McpServer(MANY), mcp="collapse: {name: everything}", more=f"{AUTH}, {RULES}") as client:
        await client.ask(call("describe_tool", {"name": "drop_all"}), BEARER, session)
        await client.send(call("everything", {}), BEARER, session)
        assert "drop_all" not in await names(client, session)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","name":"drop_all","arguments":{}}}',
        b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop_all","arguments":{"secret_flag":true}}}]',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop_all","arguments":{"secret_flag":true}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list","params":{"name":"drop_all"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop_all","name":"add","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","Name":"drop_all","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"},"Params":{"name":"drop_all"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["drop_all"]}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
    ],
)
@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_a_call_that_hides_in_a_message_that_is_none_is_not_sent(mode: str, body: bytes) -> None:
    async with talk(McpServer([ADD, DROP]), more=f"{AUTH}, {RULES}{mode}") as client:
        await client.ask(LIST, BEARER)
        before = len(client.upstream.seen)
        seen = await exchange(client.proxy.port, post("/mcp", body, BEARER))
        assert (True, []) == (b"drop" in seen.body or seen.status >= 400 or b"error" in seen.body, client.received)
        assert before == len(client.upstream.seen)


# --- signed tokens ----------------------------------------------------------------------------------------------------
ROUTE = "  - {path: /mcp, upstream: tools, protocol: mcp, jwt: {}, allow: [{when: {scope: calc}, tools: [add]}]}\n"
SHADOWS = "".join(
    f"  - {{path: '{path}', methods: [GET, POST], upstream: tools, passthrough: true}}\n"
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/{a}/{b}", "/{a}/{b}/{c}")
)
WELL_KNOWN = "/.well-known/oauth-protected-resource/mcp"


@pytest.mark.parametrize("others", ["", SHADOWS])
async def test_a_client_without_a_token_reads_whom_to_ask(others: str) -> None:
    async with guarded(ROUTE + others, access=", url: 'https://proxy.example'") as there:
        seen = await there.proxy.post("/mcp", json.dumps(LIST).encode())
        metadata = await there.proxy.get(WELL_KNOWN)
        there_is = f'scope="calc", resource_metadata="https://proxy.example{WELL_KNOWN}"'
        expected = f'Bearer realm="toolcall-proxy", {there_is}'
        assert (401, expected) == (seen.status, seen.header("www-authenticate"))
        assert (200, "no-store", "*") == (
            metadata.status, metadata.header("cache-control"), metadata.header("access-control-allow-origin"),
        )  # fmt: skip
        assert {
            "resource": "https://proxy.example/mcp",
            "authorization_servers": [there.issuer.url],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["calc"],
        } == json.loads(metadata.body)
        assert [] == there.server.seen


async def test_a_call_that_lacks_a_scope_is_challenged_with_403_over_mcp_too() -> None:
    server: Any = McpServer([ADD, DROP])
    async with guarded(ROUTE, access=", url: 'https://proxy.example'", script=server) as there:
        body = json.dumps(call("add", {"a": 1, "b": 2})).encode()
        seen = await there.call(there.issuer.sign(scope="other"), path="/mcp", body=body)
    at = f'resource_metadata="https://proxy.example{WELL_KNOWN}"'
    expected = f'Bearer error="insufficient_scope", scope="calc", {at}'
    assert (403, expected) == (seen.status, seen.header("www-authenticate"))
    assert "error" in json.loads(seen.body)


async def test_keys_that_cannot_be_fetched_are_503_over_mcp_too() -> None:
    async with guarded(ROUTE, access=", url: 'https://proxy.example'") as there:
        there.issuer.status = "500 Internal Server Error"
        seen = await there.call(there.issuer.sign(), path="/mcp", body=json.dumps(call("add", {})).encode())
        assert (503, "10", []) == (seen.status, seen.header("retry-after"), there.server.seen)


async def test_the_scope_of_a_token_decides_what_is_listed() -> None:
    server: Any = McpServer([ADD, DROP])
    async with guarded(ROUTE, access=", url: 'https://proxy.example'", script=server) as there:

        async def names_for(**claims: Any) -> list[str]:
            seen: Seen = await there.call(there.issuer.sign(**claims), path="/mcp", body=json.dumps(LIST).encode())
            return [each["name"] for each in json.loads(seen.body)["result"]["tools"]]

        assert [["add"], [], ["add"]] == [
            await names_for(scope="calc"), await names_for(scope="x"), await names_for(scope="calc", aud=[AUDIENCE]),
        ]  # fmt: skip


async def test_a_batch_shows_no_list() -> None:
    body = json.dumps([LIST, {"jsonrpc": "2.0", "id": 3, "method": "ping"}]).encode()

    class Batched(McpServer):
        """A server of revision 2025-03-26, which answers batches."""

        def _answer(self, message: Any, seen: Seen) -> Any:
            if not isinstance(message, list):
                return super()._answer(message, seen)
            return as_json([result(LIST, {"tools": list(self.tools)}), result(message[1], {})])

    async with talk(Batched([ADD, DROP]), more=f"{AUTH}, {RULES}") as client:
        seen = await exchange(client.proxy.port, post("/mcp", body, BEARER))
        assert b"drop_all" not in seen.body
