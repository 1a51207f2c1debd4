"""Operations of an HTTP API behind the proxy: a right request is forwarded byte for byte, a wrong one never arrives."""

from __future__ import annotations

import json

import pytest

from proxy.core.model.values import JsonValue
from tests.extensions.operations.served import TRIPS, ask, served
from tests.serving.wire import answer, replies, tool

OK = answer("200 OK", b"{}")
FORM = "Content-Type: application/x-www-form-urlencoded"
PARTS = "Content-Type: multipart/form-data; boundary=XX"
UPLOAD = (
    b'--XX\r\nContent-Disposition: form-data; name="title"\r\n\r\nSea\r\n'
    b'--XX\r\nContent-Disposition: form-data; name="photo"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    b"\x89PNG\r\n\x00\xff\r\n--XX--\r\n"
)
RIGHT = [
    ("GET", "/trips/7", b"", ()),
    ("GET", "/trips/7?verbose=true", b"", ("X-Team: red", "Cookie: locale=de; session=1")),
    ("DELETE", "/trips/7", b"", ()),
    ("PATCH", "/trips/7?notify=false", b'{ "title" : "Rome",  "budget": 1.50 }', ()),
    ("PATCH", "/trips/7?notify=false&trace=a%20b", b'{"title":"Rome","trip-id":9}', ()),
    ("PUT", "/trips/7?id=3", b'{"id":"a"}', ()),
    ("GET", "/airports?q=Rom%65&limit=50", b"", ()),
    ("GET", "/airports?q=a+b&kinds=large&kinds=small", b"", ()),
    ("GET", "/airports?near[lat]=1.5&near%5Blon%5D=2&q=xy", b"", ()),
    ("GET", "/airports?q=12&ids=1,2,3&codes=a%7Cb&words=a%20b&filter=%7B%22open%22%3Atrue%7D", b"", ()),
    ("GET", "/files/a%2Eb%3Bc:1/1,2", b"", ()),
    ("POST", "/labels?dry=true", b'[ "a" ]', ()),
    ("POST", "/login", b"user=3&days=30", (FORM,)),
    ("POST", "/photos", UPLOAD, (PARTS,)),
]


