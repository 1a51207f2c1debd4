"""Requests as bytes, and URLs read."""

from __future__ import annotations

import pytest

from proxy.core.model.fields import FieldNames
from proxy.core.model.values import Headers
from proxy.upstream.faults import UNSENDABLE, ExchangeError
from proxy.upstream.http1.dial import Origin, read_origin
from proxy.upstream.http1.messages import CHUNKED, layouts, write_head
from proxy.upstream.http1.stream import encode_chunk


def test_a_request_is_its_line_its_host_its_headers_and_its_length() -> None:
    headers = (("accept", "*/*"), ("x-a", "1"), ("x-a", "2"))

    expected = b"POST /a?b=c HTTP/1.1\r\nhost: t:1\r\naccept: */*\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 7\r\n\r\n"
    assert expected == write_head("POST", "/a?b=c", "t:1", headers, 7)


@pytest.mark.parametrize(
    ("method", "length", "framing"),
    [
        ("POST", 0, b"content-length: 0\r\n"),
        ("PUT", 0, b"content-length: 0\r\n"),
        ("GET", 0, b""),
        ("DELETE", 0, b""),
        ("DELETE", 2, b"content-length: 2\r\n"),
        ("PUT", CHUNKED, b"transfer-encoding: chunked\r\n"),
    ],
)
def test_the_body_is_framed_by_its_length_or_in_chunks(method: str, length: int, framing: bytes) -> None:
    assert f"{method} / HTTP/1.1\r\nhost: t\r\n".encode() + framing + b"\r\n" == write_head(
        method, "/", "t", (), length
    )


def test_headers_cannot_frame_the_body_or_use_the_connection() -> None:
    headers = tuple(
        (name, "chunked")
        for name in (
            "content-length",
            "transfer-encoding",
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "upgrade",
        )
    )

    assert b"POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n" == write_head("POST", "/", "t", headers, 2)


def test_a_host_among_the_headers_is_the_host() -> None:
    assert b"GET / HTTP/1.1\r\nhost: other\r\n\r\n" == write_head("GET", "/", "t", (("host", "other"),), 0)


def test_writes_an_upgrade() -> None:
    expected = b"GET /ws HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert expected == write_head("GET", "/ws", "t", (("upgrade", "websocket"),), 0, "websocket")


def test_names_go_out_as_each_client_wrote_them_and_other_names_in_lower_case() -> None:
    headers, again = (("x-a", "1"), ("x%s", "100%"), ("via", "us")), (("x-a", "2"), ("x%s", "%d"), ("via", "%"))
    one, two = FieldNames(("X-A", "X%S"), is_shared=True), FieldNames(("x-A",), is_shared=True)

    assert [
        b"GET / HTTP/1.1\r\nhost: t\r\nX-A: 1\r\nX%S: 100%\r\nvia: us\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: t\r\nx-A: 1\r\nx%s: 100%\r\nvia: us\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: t\r\nX-A: 2\r\nX%S: %d\r\nvia: %\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: t\r\nx-a: 1\r\nx%s: 100%\r\nvia: us\r\n\r\n",
    ] == [
        write_head("GET", "/", "t", headers, 0, client=one),
        write_head("GET", "/", "t", headers, 0, client=two),
        write_head("GET", "/", "t", again, 0, client=one),
        write_head("GET", "/", "t", headers, 0),
    ]


def test_layouts_of_heads_that_never_come_again_take_no_more_memory() -> None:
    layouts.clear()
    for _ in range(20):
        client = FieldNames(("x",), is_shared=True)
        for number in range(60):  # as many as a client leaves out others of its headers (`Connection`)
            write_head("GET", "/", "t", ((f"x-{number}", "1"),), 0, client=client)
    assert 0 < len(layouts) <= 512

    layouts.clear()
    write_head("GET", "/", "t", (("x" * 5000, "1"),), 0)
    write_head("GET", "/", "t", (("x", "1"),), 0, client=FieldNames(("x",)))
    assert not layouts


