"""The gate by itself: what it lets through, and that the packets in which bytes come make no difference."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.gate import Gate
from proxy.app.heads import CHUNKED, MAX_HEAD, Head, Malformed, judge
from tests.serving.hostile import cases, hosted
from tests.serving.plainhttp import requests

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
CHUNKS = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def passed(*packets: bytes) -> tuple[bytes, str]:
    """Everything that came out, and the refusal that ended it, '' for none."""
    gate, out = Gate(), b""
    for packet in packets:
        gate.add(packet)
        while (piece := gate.take()) is not None:
            if isinstance(piece, Malformed):
                return out, piece.message
            out += piece
    return out, ""


def test_requests_come_out_one_by_one() -> None:
    gate = Gate()
    gate.add(GET + POST + CHUNKS + b"3;x=1\r\nabc\r\n0\r\nT: 1\r\n\r\n" + GET[:9])

    assert [GET, POST, CHUNKS, b"3\r\nabc\r\n0\r\n\r\n", None] == [gate.take() for _ in range(5)]
    assert (9, False) == (gate.held, gate.in_body)


def test_a_body_comes_out_as_it_comes_in() -> None:
    gate = Gate()
    gate.add(POST[:-2])
    assert (POST[:-2], True) == (gate.take(), gate.in_body)
    gate.add(POST[-2:] + GET)
    assert (b"bc", False, GET) == (gate.take(), gate.in_body, gate.take())


def test_extensions_and_trailers_stay_behind() -> None:
    body = b'A;a;b=c;d="e \\" f"\r\n0123456789\r\n00\r\nDigest: x\r\nX-Sum: 1\r\n\r\n'

    assert (CHUNKS + b"a\r\n0123456789\r\n0\r\n\r\n", "") == passed(CHUNKS + body)


@pytest.mark.parametrize(
    "body",
    [
        b"3 \r\nabc\r\n", b"-3\r\nabc\r\n", b"0x3\r\nabc\r\n", b"\r\n", b"3;\r\nabc", b"3\nabc\r\n", b"3\rabc\r\n",
        b"3;a\n=b\r\nabc\r\n", b"3\r\nabcd\r\n", b"3\r\nabc\n", b"100000000\r\n", b"3;a=" + b"b" * 600, b"zz",
        b"0\r\nContent-Length: 3\r\n\r\n", b"0\r\nHost: x\r\n\r\n", b"0\r\n folded\r\n\r\n", b"0\r\nX: \x00\r\n\r\n",
        b"0\r\n" + b"X: y\r\n" * 2000,
    ],
)  # fmt: skip
def test_a_body_in_bad_chunks_ends_there(body: bytes) -> None:
    out, refusal = passed(CHUNKS + body)

    assert refusal.startswith(("The body's chunks", "The body ends in"))
    assert out.startswith(CHUNKS)
    assert b"0\r\n\r\n" not in out


def head(*fields: bytes, line: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"".join(part + b"\r\n" for part in (line, *fields))


HOST = b"Host: h"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (head(HOST), Head(0)),
        (head(HOST, b"content-LENGTH:\t07 "), Head(7)),
        (head(HOST, b"Transfer-Encoding: Chunked"), Head(CHUNKED)),
        (head(line=b"GET / HTTP/1.0"), Head(0)),
        (head(b"Host: [::1]:80", b"X: caf\xc3\xa9"), Head(0)),
        (head(b"Host: h:80", line=b"GET http://H:80/a?b HTTP/1.1"), Head(0)),
        (head(HOST, line=b"OPTIONS * HTTP/1.1"), Head(0)),
        (head(HOST, b"Upgrade: WebSocket", b"Connection: upgrade"), Head(0, upgrade=True)),
        (head(HOST, b"Upgrade: h2c", b"Content-Length: 1"), Head(1)),
    ],
)
def test_a_sound_head_says_what_follows_it(made: bytes, expected: Head) -> None:
    assert expected == judge(made)


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (head(), "exactly one Host"),
        (head(HOST, HOST), "exactly one Host"),
        (head(b"Host: a b"), "no host"),
        (head(b"Host: a@b"), "no host"),
        (head(b"Host: other", line=b"GET http://h/ HTTP/1.1"), "another host"),
        (head(HOST, b"Content-Length: 1", b"Content-Length: 1"), "twice"),
        (head(HOST, b"Content-Length: 1, 1"), "no number"),
        (head(HOST, b"Content-Length: -1"), "no number"),
        (head(HOST, b"Content-Length: 1_0"), "no number"),
        (head(HOST, b"Content-Length:"), "no number"),
        (head(HOST, b"Content-Length: 1", b"Transfer-Encoding: chunked"), "which one"),
        (head(HOST, b"Transfer-Encoding: gzip, chunked"), "single `chunked`"),
        (head(HOST, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), "single `chunked`"),
        (head(HOST, b"Transfer-Encoding: identity"), "single `chunked`"),
        (head(HOST, b"Transfer-Encoding: \x0bchunked"), "control"),
        (head(b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0"), "HTTP/1.0"),
        (head(HOST, b"X : 1"), "before the colon"),
        (head(HOST, b"X: 1", b" 2"), "folded"),
        (head(HOST, b"X: 1\n2"), "bare"),
        (head(HOST, b"X: 1\r2"), "bare"),
        (head(HOST, b"X: 1\x002"), "control"),
        (head(HOST, b"X\xc3\xa9: 1"), "no header"),
        (head(HOST, b"X"), "no header"),
        (head(HOST, line=b"GET  / HTTP/1.1"), "request line"),
        (head(HOST, line=b"GET /#a HTTP/1.1"), "request line"),
        (head(HOST, line=b"GET /\xc3\xa9 HTTP/1.1"), "request line"),
        (head(HOST, line=b"GET / HTTP/1.2"), "Only HTTP/1.1"),
        (head(HOST, line=b"PRI * HTTP/2.0"), "Only HTTP/1.1"),
        (head(HOST, line=b"CONNECT h:443 HTTP/1.1"), "CONNECT"),
        (head(HOST, line=b"GET h:443 HTTP/1.1"), "neither a path"),
        (head(HOST, line=b"GET * HTTP/1.1"), "neither a path"),
        (head(HOST, line=b"GET ftp://h/ HTTP/1.1"), "neither a path"),
        (head(HOST, line=b"GET http://u@h/ HTTP/1.1"), "neither a path"),
        (head(HOST, b"Upgrade: websocket", b"Content-Length: 1"), "WebSocket"),
    ],
)
def test_a_head_with_two_readings_is_refused_and_told_why(made: bytes, word: str) -> None:
    verdict = judge(made)

    assert isinstance(verdict, Malformed)
    assert word in verdict.message


def test_a_broken_line_end_is_refused_at_once_and_not_when_the_head_ends() -> None:
    assert (b"", "A line ends in a bare line feed or carriage return: every line ends in CR LF.") == passed(
        b"GET / HTTP/1.1\nHost: h\n"
    )
    assert (b"", "A control character stands in the head.") == passed(b"\x16\x03\x01")


def test_a_head_without_end_is_too_large_at_some_point() -> None:
    packets = [b"GET / HTTP/1.1\r\nX: ", *[b"y" * 1000] * (MAX_HEAD // 1000 + 1)]

    assert (b"", "The head of the request is too large.") == passed(*packets)


def test_one_empty_line_may_stand_before_a_request_and_no_more() -> None:
    assert (GET, "") == passed(b"\r", b"\n" + GET)
    assert (b"", True) == (passed(b"\r\n\r\n" + GET)[0], "request line" in passed(b"\r\n\r\n" + GET)[1])


SAMPLES = [case.raw for case in (*cases(), *hosted(cases())) if 20 < len(case.raw) < 1000]


@given(st.sampled_from(SAMPLES), st.lists(st.integers(0, 1000), max_size=6))
def test_packets_make_no_difference(raw: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    packets = [raw[start:end] for start, end in pairwise(edges) if end > start]

    assert passed(raw)[1] == passed(*packets)[1]
    assert passed(raw)[0].startswith(passed(*packets)[0]) or passed(*packets)[0].startswith(passed(raw)[0])


ALPHABET = [
    b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.0\r\n", b"Host: h\r\n", b"Content-Length: 3\r\n", b"Content-Length:0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:identity\r\n", b"\r\n", b"\n", b"\r", b"abc", b"3\r\n",
    b"0\r\n", b"0\r\n\r\n", b" ", b"\t", b";x=y", b"X: y\r\n", b"\x00", b":", b"Connection: close\r\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(ALPHABET), min_size=2, max_size=14).map(b"".join))
def test_whatever_comes_out_is_what_the_plain_reading_reads(raw: bytes) -> None:
    out, refusal = passed(raw)
    expected, _ = requests(raw)
    found, left = requests(out)

    def key(request: object) -> tuple[object, ...]:
        return tuple(getattr(request, name) for name in ("method", "target", "body"))

    assert [key(request) for request in found] == [key(request) for request in expected][: len(found)]
    assert refusal or len(found) == len(expected)
    if refusal and left:  # a request broke off in its body: what came out is no whole one
        assert not requests(left)[0]
