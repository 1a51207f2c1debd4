"""`send_with_backoff`: sends, waits, sends again, and knows when to stop. On a clock that nobody waits for."""

from __future__ import annotations

import pytest

from proxy.call_record import CallRecord
from proxy.core.contract.policy import ResendPolicy, ToolPolicy
from proxy.core.model import codes
from proxy.core.model.codes import ErrorCode
from proxy.core.model.values import Executed, UpstreamFault, UpstreamReply
from proxy.core.tool_errors.backoff import Reason, ResendDenied
from proxy.interfaces import Services
from proxy.state import make_store
from proxy.upstream.sending import FailedSend, send_with_backoff
from tests.upstream.scripted import CHECKED, Answer, Body, ScriptedUpstream, Time, request

OK = UpstreamReply(200, (), b'{"ok": 1}')


def fault(token: str, executed: Executed, code: ErrorCode = codes.UPSTREAM_UNAVAILABLE) -> UpstreamFault:
    return UpstreamFault(code, token, executed, "upstream 'w': gone")


REFUSED = fault("connection_refused", Executed.NO)
RESET = fault("connection_terminated", Executed.UNKNOWN, codes.UPSTREAM_BAD_ANSWER)
BUSY = UpstreamReply(503, (("Retry-After", "4"),), b"")


class Play:
    """One call, sent to an upstream that plays these answers."""

    def __init__(self, *answers: Answer, takes: float = 0.0, budget: int = 100, **rules: object) -> None:
        self.time = Time()
        self.upstream = ScriptedUpstream(list(answers), self.time, takes, budget)
        self.policy = ToolPolicy("weather", None, "f", resend=ResendPolicy(**rules))  # type: ignore[arg-type]
        self.record = CallRecord("r", "/weather")

    async def send(self, **changes: object) -> UpstreamReply | FailedSend:
        services = Services(make_store("memory", self.time), self.time, {"w": self.upstream}, self.time)
        outgoing = request(**changes)  # type: ignore[arg-type]
        return await send_with_backoff(CHECKED, outgoing, self.policy, services, self.record)

    async def fails(self, **changes: object) -> FailedSend:
        failed = await self.send(**changes)
        assert isinstance(failed, FailedSend)
        return failed


async def test_an_answer_is_handed_on_and_nothing_is_waited_for() -> None:
    play = Play(OK, takes=0.2)

    assert OK == await play.send()
    assert ([], (), 200, 0.2) == (
        play.time.waits,
        play.record.resends,
        play.record.upstream_status,
        play.record.upstream_seconds,
    )


async def test_a_call_that_was_not_sent_is_sent_again_after_a_growing_random_wait() -> None:
    play = Play(REFUSED, REFUSED, OK)

    assert OK == await play.send()
    assert [0.0125, 0.025] == play.time.waits
    assert (Reason.UNSENT, Reason.UNSENT) == play.record.resends
    assert (None, "", 200) == (play.record.resend_denied, play.record.upstream_error, play.record.upstream_status)


async def test_after_the_last_resend_the_failure_says_how_often_it_was_sent() -> None:
    play = Play(REFUSED)
    failed = await play.fails()

    assert (3, ResendDenied.MAX, "connection_refused") == (
        len(play.upstream.sent),
        play.record.resend_denied,
        play.record.upstream_error,
    )
    assert {"executed": "no", "reason": "connection_refused", "sends": "3"} == failed.failure.details
    assert failed.reply is None


async def test_a_call_that_may_have_run_is_sent_once() -> None:
    play = Play(RESET, OK)
    failed = await play.fails()

    assert (1, None, "unknown") == (
        len(play.upstream.sent),
        play.record.resend_denied,
        failed.failure.details["executed"],
    )


async def test_it_is_not_known_whether_a_call_ran_if_any_of_its_sends_may_have_run() -> None:
    play = Play(RESET, REFUSED, REFUSED, idempotent=True)
    failed = await play.fails()

    assert ("connection_refused", "unknown") == (failed.failure.details["reason"], failed.failure.details["executed"])


