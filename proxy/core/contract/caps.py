"""Call caps: how often one tool may be called in one conversation (Compozy gap 2; contract section 5). Pure policy.

A slot is reserved when a call is about to be forwarded and given back unless it is delivered, so that failed calls do
not use the cap up and parallel calls cannot overshoot it:

    slot = make_reservation(call, policy)                               # None: no cap applies
    if slot and await store.reserve(slot.key, slot.limit, slot.ttl) is None:
        failure = make_cap_failure(call, slot)                          # neither raises nor resets the attempt
    ... send ...
    not delivered: await store.release(slot.key)

Several users may share an address, so on the rung `ADDRESS` a cap applies only if the config says so (`by_address`).
"""

from __future__ import annotations

from proxy.core.contract.attempts import hash_conversation
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Failure, Rung, ToolCall


@value_class
class Reservation:
    """The slot a call takes: the store's key, the cap, and how many seconds the count is remembered."""

    key: str
    limit: int
    ttl: float


def make_reservation(call: ToolCall, policy: ToolPolicy) -> Reservation | None:
    """The slot this call has to take, or None where no cap applies."""
    if policy.cap.limit is None or (call.conversation.rung is Rung.ADDRESS and not policy.cap.by_address):
        return None
    key = f"{hash_conversation(call.conversation)}/cap/{policy.tool}"
    return Reservation(key, policy.cap.limit, policy.cap.ttl)


def make_cap_failure(call: ToolCall, slot: Reservation) -> Failure:
    """The `budget_exceeded` failure: says how many calls were used, of how many, and that another will not help."""
    times = "once" if slot.limit == 1 else f"{slot.limit} times"
    return Failure(
        codes.CALL_CAP_EXCEEDED,
        f"Tool '{call.tool}' may be called {times} in this conversation and has been ({slot.limit}/{slot.limit} used).",
        details={"used": str(slot.limit), "limit": str(slot.limit)},
    )
