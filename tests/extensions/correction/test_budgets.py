"""The budgets bound the questions and the tokens, and a budget that is used up shows."""

from __future__ import annotations

import json

import pytest

from proxy.core.model.values import Conversation, Rung
from proxy.extensions.correction.core.settings import CorrectionBudget
from proxy.extensions.correction.core.words import BudgetKind
from proxy.extensions.correction.endpoint import Budgets
from proxy.interfaces import Services
from proxy.server.setup.services import SystemPacing
from proxy.state import make_store
from tests.extensions.correction.model import Rig, completion, rig, says
from tests.serving.wire import JSON_TYPE, answer, replies

OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
NEVER = {"can_fix": False}
ROUTE = """
  - path: /w
    upstream: tools
    tool: weather
    schema: {type: object, properties: {unit: {enum: [celsius, kelvin]}}, required: [unit]}
    correct: {validation_feedback: on, semantic_retry: on}
"""


async def ask(it: Rig, *units: str, header: str = "X-Conversation-Id: c") -> list[list[str]]:
    """The outcomes of the questions about calls with these units."""
    found = []
    for unit in units:
        await it.proxy.post("/w", json.dumps({"unit": unit}).encode(), *([header] if header else []))
        found.append([outcome for _, outcome in it.outcomes()])
    return found


async def read_series(it: Rig, name: str) -> dict[str, float]:
    """The samples of a metric: labels (without route and tool) and value."""
    text = (await it.proxy.ask_admin("/metrics")).body.decode()
    samples = [line.removeprefix(name).rpartition(" ") for line in text.splitlines() if line.startswith(f"{name}{{")]
    return {labels.replace(',route="/w",tool="weather"', ""): float(value) for labels, _, value in samples}


async def test_counts_the_questions_among_the_requests_of_the_models_upstream() -> None:
    async with rig(replies(completion(NEVER)), replies(OK), ROUTE) as it:
        await ask(it, "fahrenheit")
        upstreams = json.loads((await it.proxy.ask_admin("/-/upstreams")).body)["upstreams"]
        asked = len(it.outcomes())
    assert {"model": {"2xx": asked}} == {row["upstream"]: row["requests"] for row in upstreams if row["requests"]}


@pytest.mark.parametrize(
    ("budget", "outcomes"),
    [
        ("per_call: 1", [["cannot_fix", "budget"], ["cannot_fix", "budget"]]),
        ("per_conversation: 3", [["cannot_fix", "cannot_fix"], ["cannot_fix", "budget"]]),
        ("per_hour: 2", [["cannot_fix", "cannot_fix"], ["budget"]]),
        ("tokens_per_hour: 150", [["cannot_fix", "cannot_fix"], ["budget"]]),
        ("tokens_per_hour: 2500", [["cannot_fix", "cannot_fix"], ["cannot_fix", "cannot_fix"]]),
    ],
)
async def test_asks_no_more_than_the_budget_allows_and_reports_it_as_used_up(
    budget: str, outcomes: list[list[str]]
) -> None:
    model = replies(completion(NEVER, prompt_tokens=70, completion_tokens=10, total_tokens=80))
    async with rig(model, replies(OK), ROUTE, endpoint=f"budget: {{{budget}}}") as it:
        assert outcomes == await ask(it, "a", "b")
        spent = sum(outcome == "budget" for call in outcomes for outcome in call)
        name = budget.partition(":")[0]
        assert ({f'{{budget="{name}"}}': spent} if spent else {}) == await read_series(
            it, "toolproxy_correction_budget_exhausted_total"
        )
    lines = [json.loads(line) for line in it.proxy.log.getvalue().splitlines()]
    warned = [line for line in lines if line["message"] == "correction budget used up"]
    assert [("warning", name)] * bool(spent) == [(line["level"], line["budget"]) for line in warned]


async def test_clients_known_only_by_their_address_share_no_budget_of_a_conversation() -> None:
    async with rig(says(NEVER), replies(OK), ROUTE, endpoint="budget: {per_conversation: 1}") as it:
        assert [["cannot_fix"] * 2] * 3 == await ask(it, "a", "b", "c", header="")


async def test_reports_the_tokens_that_the_endpoint_counts() -> None:
    model = replies(completion({"can_fix": True, "corrected_payload": {"unit": "kelvin"}}, prompt_tokens=300,
                               completion_tokens=21))  # fmt: skip
    async with rig(model, replies(OK), ROUTE) as it:
        await ask(it, "a", "b")
        expected = {
            '{kind="prompt",layer="validation_feedback"}': 600, '{kind="completion",layer="validation_feedback"}': 42,
        }  # fmt: skip
        assert expected == await read_series(it, "toolproxy_correction_tokens_total")
    lines = [json.loads(line) for line in it.proxy.log.getvalue().splitlines()]
    line = next(line for line in lines if "correction.questions" in line)
    assert 321 == line["correction.questions"][0]["tokens"]


@pytest.mark.parametrize(
    "usage", ["no", None, {"prompt_tokens": "7"}, {"prompt_tokens": -1}, {"completion_tokens": True}]
)
async def test_a_usage_that_makes_no_sense_counts_as_none(usage: object) -> None:
    body = {"choices": [{"message": {"content": json.dumps(NEVER)}}], "usage": usage}
    async with rig(replies(answer("200 OK", json.dumps(body).encode(), JSON_TYPE)), replies(OK), ROUTE) as it:
        assert [["cannot_fix"] * 2] == await ask(it, "a")
        assert {} == await read_series(it, "toolproxy_correction_tokens_total")


class _Clock:
    """A clock that moves only when a test sets it."""

    def __init__(self) -> None:
        self.at = 7200.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at


async def test_counts_tokens_in_thousands_and_from_zero_each_hour() -> None:
    clock, warned = _Clock(), list[BudgetKind]()
    services = Services(make_store("memory", clock), clock, {}, SystemPacing())
    budget = CorrectionBudget(tokens_per_hour=2500)
    first, second = (Budgets(budget, services, warned.append) for _ in range(2))
    conversation = Conversation("c", Rung.HEADER)

    await first.spend_tokens(1300)
    await second.spend_tokens(1000)  # another process: it knows of the first one's thousand, not of its rest
    assert (None, None) == (await first.take(conversation, 0), await second.take(conversation, 0))
    await first.spend_tokens(200)
    assert (BudgetKind.TOKENS_PER_HOUR, None) == (await first.take(conversation, 0), await second.take(conversation, 0))
    assert BudgetKind.TOKENS_PER_HOUR == await first.take(conversation, 0)
    assert [BudgetKind.TOKENS_PER_HOUR] == warned
    clock.at += 3600
    assert None is await first.take(conversation, 0)
