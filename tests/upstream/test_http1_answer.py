"""The reader of one answer, without a socket: framing, limits, and that the cut into packets makes no difference."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.faults import HEAD_TOO_LARGE, NOT_HTTP, SURPLUS, ExchangeError
from proxy.upstream.http1.messages import AnswerLimits, AnswerReader, ReadHeads, read_idle_time

LIMITS = AnswerLimits()


def read(*pieces: bytes, method: str = "POST", limits: AnswerLimits = LIMITS, upgrade: bool = False) -> AnswerReader:
    reader = AnswerReader(method, limits, upgrade)
    for piece in pieces:
        reader.feed(piece)
    return reader


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join((status, *lines, "", "")).encode("latin-1")


ANSWERS = {
    "length": (head("Content-Length: 4", "X: y") + b"good", 200, b"good", True),
    "length nought": (head("Content-Length: 0"), 200, b"", True),
    "chunks": (head("Transfer-Encoding: chunked") + b"3\r\ngoo\r\n01\r\nd\r\n0\r\n\r\n", 200, b"good", True),
    "capitals": (head("TRANSFER-ENCODING: Chunked") + b"A\r\n0123456789\r\n0\r\n\r\n", 200, b"0123456789", True),
    "extensions": (head("Transfer-Encoding: chunked") + b'4;a="b\\";";c\r\ngood\r\n0;x\r\n\r\n', 200, b"good", True),
    "trailers": (head("Transfer-Encoding: chunked") + b"4\r\ngood\r\n0\r\nX-T: 1\r\nY: 2\r\n\r\n", 200, b"good", True),
    "line breaks": (head("Transfer-Encoding: chunked") + b"4\r\n\r\n\r\n\r\n0\r\n\r\n", 200, b"\r\n\r\n", True),
    "no reason": (head("Content-Length: 4", status="HTTP/1.1 404 ") + b"good", 404, b"good", True),
    "not even a space": (head("Content-Length: 4", status="HTTP/1.1 404") + b"good", 404, b"good", True),
    "closing": (head("Content-Length: 4", "Connection: close") + b"good", 200, b"good", False),
    "HTTP/1.0": (head("Content-Length: 4", status="HTTP/1.0 200 OK") + b"good", 200, b"good", False),
    "HTTP/1.0 staying": (
        head("Content-Length: 4", "Connection: keep-alive", status="HTTP/1.0 200 OK") + b"good",
        200,
        b"good",
        True,
    ),
    "204": (head(status="HTTP/1.1 204 No Content"), 204, b"", True),
    "304 with a length": (head("Content-Length: 4", status="HTTP/1.1 304 Not Modified"), 304, b"", True),
    "after 100 and 103": (
        head(status="HTTP/1.1 100 Continue")
        + head("Link: x", "Content-Length: 9", status="HTTP/1.1 103 Early Hints")
        + head("Content-Length: 4")
        + b"good",
        200,
        b"good",
        True,
    ),
    "after a 100 that closes": (
        head("Connection: close", status="HTTP/1.1 100 Continue") + head("Content-Length: 4") + b"good",
        200,
        b"good",
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_read(kind: str) -> None:
    raw, status, body, keep_alive = ANSWERS[kind]
    reader = read(raw)

    assert (True, status, body, keep_alive) == (reader.complete, reader.status, reader.take(), reader.keep_alive)


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_the_same_in_any_two_pieces(kind: str) -> None:
    raw, status, body, keep_alive = ANSWERS[kind]
    expected = (True, status, body, keep_alive, read(raw).headers)

    for at in range(1, len(raw)):
        reader = read(raw[:at], raw[at:])
        assert expected == (reader.complete, reader.status, reader.take(), reader.keep_alive, reader.headers), at


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(1, 200), max_size=12))
def test_an_answer_is_the_same_in_any_pieces(kind: str, cuts: list[int]) -> None:
    raw, status, body, keep_alive = ANSWERS[kind]
    marks = [0, *sorted({cut for cut in cuts if cut < len(raw)}), len(raw)]
    reader = read(*(raw[a:b] for a, b in itertools.pairwise(marks)))

    assert (True, status, body, keep_alive) == (reader.complete, reader.status, reader.take(), reader.keep_alive)


@given(st.binary(max_size=60), st.sampled_from(sorted(ANSWERS)), st.integers(0, 100), st.integers(0, 20))
def test_bytes_changed_anywhere_give_an_answer_or_a_fault_and_nothing_else(
    noise: bytes, kind: str, at: int, over: int
) -> None:
    raw = ANSWERS[kind][0]
    try:
        reader = read(raw[:at] + noise + raw[at + over :])
    except ExchangeError:
        return

    assert reader.status == 0 or 100 <= reader.status <= 599
    assert not reader.complete or reader.has_head


@pytest.mark.parametrize("kind", ANSWERS)
def test_one_byte_more_than_an_answer_is_a_fault(kind: str) -> None:
    raw = ANSWERS[kind][0]
    for surplus in (b"\r", b"\n", b"\r\n", b"x", b"\0", raw):
        with pytest.raises(ExchangeError):
            read(raw + surplus)
        with pytest.raises(ExchangeError) as late:
            read(raw, surplus)
        assert SURPLUS == late.value.fault


def test_an_answer_to_head_has_no_body_whatever_its_length() -> None:
    reader = read(head("Content-Length: 4"), method="HEAD")

    assert (True, 4, b"", True) == (reader.complete, reader.length, reader.take(), reader.keep_alive)
    with pytest.raises(ExchangeError):
        read(head("Content-Length: 4") + b"good", method="HEAD")


def test_an_answer_without_length_ends_with_the_connection() -> None:
    reader = read(head("X: y"), b"go", b"od")

    assert (False, False) == (reader.complete, reader.keep_alive)
    assert (True, b"good") == (reader.eof(clean=True), reader.take())


@pytest.mark.parametrize(
    "cut", [b"", b"HTTP", head("Content-Length: 4") + b"goo", head("Transfer-Encoding: chunked") + b"4\r\ngood\r\n"]
)
def test_the_end_of_the_connection_does_not_end_other_answers(cut: bytes) -> None:
    assert not read(*([cut] if cut else [])).eof(clean=True)


def test_a_broken_connection_does_not_end_an_answer() -> None:
    assert not read(head("X: y"), b"good").eof(clean=False)


def test_fields_keep_their_order_their_spelling_and_their_bytes() -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-a:1\r\nx-A: \t2 \t\r\nY:\r\nU: \xc3\xa9\r\nL: \xe9\r\nContent-Length: 0\r\n\r\n"

    expected = (("X-a", "1"), ("x-A", "2"), ("Y", ""), ("U", "é"), ("L", "\udce9"), ("Content-Length", "0"))
    assert expected == read(raw).headers


def test_trailers_are_not_among_the_headers() -> None:
    assert (("Transfer-Encoding", "chunked"),) == read(ANSWERS["trailers"][0]).headers


def test_the_headers_of_interim_answers_are_not_among_the_headers() -> None:
    assert (("Content-Length", "4"),) == read(ANSWERS["after 100 and 103"][0]).headers


def test_limits_hold_to_the_byte_and_to_the_field() -> None:
    raw = head("X: y", "Content-Length: 0")
    exact = AnswerLimits(head=len(raw), fields=2)

    assert read(raw, limits=exact).complete
    for tight in (AnswerLimits(head=len(raw) - 1), AnswerLimits(fields=1)):
        with pytest.raises(ExchangeError) as broken:
            read(raw, limits=tight)
        assert HEAD_TOO_LARGE == broken.value.fault


def test_small_chunks_are_no_abuse_and_large_extensions_are() -> None:
    chunked = head("Transfer-Encoding: chunked")
    tiny = b"1\r\nx\r\n" * 20_000

    assert 20_000 == read(chunked + tiny + b"0\r\n\r\n").size
    with pytest.raises(ExchangeError):
        read(chunked + (b"1;" + b"e" * 60 + b"\r\nx\r\n") * 2000)


def test_a_switch_of_protocols_that_was_asked_for_is_followed_by_bytes_of_any_kind() -> None:
    raw = head("Upgrade: websocket", "Connection: Upgrade", status="HTTP/1.1 101 Switching Protocols")
    reader = read(raw + b"\x81\x02", b"hi\r\n\r\n", upgrade=True)

    assert (101, True, False, b"\x81\x02hi\r\n\r\n") == (reader.status, reader.switched, reader.complete, reader.take())


def test_a_switch_of_protocols_names_the_protocol() -> None:
    with pytest.raises(ExchangeError):
        read(head("X: y", status="HTTP/1.1 101 Switching Protocols"), upgrade=True)


def test_a_mistake_is_seen_as_soon_as_it_is_there_and_not_at_the_end_of_the_headers() -> None:
    for wrong in (b"220", b"\r", b"HTTP/2", b"HTTP/1.1 200 OK\nX", b"HTTP/1.1 200 OK\r\nX : "):
        with pytest.raises(ExchangeError) as broken:
            read(*(wrong[at : at + 1] for at in range(len(wrong))))
        assert NOT_HTTP == broken.value.fault


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


# --- heads that come again --------------------------------------------------------------------------------------------
AGAIN = {
    **{kind: answer for kind, (answer, *_) in ANSWERS.items()},
    "idle": head("Content-Length: 4", "Keep-Alive: timeout=9") + b"good",
    "a byte too many": head("Content-Length: 4") + b"goods",
    "a line too many": head("Content-Length: 4", "X y") + b"good",
    "a cookie": head("Content-Length: 4", "Set-Cookie: s=1") + b"good",
    "no length": head("X: y") + b"good",
    "an upgrade": head("Upgrade: x", "Connection: upgrade", "Content-Length: 4", status="HTTP/1.1 101 ") + b"good",
    "part of a head": head("Content-Length: 4")[:-2],
}  # fmt: skip


def describe(answer: bytes, method: str, upgrade: bool, heads: ReadHeads | None) -> object:
    """All that a reader knows once it has read an answer, and the end of its connection."""
    reader = AnswerReader(method, LIMITS, upgrade, heads)
    try:
        reader.feed(answer)
        ended = reader.eof(True)
    except ExchangeError as error:
        return error.fault
    whole = (reader.complete, reader.has_head, reader.status, reader.headers, reader.length, reader.size, ended)
    return (*whole, reader.keep_alive, reader.switched, reader.idle, reader.take() if reader.has_head else b"")


@given(
    st.lists(st.tuples(st.sampled_from(sorted(AGAIN)), st.sampled_from(["POST", "HEAD"]), st.booleans()), max_size=9)
)
def test_an_answer_whose_head_was_read_before_is_read_the_same(answers: list[tuple[str, str, bool]]) -> None:
    heads = ReadHeads()

    for kind, method, upgrade in answers:
        assert describe(AGAIN[kind], method, upgrade, None) == describe(AGAIN[kind], method, upgrade, heads)


def test_a_read_head_serves_the_next_answer_and_a_cookie_is_not_kept() -> None:
    heads = ReadHeads()
    for kind in ("length", "a cookie", "chunks", "an upgrade", "part of a head", "length nought"):
        describe(AGAIN[kind], "POST", True, heads)

    assert [True, False, False, False, True] == [
        heads.get(AGAIN[kind].partition(b"\r\n\r\n")[0] + b"\r\n\r\n") is not None
        for kind in ("length", "a cookie", "chunks", "an upgrade", "length nought")
    ]


def test_heads_that_never_come_again_take_no_more_memory() -> None:
    heads = ReadHeads()
    for number in range(1000):
        describe(head(f"Date: {number}", "Content-Length: 4") + b"good", "POST", False, heads)
    describe(head("X: " + "y" * 2048, "Content-Length: 4") + b"good", "POST", False, heads)

    kept = [heads.get(head(f"Date: {number}", "Content-Length: 4")) is not None for number in range(1000)]

    assert (True, True) == (kept[-1], sum(kept) <= 64)
    assert heads.get(head("X: " + "y" * 2048, "Content-Length: 4")) is None


def test_counts_the_framing_of_an_answer_that_is_read_whole() -> None:
    chunked = head("Transfer-Encoding: chunked")

    assert not read(chunked + b"1\r\nx\r\n" * 12_000).is_finely_chunked
    assert not read(chunked + (b"14\r\n" + b"x" * 20 + b"\r\n") * 50_000).is_finely_chunked
    assert read(chunked + b"1\r\nx\r\n" * 20_000).is_finely_chunked
