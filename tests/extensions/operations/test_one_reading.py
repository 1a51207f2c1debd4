"""Text that two services could read in two ways is never forwarded, and never written; text that all read alike
arrives."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.core.channels import find_unwritable
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.http.parameters import In, Parameter
from proxy.extensions.operations.core.http_operation import HttpArgument, HttpOperation
from proxy.server import start_serving
from tests.extensions.operations.served import ask, served
from tests.serving.wire import Tool, answer, replies, tool

OK = answer("200 OK", b"{}")
FORM = "Content-Type: application/x-www-form-urlencoded"
SID: JsonValue = {"name": "sid", "in": "cookie", "schema": {"type": "string", "pattern": "^[^/]*$"}}
COUNT: JsonValue = {"name": "n", "in": "cookie", "schema": {"type": "integer", "maximum": 10}}
LIMIT: JsonValue = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 10}}
TENANT: JsonValue = {"name": "tenant", "in": "query", "schema": {"enum": ["mine"]}}
TEXTS: JsonValue = {"type": "object", "additionalProperties": {"type": "string"}}
FIELDS: JsonValue = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "limit": {"type": "integer", "maximum": 10},
        "name": {"type": "string", "pattern": "^[a-z/]*$"},
        "doc": {"type": "string", "format": "binary"},
    },
}


OPEN: JsonValue = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "maximum": 10}},
    "additionalProperties": {"type": "integer", "maximum": 10},
}


def operation(name: str, *parameters: JsonValue, body: JsonValue = None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": name,
        "parameters": list(parameters),
        "responses": {"200": {"description": "ok"}},
    }
    return {**made, "requestBody": {"content": body}} if body else made


SERVICE: JsonValue = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/c": {"get": operation("cookies", SID, COUNT)},
        "/h": {
            "get": operation("headers", {"name": "X-Lim", "in": "header", "schema": {"type": "integer", "maximum": 10}})
        },
        "/s": {"get": operation("search", LIMIT, TENANT, {"name": "labels", "in": "query", "schema": TEXTS})},
        "/d": {"get": operation("deep", {"name": "deep", "in": "query", "style": "deepObject", "schema": TEXTS})},
        "/k": {"get": operation("spread", SID, {"name": "cf", "in": "cookie", "schema": TEXTS})},
        "/form": {"post": operation("form", body={"application/x-www-form-urlencoded": {"schema": FIELDS}})},
        "/parts": {"post": operation("parts", body={"multipart/form-data": {"schema": FIELDS}})},
        "/open": {"post": operation("open", body={"application/x-www-form-urlencoded": {"schema": OPEN}})},
        "/openparts": {"post": operation("openparts", body={"multipart/form-data": {"schema": OPEN}})},
    },
}


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[tuple[Tool, int]]:
    async with tool(replies(OK)) as server, served(SERVICE, server.url) as port:
        yield server, port


async def get(target: str, *headers: str) -> tuple[int, int]:
    """The status of a request, and how many reached the service."""
    async with service() as (server, port):
        seen = await ask(port, "GET", target, b"", *headers)
        return seen.status, len(server.seen)


# --- cookies ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "cookie",
    [
        "sid =b/c",
        "sid\t=b/c",
        "n =999",
        "sid=a; sid =b/c",
        'sid="a\\057b"',
        'n="\\071\\071\\071"',
        "SID=b/c",
        '"sid"=b/c',
        "sid[]=b/c",
        "x=1, sid=b/c",
        "x=1 sid=b/c",
        'x="a; sid=b"; y="c"',
        "sid=b%2Fc",
        "sid=a b",
        'sid=a"b',
        "sid",
        'n "a"',
        "x=1; sid 5, y=2",
        "sid=b/c",
        "sid=a; sid=b",
        "%73id=b/c",
        "sid= a",
        "sid=a ; x=1",
        'n="5"',
        "'sid'=b/c",
    ],
)
async def test_a_cookie_that_some_service_reads_otherwise_is_refused(cookie: str) -> None:
    assert (400, 0) == await get("/c", f"Cookie: {cookie}")


@pytest.mark.parametrize(
    "cookie",
    [
        "sid=a",
        "n=5; sid=a",
        'sid="a"',
        "sid=a%20b",
        'other =b/c; prefs={"a": 1, "b": 2}; sid=a',
        "x=1, y=2; sid=a",
        "seen=2026 01; sid=a",
        'x="a, b"; n=5',
    ],
)
async def test_forwards_a_cookie_that_all_read_alike_with_any_other(cookie: str) -> None:
    async with service() as (server, port):
        assert 200 == (await ask(port, "GET", "/c", b"", f"Cookie: {cookie}")).status
    assert [cookie] == [each.header("cookie") for each in server.seen]


# --- headers, queries and forms ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("header", ["X_Lim: 999", "x_lim: 5", "X-Lim: 999", "X.Lim: 999", "X^Lim: 999"])
async def test_a_header_that_gateways_read_as_a_declared_one_is_refused(header: str) -> None:
    assert (400, 0) == await get("/h", header)
    assert (400, 0) == await get("/h", "X-Lim: 5", header)


@pytest.mark.parametrize(
    "query",
    [
        "q=x;limit=999",
        "limit=5&amp;limit=999",
        "q=x;%6Cimit=999",
        "Limit=5",
        "limit[]=5",
        "limit=5;limit=5",
        "tenant=mine;x",
        "!limit=999",
        "_limit=999",
        "limit%00x=999",
        "%0Alimit=999",
        "limit%0D%0A=999",
        "%C2%A0limit=999",
        "%27limit%27=999",
        "&".join(f"q{number}=1" for number in range(100)) + "&Limit=999",
    ],
)
async def test_a_parameter_that_some_service_finds_elsewhere_is_refused(query: str) -> None:
    assert (400, 0) == await get(f"/s?{query}")


@pytest.mark.parametrize("query", ["q=a;b", "q=a;b=c&limit=5", "limit=5&amp;x=1", "q=a%3Blimit=999"])
async def test_forwards_a_name_that_folds_to_no_declared_one(query: str) -> None:
    assert (200, 1) == await get(f"/s?{query}")


@pytest.mark.parametrize("target", ["/form?limit=99", "/form?LIMIT=99"])
async def test_a_query_next_to_a_form_has_none_of_its_names(target: str) -> None:
    async with service() as (server, port):
        assert 400 == (await ask(port, "POST", target, b"limit=5", FORM)).status
        assert 200 == (await ask(port, "POST", "/form?trace=99", b"limit=5", FORM)).status
    assert ["POST /form?trace=99 HTTP/1.1"] == [each.start for each in server.seen]


@pytest.mark.parametrize("body", [b"limit=5;limit=99", b"name=a;limit=99", b"admin=1&limit=5", b"limit=5&limit[]=9"])
async def test_a_form_of_two_meanings_and_one_with_undeclared_fields_are_refused(body: bytes) -> None:
    async with service() as (server, port):
        assert 400 == (await ask(port, "POST", "/form", body, FORM)).status
    assert [] == server.seen


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"limit=5&x=7", 200), (b"x=7", 200), (b"limit=5&x=abc", 400), (b"x=99", 400), (b"x=7&x=8", 400), (b"x[]=7", 200)],
)
async def test_validates_an_undeclared_field_by_additional_properties(body: bytes, status: int) -> None:
    async with service() as (server, port):
        assert status == (await ask(port, "POST", "/open", body, FORM)).status
        pairs = [pair.partition("=")[::2] for pair in body.decode().split("&")]
        parts = "".join(part(f'name="{name}"', value) for name, value in pairs)
        media_type = "Content-Type: multipart/form-data; boundary=A"
        sent = (parts + "--A--\r\n").encode()
        assert status == (await ask(port, "POST", "/openparts", sent, media_type)).status
    assert [body, sent][: len(server.seen)] == [each.body for each in server.seen]


async def test_an_undeclared_argument_is_written_as_a_field_if_the_schema_takes_it() -> None:
    async with service() as (server, port):
        for arguments in ({"limit": 5, "x": 7}, {"x": "y"}, {"Limit": 7}, {"x": {"limit": 99}}):
            await ask(port, "POST", "/tools/open", json.dumps(arguments).encode())
    assert [b"limit=5&x=7"] == [each.body for each in server.seen]


@pytest.mark.parametrize("body", [b"b&" * 300_000, b"limit=5&" * 20_000, b"limit=5&name=" + b";a" * 20_000])
async def test_a_form_of_very_many_pairs_is_refused_before_any_is_read(body: bytes) -> None:
    async with service() as (server, port):
        seen = await ask(port, "POST", "/form", body, FORM)
    assert (400, []) == (seen.status, server.seen)
    assert "The form has more than 10000 pairs" in seen.body.decode()


async def test_an_open_form_has_a_bound_of_undeclared_fields() -> None:
    async with service() as (server, port):
        sent = "&".join(f"k{number}=1" for number in range(1001)).encode()
        seen = await ask(port, "POST", "/open", sent, FORM)
    assert (400, []) == (seen.status, server.seen)
    assert "The form has more than 1000 undeclared fields" in seen.body.decode()


async def test_a_form_has_no_more_pairs_than_a_body_may_have_values(tmp_path: Path) -> None:
    few = "defaults: {limits: {nodes: 3}}\n"
    for body, status in ((b"text=abc&limit=1&limit=2&limit=3", 400), (b"text=abc&limit=1", 200)):
        assert status == (await send_by_hand(tmp_path, "/note", body, FORM, more=few))[0]


# --- what is written from arguments -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("search", {"tenant": "mine", "limit": 5, "labels": {"tenant": "other"}}, "read as the parameter 'tenant'"),
        ("search", {"labels": {"Limit": "999"}}, "read as the parameter 'limit'"),
        ("search", {"labels": {"limit[]": "999"}}, "read as the parameter 'limit'"),
        ("deep", {"deep": {"a][b": "x"}}, "holds a bracket"),
        ("spread", {"cf": {"sid": "b/c"}}, "read as the parameter 'sid'"),
        ("spread", {"cf": {"a; sid": "b"}}, "cannot be the name of a cookie"),
        ("spread", {"cf": {"x\r\nX-Evil: 1\r\ny": "1"}}, "cannot be the name of a cookie"),
        ("cookies", {"sid": "b%2Fc"}, "'sid' cannot be written into a cookie"),
        ("cookies", {"sid": "b c"}, "Send printable ASCII without blanks, commas, ';', '%', quotes and backslashes."),
    ],
)
async def test_an_argument_that_would_write_another_parameter_is_refused(
    name: str, arguments: Any, reason: str
) -> None:
    async with service() as (server, port):
        seen = await ask(port, "POST", f"/tools/{name}", json.dumps(arguments).encode())
    assert (400, []) == (seen.status, server.seen)
    assert reason in seen.body.decode()


@pytest.mark.parametrize(
    ("place", "value", "advice"),
    [
        ("path", " .", "and nothing that is empty, or only dots and blanks."),
        ("header", [], "or a list of one or more such texts, none of them empty or with a comma."),
        ("header", [""], "or a list of one or more such texts, none of them empty or with a comma."),
    ],
)
def test_a_hint_excludes_the_value_that_it_is_about(place: In, value: JsonValue, advice: str) -> None:
    declared = Parameter("x", place, {}, required=True)
    operation = HttpOperation(RequestTemplate("GET", "/{x}", (declared,)), arguments=(HttpArgument("x", declared),))
    (found,) = find_unwritable(operation, {"x": value})
    assert found.hint.endswith(advice)


async def test_free_members_of_an_object_are_written_as_they_are_named() -> None:
    async with service() as (server, port):
        arguments = {"tenant": "mine", "labels": {"team": "a", "x.y": "b"}}
        assert 200 == (await ask(port, "POST", "/tools/search", json.dumps(arguments).encode())).status
    assert ["GET /s?tenant=mine&team=a&x.y=b HTTP/1.1"] == [each.start for each in server.seen]


async def test_a_call_by_name_sends_only_the_cookies_and_headers_of_its_arguments() -> None:
    async with service() as (server, port):
        await ask(port, "POST", "/tools/cookies", b'{"sid": "a"}', "Cookie: sid=b/c; n=999")
        await ask(port, "POST", "/tools/cookies", b"{}", "Cookie: sid=b/c")
        await ask(port, "POST", "/tools/headers", b'{"X-Lim": 5}', "X_Lim: 999", "X.Lim: 999")
    assert ["sid=a", None, None] == [each.header("cookie") for each in server.seen]
    sent = [server.seen[2].header(name) for name in ("x-lim", "x_lim", "x.lim")]
    assert ["5", None, None] == sent


# --- multipart --------------------------------------------------------------------------------------------------------
def part(disposition: str, content: str, *headers: str) -> str:
    head = "\r\n".join((f"Content-Disposition: form-data; {disposition}", *headers))
    return f"--A\r\n{head}\r\n\r\n{content}\r\n"


LIMIT_5 = part('name="limit"', "5")


async def send_parts(*parts: str, media_type: str = "multipart/form-data; boundary=A") -> tuple[int, int]:
    async with service() as (server, port):
        body = ("".join(parts) + "--A--\r\n").encode()
        seen = await ask(port, "POST", "/parts", body, f"Content-Type: {media_type}")
        assert [body] * len(server.seen) == [each.body for each in server.seen]
        return seen.status, len(server.seen)


@pytest.mark.parametrize(
    "media_type",
    [
        "multipart/form-data; boundary=A; boundary=B",
        "multipart/form-data; boundary=A; boundary*=utf-8''B",
        "multipart/form-data; boundary*0=B; boundary=A",
        "multipart/form-data; boundary = A",
        'multipart/form-data; x="; boundary=B"; boundary=A; "',
        "multipart/form-data",
    ],
)
async def test_a_boundary_of_two_readings_is_refused(media_type: str) -> None:
    assert (400, 0) == await send_parts(LIMIT_5, media_type=media_type)


@pytest.mark.parametrize(
    "parts",
    [
        (LIMIT_5, part('name="limit"; filename=""', "999")),
        (LIMIT_5, part('name="admin"; filename=""', "1")),
        (LIMIT_5, part('name="admin"; filename="f"', "1")),
        (part('name="limit"; filename="f"', "999"),),
        (LIMIT_5, part('name="name"', "+AC4ALgAv-etc", "Content-Type: text/plain; charset=utf-7")),
        (part('name="_charset_"', "utf-7"), LIMIT_5),
        (LIMIT_5, part('name="doc"; filename="f"', 'x\n--A\nContent-Disposition: form-data; name="limit"\n\n999')),
        (LIMIT_5, part('name="doc"', "text")),
        (LIMIT_5, part('name="doc"; filename=""', "text")),
        (LIMIT_5, part('name="admin"', "1")),
        (LIMIT_5, part('name="Limit"', "5")),
        (part('name="limit"', "5", "Content-Type: multipart/mixed; boundary=B"),),
    ],
)
async def test_parts_of_two_readings_and_undeclared_ones_are_refused(parts: tuple[str, ...]) -> None:
    assert (400, 0) == await send_parts(*parts)


@pytest.mark.parametrize(
    "parts",
    [
        (LIMIT_5,),
        (LIMIT_5, part('name="doc"; filename=""', "", "Content-Type: application/octet-stream")),
        (LIMIT_5, part('name="doc"; filename="f.txt"', "any\nthing", "Content-Type: text/plain; charset=latin-1")),
        (part('name="name"', "a/b", 'Content-Type: text/plain; charset="UTF-8"'),),
        (part('name="_charset_"', "UTF-8"),),
    ],
)
async def test_parts_as_browsers_send_them_go_on_byte_for_byte(parts: tuple[str, ...]) -> None:
    expected = (400, 0) if "_charset_" in parts[0] else (200, 1)  # the schema is closed, and nobody has declared it
    assert expected == await send_parts(*parts)


async def test_an_optional_file_may_be_left_out() -> None:
    assert (200, 1) == await send_parts()
    async with service() as (server, port):
        assert 200 == (await ask(port, "POST", "/tools/parts", b'{"limit": 5}')).status
    assert [True] == [b'name="limit"' in each.body for each in server.seen]


# --- hand-written requests --------------------------------------------------------------------------------------------
BY_HAND = """
version: 1
listen: 127.0.0.1:0
admin: off
upstreams: {tools: {url: "URL"}}
tools:
  read:
    schema: {type: object, properties: {limit: {type: integer, maximum: 10}}}
    request: {method: GET, path: /read, parameters: [{name: limit, in: query}]}
  note:
    schema: {type: object, properties: {limit: {type: integer}, text: {type: string, maxLength: 3}}, required: [text]}
    request: {method: POST, path: /note, body: form, parameters: [{name: limit, in: form}]}
  file:
    schema: {type: object, properties: {doc: {type: string}}}
    request: {method: POST, path: /file, body: multipart, parameters: [{name: doc, in: file}]}
