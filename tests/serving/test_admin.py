"""The operator's port: probes, what is served, and who may ask."""

from __future__ import annotations

import json

import pytest

from tests.serving.proxied import RELAY, WEATHER, proxied
from tests.serving.wire import exchange


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
async def test_a_serving_proxy_is_alive_ready_and_started_whatever_its_upstream_does(path: str) -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.ask_admin(path)

    assert (200, b'{"status":"ok"}\n', "application/json") == (seen.status, seen.body, seen.header("content-type"))


async def test_the_routes_are_listed_with_their_tools() -> None:
    async with proxied(WEATHER + RELAY) as proxy:
        shown = json.loads((await proxy.ask_admin("/-/routes")).body)["routes"]

    assert ["/weather", "/relay"] == [route["path"] for route in shown]
    assert ("call", ["POST"], "plain", "tools") == tuple(
        shown[0][key] for key in ("kind", "methods", "protocol", "upstream")
    )
    assert "enforce" == shown[0]["tools"]["weather"]["mode"]


async def test_the_config_is_shown_as_written_with_secrets_unresolved(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    secret = tmp_path_factory.mktemp("run") / "token"
    secret.write_text("hunter2-token")
    written = "Bearer ${file:" + str(secret) + "}"
    routes = WEATHER + f"    headers: {{set: {{authorization: '{written}'}}}}\n"
    async with proxied(routes) as proxy:
        seen = await proxy.ask_admin("/-/config")

    assert b"hunter2" not in seen.body
    assert {"authorization": written} == json.loads(seen.body)["config"]["routes"][0]["headers"]["set"]
    assert 64 == len(json.loads(seen.body)["digest"])


async def test_metrics_are_served_as_text() -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.ask_admin("/metrics")

    assert (200, True) == (seen.status, (seen.header("content-type") or "").startswith("text/plain; version="))
    assert b"\ntoolproxy_inflight_requests 0.0\n" in seen.body


async def test_an_unknown_path_is_404_and_says_which_there_are() -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.ask_admin("/metric")

    assert (404, True) == (seen.status, "/metrics" in json.loads(seen.body)["paths"])


async def test_a_path_with_the_address_before_it_needs_the_token_too() -> None:
    admin = "{listen: 127.0.0.1:0, token: a-token-long-enough}"
    async with proxied(WEATHER, admin=admin) as proxy:
        seen = [await proxy.ask_admin(f"http://127.0.0.1{path}") for path in ("/livez?x", "/-/routes")]

    assert [200, 401] == [one.status for one in seen]


async def test_a_client_that_waits_with_its_body_gets_100_continue() -> None:
    head = (
        b"POST /-/conversations/find HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    )
    async with proxied(WEATHER) as proxy:
        seen = await exchange(proxy.admin, head)

    assert "HTTP/1.1 100 Continue" == seen.start


async def test_pages_are_read_only_with_get() -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.ask_admin("/-/config", method="DELETE")

    assert 405 == seen.status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8081", "localhost:1", "[::1]:8081", "[::1]", "10.2.3.4"])
async def test_a_host_that_is_an_address_or_loopback_is_served(host: str) -> None:
    async with proxied(WEATHER) as proxy:
        assert 200 == (await proxy.ask_admin("/livez", host=host)).status


@pytest.mark.parametrize("host", ["evil.test", "localhost.evil.test:8081", "127.0.0.1.evil.test"])
async def test_any_other_host_is_a_page_in_a_browser_and_refused(host: str) -> None:
    async with proxied(WEATHER) as proxy:
        assert 403 == (await proxy.ask_admin("/livez", host=host)).status


async def test_a_request_with_an_origin_is_refused() -> None:
    async with proxied(WEATHER) as proxy:
        assert 403 == (await proxy.ask_admin("/-/config", "Origin: http://127.0.0.1:8081")).status


async def test_the_operators_pages_are_not_on_the_clients_port() -> None:
    async with proxied(WEATHER) as proxy:
        assert [404, 404] == [(await proxy.get(path)).status for path in ("/livez", "/-/config")]
