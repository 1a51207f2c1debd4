"""Arguments beside the body, over the wire: path, query, and other spellings of a judged path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli.check import summarize
from proxy.config.load import load
from tests.serving.proxied import WEATHER, code, proxied, told
from tests.serving.wire import answer, exchange, post, replies, tool

OK = answer("200 OK", b"{}")
BODY = b'{"lat": 1}'
ORDERS = """
  - path: /orders/{id}
    upstream: tools
    tool: update_order
    schema: {type: object, properties: {lat: {type: number}}}
    parameters:
      - {name: id, in: path, schema: {type: integer, minimum: 1}}
      - {name: limit, in: query, schema: {type: integer, maximum: 10}}
"""
ANY = """
  - {path: "/{any}", upstream: tools, passthrough: true}
"""


@pytest.mark.parametrize("target", ["/orders/7", "/orders/7?limit=10", "/orders/7?trace=1"])
async def test_forwards_a_call_that_its_schemas_accept_unchanged(target: str) -> None:
    async with tool(replies(OK)) as server, proxied(ORDERS, server.url) as proxy:
        seen = await exchange(proxy.port, post(target, BODY))

    assert (200, f"POST {target} HTTP/1.1", BODY) == (seen.status, server.seen[0].start, server.seen[0].body)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/orders/abc", "Path parameter 'id': Type mismatch: expected integer, got string"),
        ("/orders/-1", "Path parameter 'id': Value out of range: must be at least 1"),
        ("/orders/7?limit=999999", "Query parameter 'limit': Value out of range: must be at most 10"),
    ],
)
async def test_a_parameter_that_the_schema_refuses_never_reaches_the_tool(target: str, message: str) -> None:
    async with tool(replies(OK)) as server, proxied(ORDERS, server.url) as proxy:
        seen = await exchange(proxy.port, post(target, BODY))

    assert (400, "INVALID_ARGUMENTS") == code(seen)
    assert message in told(seen)["content"]
    assert [] == server.seen


async def test_the_same_body_at_a_right_path_is_another_call() -> None:
    conversation = "X-Conversation-Id: c1"
    async with tool(replies(OK)) as server, proxied(ORDERS, server.url) as proxy:
        wrong = [await exchange(proxy.port, post("/orders/abc", BODY, conversation)) for _ in range(2)]
        right = await exchange(proxy.port, post("/orders/7", BODY, conversation))

    assert ([400, 400], 200, 1) == ([seen.status for seen in wrong], right.status, len(server.seen))


async def test_a_route_may_refuse_every_query() -> None:
    routes = WEATHER + "    query: refuse\n"
    async with tool(replies(OK)) as server, proxied(routes, server.url) as proxy:
        refused = await exchange(proxy.port, post("/weather?lat=9", BODY))
        taken = await exchange(proxy.port, post("/weather", BODY))

    assert ((400, "BAD_REQUEST"), 200, 1) == (code(refused), taken.status, len(server.seen))


async def test_an_openapi_operation_brings_its_parameters(tmp_path: Path) -> None:
    operation = {
        "operationId": "update_order",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"$ref": "#/components/schemas/Id"}},
            {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 10}},
        ],
        "security": [{"key": []}],
        "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
    }
    document = {
        "openapi": "3.0.3",
        "paths": {"/orders/{id}": {"post": operation}},
        "components": {
            "schemas": {"Id": {"type": "integer", "minimum": 1}},
            "securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}},
        },
    }
    described = tmp_path / "orders.json"
    described.write_text(json.dumps(document))
    route = f"""
  - path: /orders/{{id}}
    upstream: tools
    tool: update_order
    query: strict
    schema: {{openapi: {json.dumps(str(described))}, operation: update_order}}
