"""The blind trial: 59 answers whose authors saw only the texts are accepted.

A changed text has to keep the facts that its answer was made of: the names in it. If one has to go, the trial of
that call is to be repeated: read what `python -m tests.corpora.blind_trial` writes of it, and nothing else, and answer
again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.config.load import load
from proxy.core.model.values import ABSENT, Forward, Reject
from proxy.server import start_serving
from tests.corpora.blind_trial import ANSWERS, HARD, TRIAL, TrialCall, hard_calls, judge, trial_calls
from tests.corpora.run_advice import find_untrue, follow
from tests.serving.wire import JSON_TYPE, answer, replies, tool

GIVEN: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))


@cache
def calls() -> list[TrialCall]:
    """The calls of the trial."""
    return trial_calls()


@cache
def hard() -> dict[str, tuple[TrialCall, Any]]:
    """The harder calls by their name, each with what is to be sent next."""
    return {call.id: (call, given) for call, given in hard_calls()}


def names(value: Any) -> Iterator[str]:
    """Every key in a value."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from names(member)
    elif isinstance(value, list):
        for member in value:
            yield from names(member)


def test_each_call_of_the_trial_has_its_answer() -> None:
    assert TRIAL == len(calls())
    assert list(GIVEN) == [call.id for call in calls()]


@pytest.mark.parametrize("name", GIVEN)
def test_accepts_the_answer_unchanged_and_its_names_are_in_the_call_or_the_text(name: str) -> None:
    call = next(call for call in calls() if call.id == name)
    text = json.dumps(GIVEN[call.id], ensure_ascii=False)
    decision, _, _ = judge(call.tool, call.schema, text)

    assert isinstance(decision, Forward)
    assert text.encode() == decision.checked.arguments
    assert [] == [name for name in names(GIVEN[call.id]) if name not in call.text and name not in call.sent]


HARD_NAMES = [row["id"] for row in json.loads(HARD.read_text(encoding="utf-8"))["calls"]]


def test_each_hard_call_is_refused() -> None:
    assert 59 == len(HARD_NAMES)
    assert HARD_NAMES == list(hard())


@pytest.mark.parametrize("name", HARD_NAMES)
def test_the_text_of_a_hard_call_contains_the_names_of_its_next_call(name: str) -> None:
    call, given = hard()[name]
    text = json.dumps(given, ensure_ascii=False)
    decision, _, policy = judge(call.tool, call.schema, text)

    assert isinstance(decision, Forward)
    assert text.encode() == decision.checked.arguments
    # A name may also be one that was sent, in the form that the text asks for (`^[A-Z_]+$`).
    said = call.text + call.sent + call.sent.upper()
    assert [] == [name for name in names(given) if name not in said]
    assert len(call.text) <= 3000
    assert policy.check is not None
    refused, _, _ = judge(call.tool, call.schema, call.sent)
    assert isinstance(refused, Reject)
    assert [] == list(find_untrue(policy.check, call.tool, refused.failure))
    sent = refused.failure.sent if refused.failure.mended is ABSENT else refused.failure.mended
    followed = refused.failure.violations if sent is not ABSENT else ()
    assert all(holds for violation in followed for holds in follow(policy.check, sent, violation))


def test_the_texts_have_at_most_420_characters_in_the_median_and_hard_ones_740() -> None:
    assert median(len(call.text) for call in calls()) <= 420
    assert median(len(call.text) for call, _ in hard().values()) <= 740


async def test_all_of_them_reach_their_tools_through_the_proxy(tmp_path: Path) -> None:
    routes = [
        {"path": f"/{number}", "upstream": "tools", "tool": f"tool_{number}", "schema": call.schema}
        for number, call in enumerate(calls())
    ]
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server:
        config = {"version": 1, "listen": "127.0.0.1:0", "admin": False, "upstreams": {"tools": {"url": server.url}}}
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps({**config, "routes": routes}))  # JSON is YAML
        serving = await start_serving(load(path, {}), log_to=io.StringIO())
        try:
            async with ClientSession() as client:
                texts = [json.dumps(GIVEN[call.id], ensure_ascii=False) for call in calls()]
                statuses = [await _status(client, f"{serving.url}/{i}", text) for i, text in enumerate(texts)]
        finally:
            await serving.stop(grace=1.0)

    assert [200] * TRIAL == statuses
    assert texts == [seen.body.decode() for seen in server.seen]


async def _status(client: ClientSession, url: str, body: str) -> int:
    headers = {"Content-Type": "application/json", "X-Conversation-Id": "trial"}
    async with client.post(url, data=body.encode(), headers=headers) as reply:
        return reply.status
