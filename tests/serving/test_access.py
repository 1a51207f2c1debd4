"""Access to a route: bearer tokens, pages in a browser, names of the host."""

from __future__ import annotations

import hashlib
import json

import pytest

from proxy.server.http.access import is_served_host
from tests.serving.proxied import WEATHER, code, proxied, told
from tests.serving.wire import JSON_TYPE, answer, exchange, post, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
CALL = b'{"lat": 1}'
CI, AGENT = "ci-token-0123456789", "agent-token-0123456789"


def hashed(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


GUARDED = WEATHER + f"    auth: {{bearer: {{ci: '{hashed(CI)}', agent: '{hashed(AGENT)}'}}}}\n"


# --- bearer tokens ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("token", [CI, AGENT])
async def test_a_known_token_opens_the_route_and_ends_here(token: str) -> None:
    async with tool(replies(OK)) as server, proxied(GUARDED, server.url) as proxy:
        seen = await proxy.post("/weather", CALL, f"Authorization: Bearer {token}")

    assert (200, None) == (seen.status, server.seen[0].header("authorization"))


@pytest.mark.parametrize(
    ("sent", "challenge"),
    [
        ((), 'Bearer realm="toolcall-proxy"'),
        (("Authorization: Bearer wrong",), 'Bearer realm="toolcall-proxy", error="invalid_token"'),
        (("Authorization: Bearer",), 'Bearer realm="toolcall-proxy", error="invalid_request"'),
        ((f"Authorization: Bearer {CI}x",), 'Bearer realm="toolcall-proxy", error="invalid_token"'),
        ((f"Authorization: {CI}",), 'Bearer realm="toolcall-proxy", error="invalid_request"'),
        ((f"Authorization: Basic {CI}",), 'Bearer realm="toolcall-proxy", error="invalid_request"'),
        ((f"Authorization: Bearer {CI}",) * 2, 'Bearer realm="toolcall-proxy", error="invalid_request"'),
        ((f"Authorization: Bearer {hashed(CI)}",), 'Bearer realm="toolcall-proxy", error="invalid_token"'),
    ],
)
async def test_any_other_is_401_before_the_call_is_looked_at(sent: tuple[str, ...], challenge: str) -> None:
    async with tool(replies(OK)) as server, proxied(GUARDED, server.url) as proxy:
        seen = await proxy.post("/weather", b"{not even JSON", *sent)
        in_query = await proxy.post(f"/weather?access_token={CI}", CALL)

    assert ((401, "TOKEN_REQUIRED"), challenge) == (code(seen), seen.header("www-authenticate"))
    assert ("AUTH_ERROR", 401, []) == (told(seen)["error"]["category"], in_query.status, server.seen)


async def test_forwards_a_token_if_the_config_says_so() -> None:
    routes = GUARDED.replace("bearer:", "forward: on, bearer:")
    async with tool(replies(OK)) as server, proxied(routes, server.url) as proxy:
        await proxy.post("/weather", CALL, f"Authorization: Bearer {CI}")

    assert f"Bearer {CI}" == server.seen[0].header("authorization")


async def test_the_upstreams_own_credential_takes_the_place_of_the_token() -> None:
    routes = GUARDED + "    headers: {set: {authorization: Bearer upstream-secret}}\n"
    async with tool(replies(OK)) as server, proxied(routes, server.url) as proxy:
        await proxy.post("/weather", CALL, f"Authorization: Bearer {CI}")

    assert "Bearer upstream-secret" == server.seen[0].header("authorization")


async def test_the_log_names_the_token_and_nothing_shows_it() -> None:
    async with tool(replies(OK)) as server, proxied(GUARDED, server.url) as proxy:
        await proxy.post("/weather", CALL, f"Authorization: Bearer {AGENT}")
        await proxy.post("/weather", CALL, "Authorization: Bearer planted-secret-token")
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
        config = (await proxy.ask_admin("/-/config")).body.decode()
        log = proxy.log.getvalue()

    assert ["agent", None] == [line.get("client.token") for line in proxy.lines()]
    assert 'toolproxy_errors_total{code="TOKEN_REQUIRED",route="/weather",tool="_other"} 1.0' in metrics
    for secret in (AGENT, hashed(AGENT), "planted-secret"):
        assert secret not in metrics + config + log


async def test_a_route_says_for_itself_who_may_call() -> None:
    free = WEATHER.replace("/weather", "/free") + "    auth: off\n"
    own = WEATHER.replace("/weather", "/own") + f"    auth: {{bearer: ['{hashed('own-token-0123456789')}']}}\n"
    defaults = f"{{auth: {{bearer: ['{hashed(CI)}']}}}}"
    async with tool(replies(OK)) as server, proxied(WEATHER + free + own, server.url, defaults=defaults) as proxy:
        said = f"Authorization: Bearer {CI}"
        seen = [
            await proxy.post("/weather", CALL),
            await proxy.post("/weather", CALL, said),
            await proxy.post("/free", CALL),
            await proxy.post("/own", CALL, said),
            await proxy.post("/own", CALL, "Authorization: Bearer own-token-0123456789"),
        ]

    assert [401, 200, 200, 401, 200] == [one.status for one in seen]


async def test_an_upload_without_token_is_refused_before_it_is_sent() -> None:
    head = b"POST /weather HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    async with proxied(GUARDED) as proxy:
        seen = await exchange(proxy.port, head + b"Content-Length: 1000\r\n\r\n")

    assert (401, "close") == (seen.status, seen.header("connection"))


# --- pages in a browser -----------------------------------------------------------------------------------------------
APP = "https://app.test"
OPEN = WEATHER + f"    cors: {{origins: ['{APP}'], headers: [X-Mine], max_age: 1m}}\n"


async def test_no_page_may_call_unless_the_config_says_so() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = [
            await proxy.post("/weather", CALL, f"Origin: {origin}")
            for origin in (APP, "null", "http://tools.test", "http://127.0.0.1:8080", "")
        ]

    assert [[403, "ORIGIN_NOT_ALLOWED"]] * 5 == [list(code(one)) for one in seen]
    assert [] == server.seen
    assert {None} == {one.header("access-control-allow-origin") for one in seen}


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8080", "http://localhost:8080", 200),
        ("[::1]:8080", "https://[::1]:8080", 200),
        ("localhost:8080", "http://localhost:8081", 403),
        ("localhost:8080", "http://evil.test:8080", 403),
        ("rebound.test:8080", "http://rebound.test:8080", 403),
        ("localhost.evil.test", "http://localhost.evil.test", 403),
    ],
)
async def test_accepts_a_page_at_its_own_loopback_address(host: str, origin: str, status: int) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        call = post("/weather", CALL, f"Origin: {origin}").replace(b"Host: tools.test", f"Host: {host}".encode())
        assert status == (await exchange(proxy.port, call)).status


