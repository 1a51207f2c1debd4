"""Call caps: how often one tool may be called in one conversation."""

from __future__ import annotations

from dataclasses import replace

from proxy.core.contract import refusals
from proxy.core.contract.policy import CallCap, ToolPolicy
from proxy.core.model import codes
from proxy.core.model.values import Conversation, Document, Failure, Rung, ToolCall

CALL = ToolCall("web_search", Document(b"{}", {}), "call_1", Conversation("c-1", Rung.HEADER))
POLICY = ToolPolicy("web_search", None, "f", cap=CallCap(5))


def test_a_call_takes_a_slot_of_its_conversation_and_tool() -> None:
    slot = refusals.make_reservation(CALL, POLICY)
    assert slot is not None
    assert (5, 86_400.0) == (slot.limit, slot.ttl)
    other = replace(CALL, conversation=Conversation("c-2", Rung.HEADER))
    assert slot != refusals.make_reservation(other, POLICY)
    assert slot != refusals.make_reservation(CALL, replace(POLICY, tool="read_file"))


def test_takes_no_slot_without_a_cap_or_if_users_share_a_conversation() -> None:
    assert refusals.make_reservation(CALL, replace(POLICY, cap=CallCap())) is None
    shared = replace(CALL, conversation=Conversation("c-1", Rung.ADDRESS))
    assert refusals.make_reservation(shared, POLICY) is None


def test_tells_the_model_how_many_calls_there_were_beyond_the_cap() -> None:
    slot = refusals.make_reservation(CALL, POLICY)
    assert slot is not None
    assert Failure(
        codes.CALL_CAP_EXCEEDED,
        "Tool 'web_search' may be called 5 times in this conversation and has been (5/5 used).",
        details={"used": "5", "limit": "5"},
    ) == refusals.make_cap_failure(CALL, slot)
    assert "may be called once" in refusals.make_cap_failure(CALL, replace(slot, limit=1)).message