def test_bytes_that_were_no_utf8_go_out_unchanged() -> None:
    headers = (("x", b"\xc3\xa9 \xe9".decode("utf-8", "surrogateescape")),)

    assert b"GET / HTTP/1.1\r\nhost: t\r\nx: \xc3\xa9 \xe9\r\n\r\n" == write_head("GET", "/", "t", headers, 0)


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", ()),
        ("GET", "/a\r\nx: y", ()),
        ("GET", "/a\n", ()),
        ("GET", "/\xe9", ()),
        ("GET", "a", ()),
        ("GET", "", ()),
        ("GET", "http://other/", ()),
        ("GET /x HTTP/1.1\r\n", "/", ()),
        ("", "/", ()),
        ("GET", "/", (("x", "a\r\nevil: 1"),)),
        ("GET", "/", (("x", "a\nevil: 1"),)),
        ("GET", "/", (("x", "a\rb"),)),
        ("GET", "/", (("x", "a\0b"),)),
        ("GET", "/", (("x\r\nevil", "1"),)),
        ("GET", "/", (("host", "t\r\nevil: 1"),)),
    ],
)
def test_does_not_send_text_that_would_break_a_line(method: str, target: str, headers: Headers) -> None:
    with pytest.raises(ExchangeError) as broken:
        write_head(method, target, "t", headers, 0)

    assert UNSENDABLE == broken.value.fault


def test_an_upgrade_cannot_break_a_line() -> None:
    with pytest.raises(ExchangeError):
        write_head("GET", "/", "t", (), 0, "websocket\r\nevil: 1")


def test_a_chunk_is_its_size_in_hex_and_its_content() -> None:
    assert b"1f\r\n" + b"x" * 31 + b"\r\n" == encode_chunk(b"x" * 31)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://tools.test", Origin("tools.test", 80, False, "tools.test")),
        ("http://tools.test:8000/v1/", Origin("tools.test", 8000, False, "tools.test:8000", "/v1")),
        ("https://tools.test", Origin("tools.test", 443, True, "tools.test")),
        ("https://tools.test:80", Origin("tools.test", 80, True, "tools.test:80")),
        ("http://127.0.0.1:1", Origin("127.0.0.1", 1, False, "127.0.0.1:1", literal=True)),
        ("http://[::1]:1", Origin("::1", 1, False, "[::1]:1", literal=True)),
        ("http://b\xfccher.test", Origin("xn--bcher-kva.test", 80, False, "xn--bcher-kva.test")),
        ("unix:/run/tool.sock", Origin("localhost", 0, False, "localhost", socket="/run/tool.sock")),
        ("unix:///run/tool.sock", Origin("localhost", 0, False, "localhost", socket="/run/tool.sock")),
        ("http://tools.test?a=1", Origin("tools.test", 80, False, "tools.test", query="a=1")),
        ("http://tools.test/v1?a=1&b", Origin("tools.test", 80, False, "tools.test", "/v1", query="a=1&b")),
        ("http+unix://%2Frun%2Ftool.sock/v1", Origin("localhost", 0, False, "localhost", "/v1", "/run/tool.sock")),
    ],
)
def test_a_url_is_read(url: str, origin: Origin) -> None:
    assert origin == read_origin(url)


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/x", "/x?project=a&read_only"),
        ("/x?", "/x?project=a&read_only"),
        ("/x?page=2&sort=up", "/x?project=a&read_only&page=2&sort=up"),
        ("/x?project=b&page=2", "/x?project=a&read_only&page=2"),
        ("/x?PROJECT=b&proj%65ct=c&read_only=0", "/x?project=a&read_only"),
        ("/x?a=1;project=b&page=2", "/x?project=a&read_only&page=2"),
        ("/x?projects=b&q=a%26project%3Db", "/x?project=a&read_only&projects=b&q=a%26project%3Db"),
    ],
)
def test_the_query_of_a_url_goes_with_every_target_and_wins(target: str, sent: str) -> None:
    assert sent == read_origin("http://tools.test?project=a&read_only").add_query(target)


def test_a_socket_replaces_the_network() -> None:
    assert Origin("tools.test", 80, False, "tools.test", "/v1", "/t.sock") == read_origin(
        "http://tools.test/v1", "/t.sock"
    )


@pytest.mark.parametrize("url", ["ftp://tools.test", "tools.test", "http://", "http://me:secret@tools.test", ""])
def test_another_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match="an upstream's URL is") as wrong:
        read_origin(url)

    assert "secret" not in str(wrong.value)