@pytest.mark.parametrize("answer", [RESET, UpstreamReply(500, (), b"boom")], ids=["reset", "500"])
async def test_resends_a_call_to_an_idempotent_tool(answer: Answer) -> None:
    play = Play(answer, OK, idempotent=True)

    assert OK == await play.send()
    assert (Reason.IDEMPOTENT,) == play.record.resends


async def test_every_send_of_a_call_carries_the_same_minted_key_and_the_next_call_another() -> None:
    play = Play(RESET, OK, key_header="idempotency-key", mint_key=True)
    await play.send()
    await play.send()

    keys = [dict(sent.headers)["idempotency-key"] for sent in play.upstream.sent]
    assert ["key-1", "key-1", "key-2"] == keys
    assert (Reason.KEY,) == play.record.resends[:1]


async def test_a_key_of_the_clients_is_kept() -> None:
    play = Play(RESET, OK, key_header="idempotency-key", mint_key=True)
    await play.send(headers=(("idempotency-key", "own"),))

    assert ["own", "own"] == [dict(sent.headers)["idempotency-key"] for sent in play.upstream.sent]


async def test_a_retry_after_is_waited_for_on_top_of_the_jitter() -> None:
    play = Play(BUSY, OK, on_retry_after=True)

    assert OK == await play.send()
    assert ([4.0125], (Reason.RETRY_AFTER,)) == (play.time.waits, play.record.resends)


async def test_a_wait_longer_than_the_deadline_is_not_begun() -> None:
    play = Play(BUSY, OK, on_retry_after=True)
    failed = await play.fails(timeout=4.0)

    assert ([], ResendDenied.DEADLINE, "4") == (
        play.time.waits,
        play.record.resend_denied,
        failed.failure.details["retry_after"],
    )
    assert BUSY is failed.reply


async def test_all_sends_share_one_deadline_which_is_the_routes_timeout() -> None:
    play = Play(REFUSED, RESET, takes=20.0)
    await play.fails(timeout=30.0)

    assert [30.0, 9.9875] == [sent.timeout for sent in play.upstream.sent]


async def test_a_longer_deadline_leaves_each_send_its_own_time() -> None:
    play = Play(RESET, takes=10.0, idempotent=True, deadline=25.0)
    await play.fails(timeout=10.0)

    assert [10.0, 10.0, pytest.approx(4.9625)] == [sent.timeout for sent in play.upstream.sent]


async def test_a_shorter_deadline_bounds_the_first_send_as_well() -> None:
    play = Play(OK, deadline=2.0)
    await play.send(timeout=30.0)

    assert [2.0] == [sent.timeout for sent in play.upstream.sent]


async def test_an_empty_budget_ends_it_and_returns_the_last_answer() -> None:
    play = Play(REFUSED, budget=1)
    failed = await play.fails()

    assert (2, ResendDenied.BUDGET, "2") == (
        len(play.upstream.sent),
        play.record.resend_denied,
        failed.failure.details["sends"],
    )


async def test_the_budget_is_not_touched_by_a_call_that_may_not_be_sent_again() -> None:
    play = Play(RESET, budget=5)
    await play.fails()

    assert 5 == play.upstream.budget


async def test_resends_nothing_if_the_operator_says_so() -> None:
    play = Play(REFUSED, max_resends=0)
    await play.fails()

    assert (1, ResendDenied.MAX) == (len(play.upstream.sent), play.record.resend_denied)


async def test_the_body_of_an_answer_that_is_not_the_last_is_given_up() -> None:
    body = Body([b"much"])
    play = Play(UpstreamReply(500, (), body), OK, idempotent=True)
    await play.send()

    assert body.closed


async def test_the_bytes_that_are_sent_again_are_the_same() -> None:
    play = Play(REFUSED, OK)
    await play.send()

    first, second = play.upstream.sent
    assert (first.body, first.headers, first.target) == (second.body, second.headers, second.target)
