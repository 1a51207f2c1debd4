"""The gate by itself: what it lets through, and that the packets in which bytes come make no difference."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.gate import Gate
from proxy.app.heads import CHUNKED, MAX_HEAD, MAX_HEAD_FIELD, MAX_HEAD_FIELDS, Head, Malformed, judge
from proxy.app.http1.fields import FieldLines
from tests.serving import plainhttp
from tests.serving.hostile import cases, hosted

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
CHUNKS = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Passed:
    """A request that came out; `ended`: with all of its body."""

    head: Head
    body: bytes = b""
    ended: bool = False


def passed(*packets: bytes, lines: FieldLines | None = None) -> tuple[list[Passed], str]:
    """Everything that came out, and the refusal that ended it, '' for none."""
    gate, out = Gate(FieldLines() if lines is None else lines), list[Passed]()
    for packet in packets:
        gate.add(packet)
        while gate.held:
            if not gate.in_body:
                head = gate.head()
                if not isinstance(head, Head):
                    if head is not None:
                        return out, head.message
                    break
                out.append(Passed(head, ended=not gate.in_body))
            elif isinstance(piece := gate.body(), Malformed):
                return out, piece.message
            else:
                out[-1].body += piece
                out[-1].ended = not gate.in_body
                if gate.in_body:
                    break
    return out, ""


def test_requests_come_out_one_by_one() -> None:
    gate = Gate(FieldLines())
    gate.add(GET + POST + CHUNKS + b"3;x=1\r\nabc\r\n0\r\nT: 1\r\n\r\n" + GET[:9])

    def head() -> tuple[str, int]:
        found = gate.head()
        assert isinstance(found, Head)
        return found.method, found.length

    assert ("GET", 0) == head()
    assert (("POST", 3), b"abc") == (head(), gate.body())
    assert (("POST", CHUNKED), b"abc", False) == (head(), gate.body(), gate.in_body)
    assert (None, 9) == (gate.head(), gate.held)


def test_a_body_comes_out_as_it_comes_in() -> None:
    gate = Gate(FieldLines())
    gate.add(POST[:-2])
    assert isinstance(gate.head(), Head)
    assert (b"a", True, b"") == (gate.body(), gate.in_body, gate.body())
    gate.add(POST[-2:] + GET)
    assert (b"bc", False, len(GET)) == (gate.body(), gate.in_body, gate.held)


def test_extensions_and_trailers_stay_behind() -> None:
    body = b'A;a;b=c;d="e \\" f"\r\n0123456789\r\n00\r\nDigest: x\r\nX-Sum: 1\r\n\r\n'
    (request,), refusal = passed(CHUNKS + body)

    assert (b"0123456789", True, "") == (request.body, request.ended, refusal)


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
    (request,), refusal = passed(CHUNKS + body)

    assert refusal.startswith(("The body's chunks", "The body ends in"))
    assert not request.ended


def head(*fields: bytes, line: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"".join(part + b"\r\n" for part in (line, *fields))


HOST = b"Host: h"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (head(HOST), ("POST", "/", 1, 0, True)),
        (head(HOST, b"content-LENGTH:\t07 "), ("POST", "/", 1, 7, True)),
        (head(HOST, b"Transfer-Encoding: Chunked"), ("POST", "/", 1, CHUNKED, True)),
        (head(line=b"GET / HTTP/1.0"), ("GET", "/", 0, 0, False)),
        (head(b"Host: [::1]:80", b"X: caf\xc3\xa9"), ("POST", "/", 1, 0, True)),
        (head(b"Host: h:80", line=b"GET http://H:80/a?b HTTP/1.1"), ("GET", "http://H:80/a?b", 1, 0, True)),
        (head(HOST, line=b"OPTIONS * HTTP/1.1"), ("OPTIONS", "*", 1, 0, True)),
        (head(HOST, b"Upgrade: WebSocket", b"Connection: upgrade"), ("POST", "/", 1, 0, True)),
        (head(HOST, b"Upgrade: h2c", b"Content-Length: 1"), ("POST", "/", 1, 1, True)),
    ],
)
def test_a_sound_head_says_what_is_asked_and_what_follows_it(made: bytes, expected: tuple[object, ...]) -> None:
    found = judge(made, FieldLines())

    assert isinstance(found, Head)
    assert expected == (found.method, found.target, found.minor, found.length, found.keep_alive)


@pytest.mark.parametrize(
    ("minor", "connection", "expected"),
    [
        (1, [], True),
        (1, ["keep-alive"], True),
        (1, ["close"], False),
        (1, ["Close"], False),
        (1, ["keep-alive, close"], False),
        (1, ["keep-alive", "close"], False),
        (1, ["closed"], True),
        (1, [""], True),
        (0, [], False),
        (0, ["keep-alive"], True),
        (0, ["Keep-Alive"], True),
        (0, ["x, keep-alive"], True),
        (0, ["upgrade"], False),
        (0, ["keep-alive, close"], False),
        (0, ["keep-alive", "keep-alive"], True),
        (0, ["\N{KELVIN SIGN}eep-alive"], False),
    ],
)
def test_each_version_has_its_own_habit_and_close_goes_before_all(
    minor: int, connection: list[str], expected: bool
) -> None:
    fields = [f"Connection: {value}".encode() for value in connection]
    found = judge(head(HOST, *fields, line=b"GET / HTTP/1.%d" % minor), FieldLines())

    assert isinstance(found, Head)
    assert expected == found.keep_alive


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
        (head(HOST, line=b"CONNECT / HTTP/1.1"), "CONNECT"),  # what follows is a tunnel's to llhttp
        (head(HOST, line=b"GET h:443 HTTP/1.1"), "neither a path"),
        (head(HOST, line=b"GET * HTTP/1.1"), "neither a path"),
        (head(HOST, line=b"GET ftp://h/ HTTP/1.1"), "neither a path"),
        (head(b"Host: h:99999", line=b"GET http://h:99999/ HTTP/1.1"), "neither a path"),
        (head(HOST, line=b"GET http://u@h/ HTTP/1.1"), "neither a path"),
        (head(HOST, b"Upgrade: websocket", b"Content-Length: 1"), "WebSocket"),
        (head(HOST, b"Transfer-Encoding: chun\xe2\x84\xaaed"), "single `chunked`"),  # the sign for kelvin
        (head(HOST, b"Content-Length: \xd9\xa1"), "no number"),  # a digit, but none of ASCII
        (head(HOST, b"Sec-WebSocket-Key1: 1"), "draft"),
        (head(HOST, b"Content-Type: a/b", b"content-type: a/b"), "Content-Type stands there twice"),
        (head(HOST, b"User-Agent: a", b"User-Agent: b"), "User-Agent stands there twice"),
        (head(HOST, line=b"get / HTTP/1.1"), "method"),
        (head(HOST, line=b"FETCH / HTTP/1.1"), "method"),
    ],
)
def test_a_head_with_two_readings_is_refused_and_told_why(made: bytes, word: str) -> None:
    verdict = judge(made, FieldLines())

    assert isinstance(verdict, Malformed)
    assert word in verdict.message


@pytest.mark.parametrize(
    ("most", "more", "word"),
    [
        (head(*[b"X: y"] * (MAX_HEAD_FIELDS - 1), HOST), head(*[b"X: y"] * MAX_HEAD_FIELDS, HOST), "more than 128"),
        (head(HOST, b"X: \t" + b"y" * MAX_HEAD_FIELD), head(HOST, b"X:" + b"y" * (MAX_HEAD_FIELD + 1)), "A header"),
        (
            head(HOST, line=b"GET /" + b"a" * (MAX_HEAD_FIELD - 1) + b" HTTP/1.1"),
            head(HOST, line=b"GET /" + b"a" * MAX_HEAD_FIELD + b" HTTP/1.1"),
            "The target",
        ),
    ],
    ids=["fields", "one field", "the target"],
)
def test_a_head_has_bounds_and_may_reach_them(most: bytes, more: bytes, word: str) -> None:
    taken, refused = judge(most, FieldLines()), judge(more, FieldLines())

    assert isinstance(taken, Head)
    assert isinstance(refused, Malformed)
    assert (431, True) == (refused.code.status, refused.message.startswith(word) or word in refused.message)


def test_a_broken_line_end_is_refused_at_once_and_not_when_the_head_ends() -> None:
    assert ([], "A line ends in a bare line feed or carriage return: every line ends in CR LF.") == passed(
        b"GET / HTTP/1.1\nHost: h\n"
    )
    assert ([], "A control character stands in the head.") == passed(b"\x16\x03\x01")


def test_a_head_without_end_is_too_large_at_some_point() -> None:
    packets = [b"GET / HTTP/1.1\r\nX: ", *[b"y" * 1000] * (MAX_HEAD // 1000 + 1)]

    assert ([], "The head of the request is too large.") == passed(*packets)


def test_one_empty_line_may_stand_before_a_request_and_no_more() -> None:
    assert passed(GET) == passed(b"\r", b"\n" + GET)
    assert ([], True) == (passed(b"\r\n\r\n" + GET)[0], "request line" in passed(b"\r\n\r\n" + GET)[1])


SAMPLES = [case.raw for case in (*cases(), *hosted(cases())) if 20 < len(case.raw) < 1000]


@given(st.sampled_from(SAMPLES), st.lists(st.integers(0, 1000), max_size=6))
def test_packets_make_no_difference(raw: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    packets = [raw[start:end] for start, end in pairwise(edges) if end > start]

    (whole, refusal), (pieced, same) = passed(raw), passed(*packets)

    assert refusal == same
    assert [(each.head, each.ended) for each in whole] == [(each.head, each.ended) for each in pieced]
    for one, other in zip(whole, pieced, strict=True):  # of a body that breaks off a part may be out already
        assert one.body == other.body or (refusal and not one.ended and other.body.startswith(one.body))


ALPHABET = [
    b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.0\r\n", b"Host: h\r\n", b"Content-Length: 3\r\n", b"Content-Length:0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:identity\r\n", b"\r\n", b"\n", b"\r", b"abc", b"3\r\n",
    b"0\r\n", b"0\r\n\r\n", b" ", b"\t", b";x=y", b"X: y\r\n", b"\x00", b":", b"Connection: close\r\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(ALPHABET), min_size=2, max_size=14).map(b"".join))
def test_whatever_comes_out_is_what_the_plain_reading_reads(raw: bytes) -> None:
    out, refusal = passed(raw)
    expected, _ = plainhttp.requests(raw)
    found = [as_plain(each) for each in out if each.ended]

    assert found == expected[: len(found)]
    assert refusal or len(found) == len(expected)


def as_plain(each: Passed) -> plainhttp.Request:
    """A request in the words of the other reader, which keeps bytes as Latin-1."""
    found = each.head
    fields = tuple((name, value.encode("utf-8", "surrogateescape").decode("latin-1")) for name, value in found.fields)
    return plainhttp.Request(found.method, found.target, f"HTTP/1.{found.minor}", fields, each.body)


# --- lines that were read before --------------------------------------------------------------------------------------
NAMES = [b"Host", b"Accept", b"ACCEPT", b"User-Agent", b"Content-Type", b"Authorization", b"Cookie", b"X-Mine", b"te"]
VALUES = st.one_of(st.sampled_from([b"a", b" a ", b"\t", b"", b"caf\xc3\xa9", b"caf\xe9"]), st.binary(max_size=300))
ROWS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES).map(b":".join), max_size=12)


@given(st.lists(ROWS, min_size=1, max_size=6), st.integers(0, 3))
def test_the_fields_of_a_head_are_the_same_however_many_lines_were_read_before(
    heads: list[list[bytes]], strangers: int
) -> None:
    remembering = FieldLines()
    for number in range(strangers * 500):  # more than are remembered
        assert remembering.read(b"Accept: %d" % number) == ("accept", str(number))
    for rows in heads * 2:
        made = head(*rows, line=b"GET / HTTP/1.0")
        afresh, again = judge(made, FieldLines()), judge(made, remembering)
        assert afresh == again
        if isinstance(afresh, Head) and isinstance(again, Head):
            expected = plainhttp.requests(made + b"\r\n")[0][0].headers
            assert expected == as_plain(Passed(again)).headers
            for name in {name for name, _ in again.fields} | {"absent"}:
                assert next((value for other, value in again.fields if other == name), None) == again.fields.get(name)


def test_what_a_client_keeps_to_itself_is_not_remembered_and_nothing_without_end() -> None:
    lines = FieldLines()
    said = [b"Authorization: Bearer s", b"Cookie: s", b"X-Api-Key: s", b"Accept: " + b"y" * 300, b"Host: h"]
    for line in said:
        assert lines.read(line) == lines.read(line)
    assert [b"Host: h"] == list(lines)
    for number in range(5000):
        assert lines.read(b"Content-Length: %d" % number) == ("content-length", str(number))
    assert 1024 >= len(lines)
