"""Hundreds of requests from the test suites of HTTP parsers: none reaches the upstream as two, or framed otherwise."""

from __future__ import annotations

import pytest

from tests.serving import plainhttp
from tests.serving.hostile import Case, Result, cases, equal, hosted, is_whole, replay, table


async def replayed(wanted: list[Case], feed: str) -> list[str]:
    results = await replay(wanted, (feed,))
    assert len(wanted) == len(results)
    return [f"{result.case.name}: {finding}" for result in results for finding in result.findings]


@pytest.mark.large
async def test_every_case_is_refused_in_json_and_counted_or_forwarded_as_it_is() -> None:
    assert [] == await replayed(cases(), "whole")


@pytest.mark.large
async def test_so_is_every_case_that_only_lacks_a_host_once_it_has_one() -> None:
    assert [] == await replayed(hosted(cases()), "whole")


@pytest.mark.large
async def test_packets_change_the_verdict_only_if_one_holds_a_good_and_a_bad_request() -> None:
    """aiohttp's parser drops the good one then: refused, never read otherwise."""
    wanted = [case for case in (*cases(), *hosted(cases())) if is_whole(case) and len(case.raw) < 500]
    whole, slow = await replay(wanted, ("whole",)), await replay(wanted, ("bytes",))

    def verdicts(results: list[Result]) -> dict[str, tuple[int, tuple[int, ...], tuple[str, ...]]]:
        return {result.case.name: (result.forwarded, result.refused, result.findings) for result in results}

    at_once, one_by_one = verdicts(whole), verdicts(slow)
    differing = {name for name in at_once if at_once[name] != one_by_one[name]}
    # Byte by byte, a case can run into a timeout of a busy machine: what differs is sent once more.
    one_by_one |= verdicts(await replay([case for case in wanted if case.name in differing], ("bytes",)))
    differing = {name for name in differing if at_once[name] != one_by_one[name]}
    for name in differing:
        forwarded, refused, findings = one_by_one[name]
        assert ((0, (400,), ()), 400, ()) == (at_once[name], refused[-1], findings), name
        assert forwarded + len(refused) > 1, f"{name}: it is one request, and is judged in two ways"
    assert 10 > len(differing)
    assert 60 < sum(result.forwarded > 0 for result in slow)


def test_the_collection_is_all_there() -> None:
    found = cases()
    assert (365, 166) == (len(found), sum(case.expect == "reject" for case in found))


def test_the_table_counts_each_way_of_sending_by_itself() -> None:
    case = Case("a", "accept", b"")
    results = [
        Result(case, "whole", 1, (), ()),
        Result(case, "whole", 0, (400,), ()),
        Result(case, "bytes", 2, (), ("two",)),
    ]
    assert [
        "| at once | 2 | 1 | 1 | 0 |",
        "| byte by byte | 1 | 0 | 0 | 1 |",
    ] == table(results).split("\n")[2:]


# --- the second reading, which everything is held against -------------------------------------------------------------
PLAIN = b"POST /a?b HTTP/1.1\r\nHost: h\r\nX: 1\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=1\r\nok\r\n0\r\nX: 1\r\n\r\n"


def test_the_plain_reading_reads_requests_one_after_the_other() -> None:
    found, left = plainhttp.requests(PLAIN + CHUNKED + b"GET")

    headers = (("host", "h"), ("x", "1"), ("content-length", "2"))
    assert plainhttp.Request("POST", "/a?b", "HTTP/1.1", headers, b"ok") == found[0]
    assert (2, b"ok", b"GET") == (len(found), found[1].body, left)


@pytest.mark.parametrize(
    "raw",
    [
        PLAIN.replace(b"\r\nX", b"\nX"),
        PLAIN.replace(b"X:", b"X :"),
        PLAIN.replace(b"X: 1", b"X: 1\r\n 2"),
        PLAIN.replace(b"X: 1", b"X: \x00"),
        PLAIN.replace(b"X:", b"Host:"),
        PLAIN.replace(b"X: 1", b"Content-Length: 2"),
        PLAIN.replace(b"X:", b"Transfer-Encoding:"),
        PLAIN.replace(b": 2", b": +2"),
        PLAIN.replace(b" HTTP", b"  HTTP"),
        PLAIN.replace(b"1.1", b"1.2"),
        CHUNKED.replace(b"1.1", b"1.0"),
        CHUNKED.replace(b"2;", b"0x2;"),
        CHUNKED.replace(b"ok\r\n", b"okk\r\n"),
        CHUNKED[:-2],
    ],
)
def test_the_plain_reading_stops_at_whatever_departs_from_the_one_strict_way(raw: bytes) -> None:
    assert ([], raw) == plainhttp.requests(raw)


def test_requests_are_compared_by_all_that_is_not_one_hops_own() -> None:
    sent, _ = plainhttp.one(PLAIN)
    arrived, _ = plainhttp.one(PLAIN.replace(b"Host: h", b"Host: other\r\nVia: 1.1 x"))
    cut, _ = plainhttp.one(PLAIN.replace(b"2\r\n\r\nok", b"1\r\n\r\no"))
    changed, _ = plainhttp.one(PLAIN.replace(b"X: 1", b"X: 2"))

    assert [True, False, False] == [equal(sent, other) for other in (arrived, cut, changed)]