@pytest.mark.parametrize(("method", "target", "body", "headers"), RIGHT)
async def test_forwards_a_right_request_byte_for_byte(
    method: str, target: str, body: bytes, headers: tuple[str, ...]
) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, method, target, body, *headers)

    assert 200 == seen.status, seen.body
    assert [(f"{method} {target} HTTP/1.1", body)] == [(each.start, each.body) for each in server.seen]
    for header in headers:
        name, _, value = header.partition(": ")
        assert value == server.seen[0].header(name.lower())


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "sent", "arrives"),
    [
        ("GET", "/trips/7?verbose=True&a=%41", b"", (), "/trips/7?verbose=true&a=%41", b""),
        ("GET", "/trips/%207", b"", (), "/trips/7", b""),
        ("PATCH", "/trips/7?notify=true", b'{"title":"Rome","budget":"1.50"}', (), "/trips/7?notify=true",
         b'{"title":"Rome","budget":1.50}'),
        ("PATCH", "/trips/7?a=%31&notify=TRUE&b=2", b'{ "title": "Rome" }', (), "/trips/7?a=%31&notify=true&b=2",
         b'{ "title": "Rome" }'),
        ("PATCH", "/trips/7?notify=true", b'```json\n{"title": "Rome"}\n```', (), "/trips/7?notify=true",
         b'{"title":"Rome"}'),
        ("GET", "/airports?q=ab&kinds=Large&limit=3", b"", (), "/airports?q=ab&kinds=large&limit=3", b""),
        ("POST", "/login", b"user=%41&days=30.0", (FORM,), "/login", b"user=%41&days=30"),
    ],
)  # fmt: skip
async def test_rewrites_only_the_damaged_parts(
    method: str, target: str, body: bytes, headers: tuple[str, ...], sent: str, arrives: bytes
) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, method, target, body, *headers)

    assert 200 == seen.status, seen.body
    assert [(f"{method} {sent} HTTP/1.1", arrives)] == [(each.start, each.body) for each in server.seen]
    assert seen.header("tool-repairs")


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "told"),
    [
        ("GET", "/trips/abc", b"", (), "/trip-id"),
        ("GET", "/trips/0", b"", (), "/trip-id"),
        ("GET", "/trips/7?verbose=maybe", b"", (), "/verbose"),
        ("GET", "/trips/7?verbose=true&verbose=true", b"", (), "Send it once"),
        ("GET", "/trips/7", b"", ("X-Team: a team of many",), "/X-Team"),
        ("GET", "/trips/7", b"", ("X-Team: a", "X-Team: b"), "cannot be read"),
        ("GET", "/trips/7", b"", ("Cookie: locale=fr",), "/locale"),
        ("GET", "/trips/7", b'{"a": 1}', (), "takes no body"),
        ("PATCH", "/trips/7", b'{"title": "Rome"}', (), "/notify"),
        ("PATCH", "/trips/7?notify=true", b'{"budget": 1}', (), "/title"),
        ("PATCH", "/trips/7?notify=true", b'["title"]', (), "not a JSON object"),
        ("PUT", "/trips/7?id=x", b'{"id":"a"}', (), "/query_id"),
        ("PUT", "/trips/7", b'{"id":"a","trip-id":7}', (), "leave it out of the body"),
        ("GET", "/airports?q=a", b"", (), "/q"),
        ("GET", "/airports?q=ab&limit=99", b"", (), "/limit"),
        ("GET", "/airports?q=ab&Limit=9", b"", (), "Write it as 'limit'"),
        ("GET", "/airports?q=ab&near[lat]=1", b"", (), "/near/lon"),
        ("GET", "/airports?q=%ff", b"", (), "UTF-8"),
        ("GET", "/airports?q=%zz", b"", (), "escaped"),
        ("GET", "/airports?q=ab&ids=1,b", b"", (), "/ids/1"),
        ("GET", "/airports?q=ab&ids=1,,2", b"", (), "/ids/1"),
        ("GET", "/airports?q=ab&ids=1&ids=2", b"", (), "in the style 'form', each name once"),
        ("GET", "/airports?q=ab&kinds=large&kinds=huge", b"", (), "/kinds/1"),
        ("GET", "/airports?q=ab&codes=a%7Cb&codes=c", b"", (), "in the style 'pipeDelimited', each name once"),
        ("GET", "/airports?q=ab&words=a%20b&words=c", b"", (), "in the style 'spaceDelimited', each name once"),
        ("GET", "/airports?q=ab&near[lat]=1&near[lat]=2&near[lon]=2", b"", (), "in the style 'deepObject'"),
        ("GET", "/airports?q=ab&filter=%7Bopen", b"", (), "strict JSON text"),
        ("GET", "/files/a/1,,2", b"", (), "/kinds/1"),
        ("PATCH", "/trips/7?notify=true", b'{"input": {"title":"Rome"}}', (), "move it to '/title'"),
        ("PATCH", "/trips/7?notify=true", b'"{\\"title\\":\\"Rome\\"}"', (), "not a JSON object"),
        ("PATCH", "/trips/7?notify=true", b'{"title":"R\xf6m"}', (), "invalid unicode"),
        (
            "PATCH",
            "/trips/7?notify=true",
            b'{"title":"Rome"}',
            ("Content-Type: application/json; charset=utf-16",),
            "not as 'application/json; charset=utf-16'",
        ),
        ("POST", "/photos", UPLOAD.replace(b"\x00", b"x" * 2_000_000), (PARTS,), "larger than the 1048576 bytes"),
        ("GET", "/files/a/1,b", b"", (), "/kinds/1"),
        ("POST", "/login", b"user=a&days=31", (FORM,), "/days"),
        ("POST", "/login", b"user=a&days=1", (), "application/x-www-form-urlencoded"),
        ("POST", "/login", b"user=a&days=1", (f"{FORM}; charset=latin-1",), "UTF-8"),
        ("POST", "/photos", UPLOAD.replace(b"Sea", b""), (PARTS,), "/title"),
        ("POST", "/photos", UPLOAD.replace(b"photo", b"image"), (PARTS,), "/photo"),
        ("POST", "/photos", UPLOAD[:-4], (PARTS,), "not plain multipart"),
    ],
)
async def test_a_wrong_request_never_arrives(
    method: str, target: str, body: bytes, headers: tuple[str, ...], told: str
) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, method, target, body, *headers)

    assert [] == server.seen
    assert 400 <= seen.status < 500
    assert told in json.loads(seen.body)["content"]


@pytest.mark.parametrize("value", ["..%2Fadmin", "%2e%2e", "a%2Fb", "a%5Cb", "..;", "%00"])
async def test_a_path_parameter_is_never_another_path(value: str) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, "GET", f"/files/{value}/1")

    assert ([], True) == (server.seen, seen.status in (400, 404))


