"""Whatever a model answers: what is tried is judged, and differs from the client's call only where that failed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.call_record import CallRecord
from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import are_equal, parse
from proxy.core.model.values import (
    Conversation,
    Delivered,
    Document,
    Failure,
    Forward,
    Headers,
    Reject,
    Rung,
    ToolCall,
    UpstreamReply,
)
from proxy.core.rules.rules import select_rules
from proxy.extensions.correction.core.settings import CorrectionPolicy, CorrectionSettings, Scope
from proxy.extensions.correction.corrector import ModelCorrector
from proxy.extensions.correction.endpoint import Endpoint
from proxy.extensions.correction.trajectory import Trajectories
from proxy.interfaces import FailedCall, QuerySources, Services, UpstreamRequest
from proxy.server.setup.services import SystemClock, SystemPacing
from proxy.state import make_store
from tests.extensions.correction.test_defects import BrokenLane

CHECK = compile_check(
    {
        "type": "object",
        "properties": {
            "unit": {"enum": ["celsius", "kelvin"]},
            "days": {"type": "integer", "minimum": 1},
            "place": {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}},
            "note": {"type": "string"},
        },
        "required": ["unit"],
    }
)
POLICY = ToolPolicy(
    "t", CHECK, "", repair=RepairPolicy(select_rules("standard", {})),
    added={"correct": CorrectionPolicy(validation_feedback=True, semantic_retry=True, scope=Scope.FAILING)},
)  # fmt: skip
SENT = b'{"unit": "rankine", "days": "3", "place": {"city": "Oslo"}, "note": "1.10"}'

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 5)
    | st.sampled_from(["kelvin", "Kelvin", "celsius", "", "Oslo", "x", "***"])
)
names = st.sampled_from(["unit", "days", "place", "city", "note", "other"])
payloads = st.dictionaries(names, leaves | st.dictionaries(names, leaves, max_size=2), max_size=5)
keys = st.sampled_from(["corrected_payload", "suggested_changes", "corrected_parameters"])
verdicts = st.builds(
    lambda key, payload, fix, says: {says: fix, key: payload},
    keys, payloads, st.booleans(), st.sampled_from(["can_fix", "should_retry"]),
) | payloads  # fmt: skip


class Lane(BrokenLane):
    """A lane of a client that tells nothing."""

    headers: Headers = ()

    def find_user_query(self, sources: QuerySources) -> str:  # noqa: ARG002
        return ""


async def corrected(answers: list[Any]) -> list[ToolCall]:
    """The calls that are tried for `SENT`, the endpoint answering in turn."""
    clock, left, tried = SystemClock(), list(answers), list[ToolCall]()

    async def exchange(_request: UpstreamRequest, _most: int) -> UpstreamReply:
        content = json.dumps(left.pop(0) if left else {"can_fix": False})
        return UpstreamReply(200, (), json.dumps({"choices": [{"message": {"content": content}}]}).encode())

    async def try_call(call: ToolCall) -> Delivered | Failure:
        tried.append(call)
        decision = decide(call, POLICY)
        return decision.failure if isinstance(decision, Reject) else Delivered(UpstreamReply(200, (), b"{}"))

    def report(_request: str, error: BaseException) -> None:
        raise error

    settings = CorrectionSettings("m", "m")
    services = Services(make_store("memory", clock), clock, {}, SystemPacing())
    corrector = ModelCorrector(
        settings, Endpoint(settings, exchange), Trajectories(clock.now), services, None, report, print
    )  # fmt: skip
    call = ToolCall("t", Document(SENT, parse(SENT)), "id", Conversation("c", Rung.HEADER))
    refused = decide(call, POLICY)
    assert isinstance(refused, Reject)
    await corrector.correct(FailedCall(call, refused.failure, POLICY, Lane(), CallRecord("r", "/r")), try_call)
    return tried


@given(st.lists(verdicts, max_size=4))
def test_only_what_failed_is_changed_and_only_what_is_valid_is_sent(answers: list[Any]) -> None:
    tried = asyncio.run(corrected(answers))
    sent: Any = parse(SENT)
    assert len(tried) <= 2
    for call in tried:
        assert isinstance(call.arguments, Document)
        value = call.arguments.value
        assert value == parse(call.arguments.text)
        for key in ("place", "note"):  # what stood right
            assert are_equal(sent[key], value[key])
        assert set(value) <= set(sent)
        decision = decide(call, POLICY)
        if isinstance(decision, Forward):
            assert CHECK.accepts(decision.checked.value)
            assert decision.checked.value["unit"] in ("celsius", "kelvin")
