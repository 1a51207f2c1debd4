"""A few seconds of what `make reliability` does for ten minutes, and that it would notice a broken promise."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.reliability.clients import Call, Told, judge, made
from tests.reliability.soak import soak
from tests.reliability.upstream import is_valid
from tests.serving.wire import Seen

pytestmark = pytest.mark.large


async def test_a_short_soak_with_faults_loses_no_call() -> None:
    measured = await soak(8, lambda _: None)

    assert ([], 0, 0) == (measured.told.lost, measured.invalid_arrived, measured.arrived_twice)
    assert (True, True) == (measured.is_clean, measured.told.held.total() > 200)
    assert {"valid, delivered", "repairable, delivered", "invalid, refused"} <= set(measured.told.held)
    assert measured.reloads["success"] >= 1


def test_the_calls_are_what_they_say() -> None:
    random = Random(1)
    for number in range(500):
        call = made(random, str(number))
        assert call.arrives is None or is_valid(json.loads(call.arrives)), call
        assert (call.kind == "valid") == (call.arrives == call.body), call
        if call.arrives is None and call.body.count(b'"lat"') < 2 and call.body.endswith((b"}", b'"')):
            assert call.body[-1:] == b'"' or not is_valid(json.loads(call.body)), call


def test_notices_every_wrong_outcome_of_a_call() -> None:
    def of(call: Call, status: int, body: bytes) -> int:
        told = Told()
        judge(call, Seen(f"HTTP/1.1 {status} x", (), body), told)
        return len(told.lost)

    valid, invalid = Call("valid", b"{}", b"{}"), Call("invalid", b"[", None)
    refused, down = (b'{"error": {"code": "%s"}}' % code for code in (b"INVALID_ARGUMENTS", b"UPSTREAM_UNAVAILABLE"))
    assert [0, 1, 1, 1, 0] == [
        of(valid, 200, b"{}"), of(valid, 200, b"{ }"), of(valid, 400, refused), of(valid, 502, b"<html>"),
        of(valid, 502, down),
    ]  # fmt: skip
    assert [0, 1, 1] == [of(invalid, 400, refused), of(invalid, 200, b"["), of(invalid, 502, down)]
