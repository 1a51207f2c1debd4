"""The places that a correction may change: found in a child process as they are found here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from proxy.call.jobs import describe_policy
from proxy.call.judging import Elsewhere
from proxy.core.decide import decide
from proxy.core.model.values import Document, Reject
from proxy.extensions.correction.core.failing_places import find_failing_places, list_failed
from proxy.extensions.correction.corrector import (
    find_failing,
    find_failing_elsewhere,
    read_failing,
    write_failing_job,
)
from proxy.offload.pool import GaveUp, Limit, OffloadPool
from tests.contract.test_elsewhere import POLICIES, SENT, Ended
from tests.core.repairing import call


@pytest.fixture
async def pool() -> AsyncIterator[OffloadPool]:
    pool = OffloadPool(size=1)
    yield pool
    await pool.close()


@pytest.mark.parametrize("text", [sent for sent in SENT if sent])
def test_the_places_that_a_correction_may_change_are_found_there_as_here(text: str) -> None:
    judged, sent = POLICIES["off"], call(text)
    refused = decide(sent, judged)
    if isinstance(refused, Reject) and isinstance(sent.arguments, Document):
        payload = write_failing_job(sent.arguments.text, sent.arguments.value, refused.failure.violations)
        assert find_failing_places(sent, judged, refused.failure) == read_failing(
            find_failing(payload, describe_policy(judged))
        )


async def test_so_they_are_of_large_arguments(pool: OffloadPool) -> None:
    judged, sent = POLICIES["off"], call(json.dumps({"rows": [{"street": 1, "note": "x"}] * 500}))
    refused = decide(sent, judged)
    assert isinstance(refused, Reject)
    here = find_failing_places(sent, judged, refused.failure)
    assert here == await find_failing_elsewhere(Elsewhere(pool, pool), sent, judged, refused.failure)
    given_up = Ended(GaveUp(Limit.DEADLINE))
    assert list_failed(refused.failure) == await find_failing_elsewhere(
        Elsewhere(given_up, given_up), sent, judged, refused.failure
    )
