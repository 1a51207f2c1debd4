"""A defect inside a correction leaves the caller's answer as it would have been, and is reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.call_record import CallRecord
from proxy.core.check.validation import Check
from proxy.core.contract.policy import ToolPolicy, UnknownTool
from proxy.core.decide import decide
from proxy.core.model import codes
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Delivered,
    Document,
    Failure,
    Forward,
    Headers,
    JsonValue,
    Rung,
    ToolCall,
    UpstreamReply,
)
from proxy.extensions.correction.core.settings import CorrectionPolicy, CorrectionSettings
from proxy.extensions.correction.corrector import ModelCorrector
from proxy.extensions.correction.endpoint import Endpoint
from proxy.extensions.correction.trajectory import Trajectories
from proxy.interfaces import FailedCall, QuerySources, Services, UpstreamRequest
from proxy.server.setup.services import SystemClock, SystemPacing
from proxy.state import make_store

POLICY = ToolPolicy("t", None, "", added={"correct": CorrectionPolicy(validation_feedback=True, trajectory=True)})


@dataclass(frozen=True)
class BrokenLane:
    """A lane that cannot say what the user wants."""

    tools: Mapping[str, ToolPolicy] = field(default_factory=lambda: {"t": POLICY})
    headers: Headers = ()
    unknown: UnknownTool = field(default_factory=UnknownTool)
    peer: str = ""
    caller: str = ""
    calls: None = None

    def refuse_hidden(self, tool: str) -> Failure | None:  # noqa: ARG002 - the protocol's signature
        return None

    def find_user_query(self, sources: QuerySources) -> str:  # noqa: ARG002
        raise RuntimeError("secret words")

    def can_forward_unknown(self, tool: str) -> bool:  # noqa: ARG002 - the protocol's signature
        return False

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:  # noqa: ARG002 - as above
        return None

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:  # noqa: ARG002 - as above
        return None

    def find_answer_check(self, tool: str) -> Check | None:  # noqa: ARG002 - as above
        return None

    def make_message(self, result: dict[str, JsonValue]) -> dict[str, JsonValue] | None:  # noqa: ARG002 - as above
        return None


async def never(_request: UpstreamRequest, _most: int) -> UpstreamReply:
    raise AssertionError("nobody is to be asked")


async def unused(_call: ToolCall) -> Delivered | Failure:
    raise AssertionError("nothing is to be tried")


async def test_it_is_reported_and_nothing_comes_of_the_correction() -> None:
    clock, told = SystemClock(), list[tuple[str, str]]()
    services = Services(make_store("memory", clock), clock, {}, SystemPacing())
    settings = CorrectionSettings("m", "m")
    corrector = ModelCorrector(
        settings, Endpoint(settings, never), Trajectories(clock.now), services, None,
        lambda request, error: told.append((request, type(error).__name__)), print,
    )  # fmt: skip
    call = ToolCall("t", Document(b"{}", json.loads("{}")), "id", Conversation("c", Rung.HEADER))
    failure = Failure(codes.INVALID_ARGUMENTS, "no")
    assert (
        await corrector.correct(FailedCall(call, failure, POLICY, BrokenLane(), CallRecord("r1", "/r")), unused) is None
    )

    decision = decide(call, POLICY)
    assert isinstance(decision, Forward)
    corrector.note_delivery(decision.checked, UpstreamReply(200, (), b"{}"), POLICY, BrokenLane())
    assert [("r1", "RuntimeError"), ("", "RuntimeError")] == told
