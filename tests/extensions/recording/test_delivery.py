"""A notice reaches its webhook signed, once it can, and no call waits for it."""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode, b64encode

import pytest

from proxy.core.model.values import Headers, JsonValue
from proxy.extensions.recording.escalations import MOST_WAITING, PAUSES, Delivery, read_key, sign_headers
from tests.steady import until


class Receiver:
    """A webhook that answers with these statuses in order, then 204; also the clock and the pacing of its sender."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[tuple[JsonValue, dict[str, str]]] = []
        self.slept: list[float] = []
        self.told: list[tuple[str, int]] = []
        self.keys = 0
        self.hold: asyncio.Event | None = None  # pauses last until it is set
        self.delivery = Delivery(
            self.post, "s3cret", self, self, lambda _id, what, status: self.told.append((what, status))
        )

    async def post(self, notice: JsonValue, headers: Headers) -> int:
        self.got.append((notice, dict(headers)))
        await asyncio.sleep(0)
        return self.statuses.pop(0) if self.statuses else 204

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 1_800_000_000.9

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.hold is not None:
            await self.hold.wait()

    def chance(self) -> float:
        return 0.5

    def fresh_key(self) -> str:
        self.keys += 1
        return str(self.keys)


async def test_a_notice_is_posted_signed_over_its_id_its_time_and_its_bytes() -> None:
    receiver = Receiver()
    receiver.delivery.put({"type": "t"})
    await receiver.delivery.wait_settled(5)
    ((notice, headers),) = receiver.got
    expected = b64encode(hmac.digest(b"s3cret", b'msg_1.1800000000.{"type":"t"}', "sha256")).decode()
    assert ({"type": "t"}, [("delivered", 204)]) == (notice, receiver.told)
    assert {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1800000000",
        "webhook-signature": f"v1,{expected}",
    } == headers


async def test_retries_a_notice_under_the_same_id_after_growing_pauses() -> None:
    receiver = Receiver(503, 0, 429)
    receiver.delivery.put({})
    await receiver.delivery.wait_settled(5)
    assert (list(PAUSES[:3]), {"msg_1"}) == (receiver.slept, {headers["webhook-id"] for _, headers in receiver.got})
    assert [("delivered", 204)] == receiver.told


async def test_after_the_last_pause_it_is_given_up_and_the_next_has_its_turn() -> None:
    receiver = Receiver(500, 500, 500, 500, 500)
    receiver.delivery.put({})
    receiver.delivery.put({})
    await receiver.delivery.wait_settled(5)
    assert [("given_up", 500), ("delivered", 204)] == receiver.told


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
async def test_does_not_retry_a_notice_that_the_receiver_refuses(status: int) -> None:
    receiver = Receiver(status)
    receiver.delivery.put({})
    await receiver.delivery.wait_settled(5)
    assert ([("refused", status)], 1) == (receiver.told, len(receiver.got))


async def test_a_full_queue_keeps_nobody_waiting_and_its_losses_are_reported() -> None:
    receiver = Receiver()
    for _ in range(MOST_WAITING + 2):
        receiver.delivery.put({})
    assert [("queue_full", 0)] * 2 == receiver.told
    await receiver.delivery.wait_settled(5)
    assert MOST_WAITING == len(receiver.got)


async def test_a_notice_that_comes_later_is_posted_too() -> None:
    receiver = Receiver()
    receiver.delivery.put({})
    await until(lambda: receiver.got)
    receiver.delivery.put({})
    await receiver.delivery.wait_settled(5)
    assert 2 == len(receiver.got)


async def test_reports_undelivered_notices_at_the_end_as_lost() -> None:
    receiver = Receiver(*[503] * 9)
    receiver.hold = asyncio.Event()
    for _ in range(3):
        receiver.delivery.put({})
    await receiver.delivery.wait_settled(0.01)
    assert [("lost", 503), ("lost", 0), ("lost", 0)] == receiver.told
    assert {task for task in asyncio.all_tasks() if "_work" in repr(task)} == set()


async def test_waiting_notices_go_to_another_receiver_under_the_same_id() -> None:
    old, new = Receiver(503), Receiver()
    old.hold = asyncio.Event()
    old.delivery.put({"n": 1})
    old.delivery.put({"n": 2})
    await until(lambda: old.slept)
    old.delivery.aim(new.post, "other")
    old.hold.set()
    await old.delivery.wait_settled(5)
    assert [{"n": 1}] == [notice for notice, _ in old.got]
    assert [({"n": 1}, "msg_1"), ({"n": 2}, "msg_2")] == [(notice, head["webhook-id"]) for notice, head in new.got]
    signed = b64encode(hmac.digest(b"other", b'msg_2.1800000000.{"n":2}', "sha256")).decode()
    assert f"v1,{signed}" == new.got[1][1]["webhook-signature"]
    assert [("delivered", 204)] * 2 == old.told


def test_a_secret_of_standard_webhooks_is_base64_behind_its_prefix() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") == read_key(secret)
    assert b"plain" == read_key("plain")
    # The example of the specification's reference libraries.
    headers = dict(sign_headers(read_key(secret), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'))
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == headers["webhook-signature"]