"""
    async with tool(replies(OK)) as server, proxied(route, server.url) as proxy:
        targets = ("/orders/7?limit=3&api_key=x", "/orders/abc", "/orders/7?limit=11", "/orders/7?more=1")
        seen = [await exchange(proxy.port, post(target, BODY)) for target in targets]

    assert ([200, 400, 400, 400], 1) == ([each.status for each in seen], len(server.seen))


# --- spellings --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["/Weather", "/weather;v=1", "/weather.", "/weather%20", "/weather%e2%80%8b", "/weather%3b",
             "/weather.json", "/weather::$DATA", "/weather%3fx"]
)  # fmt: skip
async def test_another_spelling_of_a_validated_path_is_no_passthrough(path: str) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER + ANY, server.url) as proxy:
        seen = await exchange(proxy.port, post(path, b'{"lat": "no"}'))

    assert (400, "BAD_REQUEST") == code(seen)
    assert "'/weather'" in told(seen)["error"]["message"]
    assert [] == server.seen


async def test_lookalikes_pass_if_the_config_says_so() -> None:
    passing = ANY.replace("passthrough: true", "passthrough: true, lookalikes: pass")
    async with tool(replies(OK)) as server, proxied(WEATHER + passing, server.url) as proxy:
        seen = await exchange(proxy.port, post("/Weather", BODY))

    assert (200, "POST /Weather HTTP/1.1") == (seen.status, server.seen[0].start)


@pytest.mark.parametrize("value", ["..;", "..%3b", ".;", "a;..;", "%252e%252e", "a%252fb", "..%3Ba"])
async def test_a_parameter_of_a_validated_route_never_leaves_its_segment(value: str) -> None:
    route = WEATHER.replace("path: /weather", "path: /tenants/{id}/weather")
    async with tool(replies(OK)) as server, proxied(route, server.url) as proxy:
        seen = await exchange(proxy.port, post(f"/tenants/{value}/weather", BODY))

    assert ((400, "BAD_REQUEST"), []) == (code(seen), server.seen)


async def test_escapes_a_semicolon_on_validating_routes() -> None:
    route = WEATHER.replace("path: /weather", "path: /tenants/{id}/weather")
    async with tool(replies(OK)) as server, proxied(route, server.url) as proxy:
        await exchange(proxy.port, post("/tenants/a;b/weather", BODY))

    assert "POST /tenants/a%3Bb/weather HTTP/1.1" == server.seen[0].start


def test_check_names_unvalidated_queries_and_templates_that_reach_validated_paths(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nupstreams: {{tools: {{url: 'http://127.0.0.1:9'}}}}\nroutes:\n{WEATHER}{ORDERS}{ANY}"
    )
    notes = [line for line in summarize(load(config, {}), "config.yaml") if line.startswith("note: ")]
    assert [
        "note: route '/{any}': other spellings of '/weather' (case, ';', '%20', '.json', a dot or a slash at the end) "
        "fall into it, and some servers read them as that path: such requests are refused",
        "note: query strings reach the tool unjudged on '/weather' (`query: refuse` takes none)",
    ] == notes


async def test_the_operators_page_names_what_is_unvalidated() -> None:
    async with proxied(WEATHER + ORDERS) as proxy:
        shown = told(await proxy.ask_admin("/-/routes"))["routes"]

    assert [("forward", True), ("judge", False)] == [(route["query"], route["unjudged_query"]) for route in shown]


@pytest.mark.parametrize(
    ("sent", "came"),
    [(("Content-Type: text/plain",), "application/json"), (("Content-Encoding: gzip",), "application/json")],
)
async def test_the_head_tells_the_truth_about_a_body_that_was_replaced(sent: tuple[str, ...], came: str) -> None:
    route = WEATHER.replace("required: [lat]", "additionalProperties: false")
    async with tool(replies(OK)) as server, proxied(route, server.url) as proxy:
        await proxy.post("/weather", b"", *sent, content_type=None)

    seen = server.seen[0]
    assert (b"{}", came, None) == (seen.body, seen.header("content-type"), seen.header("content-encoding"))