async def test_reports_no_parameter_as_missing_that_was_sent_twice() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, "GET", "/airports?q=ab&q=cd")

    content = json.loads(seen.body)["content"]
    assert [] == server.seen
    assert ("Send it once" in content, "missing" in content) == (True, False), content


async def test_a_parameter_in_another_spelling_is_not_reported_as_missing_too() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, "GET", "/airports?Q=ab")

    said = json.loads(seen.body)["content"]
    assert ([], 1) == (server.seen, said.count("•"))
    assert "Write it as 'q'." in said
    assert "is missing" not in said


async def test_a_query_of_100_kb_is_refused() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url) as port:
        seen = await ask(port, "GET", f"/airports?q={'a' * 100_000}")

    assert ([], True) == (server.seen, 400 <= seen.status < 500)


async def test_accepts_head_if_it_accepts_get() -> None:
    async with tool(replies(answer("204 No Content", b""))) as server, served(TRIPS, server.url) as port:
        await ask(port, "HEAD", "/trips/7")

    assert ["HEAD /trips/7 HTTP/1.1"] == [each.start for each in server.seen]


@pytest.mark.parametrize("required", [False, True])
async def test_an_absent_body_stays_absent_if_it_may_be(required: bool) -> None:
    schema = {"type": "object", "properties": {"quantity": {"type": "integer"}}}
    body = {"required": required, "content": {"application/json": {"schema": schema}}}
    operation = {"operationId": "order", "requestBody": body, "responses": {"200": {"description": "ok"}}}
    description = {
        "openapi": "3.1.0",
        "info": {"title": "O", "version": "1"},
        "paths": {"/orders": {"post": operation}},
    }
    async with tool(replies(OK)) as server, served(description, server.url) as port:
        seen = await ask(port, "POST", "/orders")
        wrong = await ask(port, "POST", "/orders", b'{"quantity": []}')

    assert (200, 400) == (seen.status, wrong.status)
    assert [b"{}" if required else b""] == [each.body for each in server.seen]
    assert required == bool(seen.header("tool-repairs"))


COUNTED = {"type": "object", "additionalProperties": {"type": "integer"}}
NAMED = {"type": "object", "propertyNames": {"maxLength": 2}}
PAIR = {"type": "object", "maxProperties": 1}


@pytest.mark.parametrize("schema", [COUNTED, NAMED, PAIR])
async def test_rejects_a_member_named_like_a_parameter_if_the_schema_validates_unnamed_members(
    schema: JsonValue,
) -> None:
    operation = {
        "operationId": "count",
        "parameters": [{"name": "dry", "in": "query", "schema": {"type": "boolean"}}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "ok"}},
    }
    description = {
        "openapi": "3.1.0",
        "info": {"title": "C", "version": "1"},
        "paths": {"/counts": {"post": operation}},
    }
    async with tool(replies(OK)) as server, served(description, server.url) as port:
        seen = await ask(port, "POST", "/counts?dry=true", b'{"dry": "x", "a": 1}')
        fine = await ask(port, "POST", "/counts?dry=true", b'{"a": 1}')

    assert (400, 200) == (seen.status, fine.status)
    assert [b'{"a": 1}'] == [each.body for each in server.seen]


@pytest.mark.parametrize(
    ("arguments", "status", "arrives"),
    [({"trip-id": 8, "title": "Rome", "notify": True}, 200, ["PATCH /trips/8?notify=true HTTP/1.1"]),
     ({"title": "Rome", "notify": True}, 400, []), ({"trip-id": "..", "title": "Rome", "notify": True}, 400, [])],
)  # fmt: skip
async def test_rejects_arguments_of_a_hook_that_make_no_request(
    arguments: dict[str, JsonValue], status: int, arrives: list[str]
) -> None:
    """Arguments of a hook are in no request yet, unlike those that a client sent."""
    hook = json.dumps([{"use": "tests.hooks.samples:Says", "settings": {"change": arguments}}])
    description = json.loads(json.dumps(TRIPS))
    description["paths"]["/trips/{trip-id}"]["parameters"][0]["schema"] = {}
    async with tool(replies(OK)) as server, served(description, server.url, f"\nhooks: {hook}\n") as port:
        seen = await ask(port, "PATCH", "/trips/7?notify=false", b'{"title": "Rome"}')
    assert (status, arrives) == (seen.status, [each.start for each in server.seen]), seen.body