routes:
  - {path: /note, methods: [POST], upstream: tools, tool: note}
  - {path: /file, methods: [POST], upstream: tools, tool: file}
  - {path: "/tools/{tool}", upstream: tools}
"""


async def send_by_hand(
    folder: Path, target: str, body: bytes, *headers: str, more: str = ""
) -> tuple[int, list[str], list[bytes]]:
    """The status of a request, and start line and body of what reached the service."""
    async with tool(replies(OK)) as server:
        (folder / "c.yaml").write_text(BY_HAND.replace("URL", server.url) + more)
        serving = await start_serving(load(folder / "c.yaml", {}))
        try:
            seen = await ask(int(serving.url.rsplit(":", 1)[1]), "POST", target, body, *headers)
        finally:
            await serving.stop(grace=0.5)
        return seen.status, [each.start for each in server.seen], [each.body for each in server.seen]


async def test_an_argument_that_has_no_place_in_the_request_is_refused_and_not_left_out(tmp_path: Path) -> None:
    assert (200, ["GET /read?limit=5 HTTP/1.1"], [b""]) == await send_by_hand(tmp_path, "/tools/read", b'{"limit": 5}')
    assert (400, [], []) == await send_by_hand(tmp_path, "/tools/read", b'{"limit": 5, "x": 7}')


async def test_a_property_that_no_parameter_names_is_a_field_of_the_form(tmp_path: Path) -> None:
    post = ["POST /note HTTP/1.1"]
    assert (200, post, [b"limit=5&text=abc"]) == await send_by_hand(tmp_path, "/note", b"limit=5&text=abc", FORM)
    assert (400, [], []) == await send_by_hand(tmp_path, "/note", b"limit=5&text=abcd", FORM)
    assert (400, [], []) == await send_by_hand(tmp_path, "/note", b"limit=5", FORM)
    assert (200, post, [b"limit=5&text=abc"]) == await send_by_hand(
        tmp_path, "/tools/note", b'{"limit": 5, "text": "abc"}'
    )


async def test_a_file_of_ones_own_is_a_single_one(tmp_path: Path) -> None:
    media_type = "Content-Type: multipart/form-data; boundary=A"
    one = part('name="doc"; filename="f"', "abc")
    for parts, status in ((one, 200), (one * 2, 400), ("", 200)):
        assert status == (await send_by_hand(tmp_path, "/file", (parts + "--A--\r\n").encode(), media_type))[0]
