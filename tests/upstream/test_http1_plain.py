"""The plain head: what it takes, and that llhttp reads everything it takes in the same way."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.upstream.http1.answer import AnswerLimits, AnswerReader
from proxy.upstream.http1.fast_head import FastHeads, read_idle_time
from proxy.upstream.http1.faults import ExchangeError, FaultKind

LIMITS = AnswerLimits()

# What servers of several makers answer. All of it is plain but for what is said of the rest of the connection.
SERVERS = {
    "nginx": b"HTTP/1.1 200 OK\r\nServer: nginx/1.24.0\r\nDate: Mon, 05 Jan 2026 00:00:00 GMT\r\n"
    b"Content-Type: application/json\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\n",
    "node": b"HTTP/1.1 201 Created\r\nX-Powered-By: Express\r\nContent-Type: application/json; charset=utf-8\r\n"
    b'Content-Length: 4\r\nETag: W/"4-x"\r\nDate: Mon, 05 Jan 2026 00:00:00 GMT\r\nConnection: keep-alive\r\n'
    b"Keep-Alive: timeout=5\r\n\r\n",
    "uvicorn": b"HTTP/1.1 404 Not Found\r\ndate: Mon, 05 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-length: 4\r\ncontent-type: application/json\r\n\r\n",
    "Go": b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nSet-Cookie: a=b\r\n"
    b"Set-Cookie: c=d\r\nDate: Mon, 05 Jan 2026 00:00:00 GMT\r\nContent-Length: 4\r\n\r\n",
}
NOT_PLAIN = {
    "nothing": b"",
    "half of it": SERVERS["nginx"][:-1],
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n",
    "an interim answer": b"HTTP/1.1 100 Continue\r\nContent-Length: 4\r\n\r\n",
    "a switch": b"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 4\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n",
    "304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n",
    "a status beyond": b"HTTP/1.1 600 Odd\r\nContent-Length: 4\r\n\r\n",
    "a long status": b"HTTP/1.1 2000 OK\r\nContent-Length: 4\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n",
    "no field": b"HTTP/1.1 200 OK\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\ncontent-length: 4\r\n\r\n",
    "an odd length": b"HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\n",
    "a length with a sign": b"HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\n",
    "an endless length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
    "closing": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n",
    "closing as proxies say it": b"HTTP/1.1 200 OK\r\nProxy-Connection: close\r\nContent-Length: 4\r\n\r\n",
    "keeping and more": b"HTTP/1.1 200 OK\r\nConnection: keep-alive, x\r\nContent-Length: 4\r\n\r\n",
    "an upgrade": b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\n",
    "no idle time": b"HTTP/1.1 200 OK\r\nKeep-Alive: max=100\r\nContent-Length: 4\r\n\r\n",
    "a bare line feed": b"HTTP/1.1 200 OK\nX: y\r\nContent-Length: 4\r\n\r\n",
    "a bare carriage return": b"HTTP/1.1 200 OK\r\nX: y\rz\r\nContent-Length: 4\r\n\r\n",
    "a folded line": b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 4\r\n\r\n",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 4\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 4\r\n\r\n",
    "no name": b"HTTP/1.1 200 OK\r\n: y\r\nContent-Length: 4\r\n\r\n",
    "NUL": b"HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 4\r\n\r\n",
    "NUL in the reason": b"HTTP/1.1 200 O\0K\r\nContent-Length: 4\r\n\r\n",
    "not ASCII": b"HTTP/1.1 200 OK\r\nX: \xc3\xa9\r\nContent-Length: 4\r\n\r\n",
    "a line break before": b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
}


def plain() -> FastHeads:
    return FastHeads(LIMITS.head, LIMITS.fields)


@pytest.mark.parametrize("server", SERVERS)
def test_what_servers_answer_is_plain(server: str) -> None:
    raw, heads = SERVERS[server], plain()
    read = AnswerReader("POST", LIMITS)
    read.feed(raw + b"good")

    expected = (read.status, read.headers, 4, read.idle, len(raw))
    assert [expected] * 3 == [heads.read(raw), heads.read(raw + b"good"), heads.read(raw + b"go")]
    assert read.idle == (4.0 if server == "node" else None)


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_what_may_be_read_in_another_way_is_left_to_the_parser(kind: str) -> None:
    heads = plain()

    assert [None, None] == [heads.read(NOT_PLAIN[kind]), heads.read(NOT_PLAIN[kind])]


def test_the_limits_hold_to_the_byte_and_to_the_field() -> None:
    raw = SERVERS["nginx"]

    assert FastHeads(len(raw), 5).read(raw) is not None
    assert [None, None] == [FastHeads(len(raw) - 1, 5).read(raw), FastHeads(len(raw), 4).read(raw)]


def test_an_upstream_that_never_says_the_same_fills_no_memory() -> None:
    heads = plain()
    for turn in range(1000):
        line = b"X-%d: %d\r\nContent-Length: %d\r\nKeep-Alive: timeout=%d\r\nSet-Cookie: s=%d" % ((turn,) * 5)
        found = heads.read(b"HTTP/1.1 200 Turn %d\r\n%b\r\nX-Long: %b\r\n\r\n" % (turn, line, b"y" * 5000))
        assert found is not None
        assert (200, (f"X-{turn}", str(turn)), turn) == (found[0], found[1][0], found[2])

    kept = {**heads._statuses, **heads._fields, **heads._telling, **heads._heads}
    assert len(kept) <= 3 * 256
    assert not [line for line in kept if len(line) > 160 or line.startswith(b"Set-Cookie")]


def test_an_upstream_that_says_the_same_with_another_length_each_time_fills_no_memory_either() -> None:
    heads = plain()
    for turn in range(1000):
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % turn
        expected = (200, (("Content-Length", str(turn)),), turn, None, len(raw))
        assert [expected] * 3 == [heads.read(raw) for _ in range(3)]
    secret = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 4\r\n\r\n"
    assert heads.read(secret) == heads.read(secret)

    assert 0 < len(heads._heads) <= 256
    assert not [head for head in heads._heads if b"Cookie" in head]


@pytest.mark.parametrize(
    ("hint", "seconds"),
    [
        (b"timeout=5", 4.0),
        (b"max=1000, timeout=60", 59.0),
        (b"Timeout=1", 0.5),
        (b"timeout=0", 0.0),
        (b"max=100", None),
        (b"", None),
    ],
)
def test_a_connection_is_kept_well_below_the_time_its_upstream_names(hint: bytes, seconds: float | None) -> None:
    assert seconds == read_idle_time(hint)


# --- llhttp has the last word -----------------------------------------------------------------------------------------
# One for all examples, so that what it remembers of one is used in the others.
REMEMBERING = plain()

_names = st.sampled_from(
    b"Content-Length|content-length|Connection|Keep-Alive|Transfer-Encoding|Upgrade|Proxy-Connection|Content-Type|X|"
    b"x-Y.z~|Set-Cookie|Trailer|X |\xc3\xa9|".split(b"|")
)
_values = st.one_of(
    st.sampled_from(
        b"4|04|4 4|-4|0x4|keep-alive|Keep-Alive|close|keep-alive, close|chunked|identity|timeout=5|timeout=x|websocket|"
        b"text/event-stream|y|a, b;c|\xe9|\xc3\xa9|y\tz|y\rz|y\nz|y\0z|\x7f|y\r\n z|".split(b"|")
    ),
    st.binary(max_size=6),
)
_blanks = st.sampled_from([b"", b" ", b"\t", b"  ", b" \t "])
_lines = st.builds(lambda name, a, value, b: name + b":" + a + value + b, _names, _blanks, _values, _blanks)
_first = st.one_of(
    st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.1 204 ", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 Go on"]),
    st.builds(lambda status, reason: b"HTTP/1.1 %d%b" % (status, reason), st.integers(0, 1200), st.binary(max_size=5)),
    st.builds(lambda reason: b"HTTP/1.1 200 " + reason, st.text("A\t \x7f~é").map(str.encode)),
)
_ends = st.sampled_from([b"\r\n\r\n", b"\r\n\r\n", b"\r\n\r\n", b"\r\n", b"\n\n", b"\r\r\n\r\n"])
_bodies = st.sampled_from([b"good", b"", b"go", b"goods", b"4\r\ngood\r\n0\r\n\r\n"])
_wild = st.builds(
    lambda first, lines, end, body: b"\r\n".join((first, *lines)) + end + body,
    _first,
    st.lists(st.one_of(st.just(b"Content-Length: 4"), _lines), max_size=4),
    _ends,
    _bodies,
)
# Every character that may stand in a plain head, at every place.
_harmless = st.builds(
    lambda name, value: f"{name}:{value}".encode(),
    st.text("!#$%&'*+-.^_`|~09AZaz", min_size=1, max_size=4),
    st.text([chr(code) for code in (9, *range(32, 127))], max_size=8),
)
_tame = st.builds(
    lambda status, reason, before, length, after, body: (
        b"\r\n".join((b"HTTP/1.1 %d %b" % (status, reason.encode()), *before, length, *after)) + b"\r\n\r\n" + body
    ),
    st.integers(200, 599),
    st.text([chr(code) for code in (9, *range(32, 127))], max_size=8),
    st.lists(st.one_of(_harmless, st.just(b"Keep-Alive: timeout=5"), st.just(b"connection:keep-alive")), max_size=2),
    st.sampled_from([b"Content-Length: 4", b"content-length:4", b"CONTENT-LENGTH:\t004 ", b"Content-Length: 0"]),
    st.lists(_harmless, max_size=2),
    _bodies,
)
_answers = st.one_of(_tame, _wild)


def outcome(method: str, heads: FastHeads | None, *pieces: bytes) -> FaultKind | tuple[object, ...]:
    reader = AnswerReader(method, LIMITS, plain=heads)
    try:
        for piece in pieces:
            reader.feed(piece)
    except ExchangeError as broken:
        return broken.fault
    said = (reader.begun, reader.has_head, reader.complete, reader.status, reader.headers, reader.length, reader.idle)
    return (*said, reader.keep_alive, reader.endless, reader.size, reader.eof(clean=True), reader.take())


@given(_answers, st.sampled_from(["POST", "GET", "HEAD"]))
@example(SERVERS["nginx"] + b"good", "POST")
@example(b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\ngood", "POST")
@example(b"HTTP/1.1 200 \t\r\nA:\r\nContent-Length:\t4 \t\r\nConnection: Keep-Alive\r\n\r\ngoo", "POST")
def test_an_answer_is_the_same_with_and_without_the_parser(raw: bytes, method: str) -> None:
    expected = outcome(method, None, raw)

    assert [expected] * 3 == [outcome(method, REMEMBERING, raw) for _ in range(3)]


@given(st.sampled_from(sorted(SERVERS)), st.binary(max_size=4), st.integers(0, 200), st.integers(0, 4))
def test_the_same_holds_with_bytes_changed_anywhere(server: str, noise: bytes, at: int, over: int) -> None:
    whole = SERVERS[server] + b"good"
    raw = whole[:at] + noise + whole[at + over :]

    assert [outcome("POST", None, raw)] * 3 == [outcome("POST", REMEMBERING, raw) for _ in range(3)]


@pytest.mark.parametrize("server", SERVERS)
def test_an_answer_is_the_same_in_any_two_pieces(server: str) -> None:
    raw = SERVERS[server] + b"good"
    expected = outcome("POST", None, raw)

    assert [expected] * (len(raw) - 1) == [
        outcome("POST", REMEMBERING, raw[:at], raw[at:]) for at in range(1, len(raw))
    ]