async def test_a_listed_page_may_call_and_read_the_answer_good_or_bad() -> None:
    theirs = answer("200 OK", b"{}", JSON_TYPE, "Access-Control-Allow-Origin: *")
    async with tool(replies(theirs)) as server, proxied(OPEN, server.url) as proxy:
        good = await proxy.post("/weather", CALL, f"Origin: {APP}")
        bad = await proxy.post("/weather", b"{}", f"Origin: {APP}")
        other = await proxy.post("/weather", CALL, "Origin: https://evil.test")
        no_page = await proxy.post("/weather", CALL)

    allowed = [
        [value for name, value in seen.headers if name == "access-control-allow-origin"] for seen in (good, bad, other)
    ]
    assert [[APP], [APP], []] == allowed
    assert [200, 400, 403, 200] == [seen.status for seen in (good, bad, other, no_page)]
    assert ("Origin", True) == (
        good.header("vary"),
        "Tool-Attempt" in (bad.header("access-control-expose-headers") or ""),
    )
    assert None is good.header("access-control-allow-credentials")


def asking(method: str = "POST", origin: str = APP, path: str = "/weather") -> bytes:
    lines = (f"OPTIONS {path} HTTP/1.1", "Host: h", f"Origin: {origin}", f"Access-Control-Request-Method: {method}")
    return "\r\n".join((*lines, "Access-Control-Request-Headers: content-type", "", "")).encode()


async def test_a_preflight_is_answered_here_without_token_and_without_the_upstream() -> None:
    routes = OPEN + f"    auth: {{bearer: ['{hashed(CI)}']}}\n"
    async with tool(replies(OK)) as server, proxied(routes, server.url) as proxy:
        seen = await exchange(proxy.port, asking())
        call = await proxy.post("/weather", CALL, f"Origin: {APP}")

    assert (204, APP, "POST", "60", []) == (
        seen.status,
        *(seen.header(f"access-control-{name}") for name in ("allow-origin", "allow-methods", "max-age")),
        server.seen,
    )
    allowed = (seen.header("access-control-allow-headers") or "").split(", ")
    assert {"Content-Type", "Authorization", "X-Mine", "X-Conversation-Id"} <= set(allowed)
    assert (401, APP) == (call.status, call.header("access-control-allow-origin"))


async def test_a_preflight_of_another_page_method_or_path_gets_no_permission() -> None:
    async with proxied(OPEN) as proxy:
        seen = [
            await exchange(proxy.port, asking(origin="https://evil.test")),
            await exchange(proxy.port, asking("DELETE")),
            await exchange(proxy.port, asking(path="/nowhere")),
        ]

    assert [403, 405, 404] == [one.status for one in seen]
    assert {None} == {one.header("access-control-allow-origin") for one in seen}


async def test_an_upstream_may_see_to_pages_itself() -> None:
    routes = "  - {path: /ui, methods: [GET, OPTIONS], upstream: tools, passthrough: true, cors: upstream}\n"
    theirs = answer("200 OK", b"{}", "Access-Control-Allow-Origin: *")
    async with tool(replies(theirs)) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.get("/ui", f"Origin: {APP}")
        asked = await exchange(proxy.port, asking("GET", path="/ui"))

    assert ("*", "*", APP) == (
        seen.header("access-control-allow-origin"),
        asked.header("access-control-allow-origin"),
        server.seen[0].header("origin"),
    )


# --- names of the host ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("tools.example.com", True), ("TOOLS.example.com:8080", True), ("tools.example.com.", True),
        ("a.internal", True), ("a.b.internal:1", True), ("[::1]:80", True), ("[::1]", True),
        ("internal", False), ("evil.test", False), ("tools.example.com.evil.test", False), ("xinternal", False),
        ("", False), ("[::2]", False),
    ],
)  # fmt: skip
def test_serves_a_host_if_it_or_its_domain_is_listed(host: str, expected: bool) -> None:
    assert expected == is_served_host(host, frozenset({"tools.example.com", "*.internal", "::1"}))
    assert is_served_host(host, frozenset())


async def test_another_host_is_421_and_reaches_nothing() -> None:
    listen = "{host: 127.0.0.1, port: 0, hosts: [tools.test]}"
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listen) as proxy:
        good = await proxy.post("/weather", CALL)
        rebound = await exchange(
            proxy.port,
            b"POST /weather HTTP/1.1\r\nHost: evil.test\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n" + CALL,
        )

    assert (200, (421, "HOST_NOT_SERVED"), 1) == (good.status, code(rebound), len(server.seen))
    assert {"code", "category"} <= json.loads(rebound.body)["error"].keys()
