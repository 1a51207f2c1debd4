"""Operations called by their names: the arguments as JSON become the request that the service knows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.extensions.operations.served import TRIPS, ask, served
from tests.serving.wire import Seen, answer, replies, tool

OK = answer("200 OK", b"{}")


async def call(port: int, name: str, arguments: Any, target: str = "") -> Seen:
    return await ask(port, "POST", target or f"/tools/{name}", json.dumps(arguments).encode())


@pytest.mark.parametrize(
    ("name", "arguments", "start", "body"),
    [
        ("get_trip", {"trip-id": 7}, "GET /trips/7", b""),
        ("get_trip", {"trip-id": "7", "verbose": "true"}, "GET /trips/7?verbose=true", b""),
        ("delete_trip", {"trip-id": 7}, "DELETE /trips/7", b""),
        ("update_trip", {"trip-id": 7, "notify": False, "title": "Rome", "budget": 1.5, "x": 1},
         "PATCH /trips/7?notify=false", b'{"title":"Rome","budget":1.5,"x":1}'),
        ("replace_trip", {"trip-id": 7, "query_id": 3, "id": "a"}, "PUT /trips/7?id=3", b'{"id":"a"}'),
        ("find_airports", {"q": "a&b=c", "limit": 5}, "GET /airports?q=a%26b%3Dc&limit=5", b""),
        ("find_airports", {"q": "xy", "near": {"lat": 1.5, "lon": -2}, "kinds": ["large", "small"]},
         "GET /airports?q=xy&near[lat]=1.5&near[lon]=-2&kinds=large&kinds=small", b""),
        ("find_airports",
         {"q": "xy", "ids": [1, 2], "codes": ["a", "b"], "words": ["c", "d"], "filter": {"open": True}},
         "GET /airports?q=xy&ids=1,2&codes=a%7Cb&words=c%20d&filter=%7B%22open%22:true%7D", b""),
        ("get_file", {"name": "a b?c", "kinds": [1, 2]}, "GET /files/a%20b%3Fc/1,2", b""),
        ("set_labels", {"body": ["a"]}, "POST /labels", b'["a"]'),
        ("login", {"user": "a&b", "days": 3}, "POST /login", b"user=a%26b&days=3"),
        ("list_notes", {}, "GET /notes", b""),
    ],
)  # fmt: skip
async def test_a_call_by_name_becomes_the_request_of_the_service(
    name: str, arguments: Any, start: str, body: bytes
) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await call(port, name, arguments)

    assert 200 == seen.status, seen.body
    assert [(f"{start} HTTP/1.1", body)] == [(each.start, each.body) for each in server.seen]
    assert (server.seen[0].header("content-type") is not None) == bool(body)


async def test_headers_and_cookies_are_written_too() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        await call(port, "get_trip", {"trip-id": 7, "X-Team": "red", "locale": "de"})

    assert ("red", "locale=de") == (server.seen[0].header("x-team"), server.seen[0].header("cookie"))


async def test_a_file_is_sent_as_a_part() -> None:
    photo = base64.b64encode(b"\x89PNG\r\n").decode()
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await call(port, "add_photo", {"title": "Sea", "photo": photo})
        wrong = await call(port, "add_photo", {"title": "Sea", "photo": "no base64!"})

    assert ([200, 400], 1) == ([seen.status, wrong.status], len(server.seen))
    boundary = (server.seen[0].header("content-type") or "").partition("boundary=")[2]
    assert [
        "--" + boundary, 'content-disposition: form-data; name="title"', "", "Sea",
        "--" + boundary, 'content-disposition: form-data; name="photo"; filename="photo"',
        "content-type: application/octet-stream", "", "\x89PNG", "", "--" + boundary + "--", "",
    ] == server.seen[0].body.decode("latin-1").split("\r\n")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("get_trip", {}, "/trip-id"),
        ("get_trip", {"trip-id": "abc"}, "/trip-id"),
        ("get_trip", {"trip-id": 7, "day": 1}, "/day"),
        ("get_file", {"name": "../admin", "kinds": [1]}, "/name"),
        ("get_file", {"name": "..", "kinds": [1]}, "/name"),
        ("get_file", {"name": "", "kinds": [1]}, "/name"),
        ("get_file", {"name": "a%2Fb", "kinds": [1]}, "/name"),
        ("get_file", {"name": "a", "kinds": []}, "/kinds"),
        ("find_airports", {"q": "xy", "codes": ["a|b"]}, "/codes"),
        ("find_airports", {"q": "xy", "limit": 99}, "/limit"),
        ("get_trip", {"trip-id": 7, "X-Team": "a\r\nb"}, "/X-Team"),
        ("get_trip", {"trip-id": 7, "X-Team": "\u00e9"}, "/X-Team"),
        ("update_trip", {"trip-id": 7, "notify": True}, "/title"),
        ("login", {"user": "a", "days": 31}, "/days"),
        ("list_notes", {"a": 1}, "/a"),
    ],
)
async def test_a_wrong_call_by_name_never_arrives(name: str, arguments: Any, told: str) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await call(port, name, arguments)

    assert ([], 400) == (server.seen, seen.status)
    assert told in json.loads(seen.body)["content"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"name": "a\tb"}, "Send a value without slashes, backslashes, '%', ';' and control characters"),
        ({"name": "a\\b"}, "Send a value without slashes, backslashes, '%', ';' and control characters"),
        ({"X-Team": "r\u00f6d"}, "Send printable ASCII without blanks at its ends"),
        ({"X-Team": "red "}, "Send printable ASCII without blanks at its ends"),
    ],
)
async def test_the_hint_names_what_its_place_in_a_request_cannot_hold(arguments: Any, hint: str) -> None:
    name, others = ("get_file", {"kinds": [1]}) if "name" in arguments else ("get_trip", {"trip-id": 7})
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await call(port, name, arguments | others)

    assert ([], 400) == (server.seen, seen.status)
    assert hint in json.loads(seen.body)["content"]


async def test_a_query_next_to_the_arguments_is_refused() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await call(port, "find_airports", {"q": "xy"}, "/tools/find_airports?limit=99")

    assert ([], 400) == (server.seen, seen.status)


async def test_dispatch_serves_the_same_tools() -> None:
    more = "  - {path: /call, upstream: tools, dispatch: {tool: /name, arguments: /arguments}}\n"
    async with tool(replies(OK)) as server, served(TRIPS, server.url, more) as port:
        seen = await call(port, "", {"name": "get_trip", "arguments": {"trip-id": 7}}, "/call")

    assert (200, ["GET /trips/7 HTTP/1.1"]) == (seen.status, [each.start for each in server.seen])


async def test_an_operation_that_is_left_out_says_so_and_how_to_let_it_pass() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        left = await ask(port, "POST", "/notes", b"hi", "Content-Type: text/plain")
        never = await ask(port, "PUT", "/notes", b"{}")
        assert ([], 501, 405) == (server.seen, left.status, never.status)
    assert "its body is text/plain, neither JSON nor a form" in json.loads(left.body)["content"]
    assert "relay: true" in json.loads(left.body)["content"]
    async with tool(replies(OK)) as server, served(TRIPS, server.url, relay=True) as port:
        passed = await ask(port, "POST", "/notes", b"hi", "Content-Type: text/plain")
        assert (200, b"hi") == (passed.status, server.seen[0].body)
