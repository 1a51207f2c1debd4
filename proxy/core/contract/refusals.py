"""The limits of one conversation: when a tool that refused or failed is not called any more (docs/contract.md), and
how often a tool may be called at all.

The errors have separate keys in the store, beside the attempts. One is for those of the same call
(`make_same_call_key`), and one for all of a tool if the config gives them a budget (`TOOL_ERRORS`). A call that is not
sent because of them is kept under `make_blocked_key` of that key; the first of those is the escalation.

A call cap says how often one tool may be called in one conversation (Compozy gap 2; docs/contract.md). Its slot is
reserved when a call is about to be forwarded and given back unless it is delivered. So failed calls do not use the cap
up and parallel calls cannot overshoot it. On the rung `ADDRESS`, which several users may share, a cap applies only if
the config says so (`by_address`).
"""

from __future__ import annotations

from typing import Final

from proxy.core.contract.attempts import hash_conversation, read_words, write_history
from proxy.core.contract.policy import AttemptsPolicy, ToolPolicy, UnknownTool
from proxy.core.model import codes
from proxy.core.model.values import Attempt, Document, Episode, Failure, Rung, ToolCall, ToolResult, value_class

# The tool's refusals after which the very same call is not sent again, and for how many seconds that is remembered.
SAME_CALL: Final = 3
SAME_CALL_TTL: Final = 60.0
# The value of `blocked` in the details of such a call.
REFUSED_BY_TOOL: Final = "refused by the tool"
# Errors are counted without a separate bound.
MOST_ERRORS: Final = 2**31 - 1
# The end, behind the key of its attempts, of the store's key of a tool's errors in one conversation and their number.
TOOL_ERRORS: Final = "\nerrors"
# The end of a key of calls that were refused for a tool's errors, and how much is kept of each one's history.
_BLOCKED: Final = "\nblocked"
BLOCKED_LINES: Final = 3


def make_same_call_key(key: str, digest: str) -> str:
    """The store's key of the tool's refusals of one and the same call, from the key of its attempts."""
    return f"{key}\nsame\n{digest}"


def make_blocked_key(key: str) -> str:
    """The store's key of the calls that were refused for a tool's errors, from the key of those errors."""
    return key + _BLOCKED


def is_blocked(key: str) -> bool:
    """Returns whether an episode is one of calls that were refused for a tool's errors: the first of them escalated."""
    return key.endswith(_BLOCKED)


def read_cause(key: str) -> str:
    """The key of the errors for which calls were refused."""
    return key.removesuffix(_BLOCKED)


def read_standing(key: str, episode: Episode, policy: AttemptsPolicy) -> Attempt:
    """Returns the attempts of an episode that count, and their limit."""
    limit = policy.max_attempts
    if not is_blocked(key):
        return Attempt(max([episode.count, *(times for _, times in episode.digests)]), limit)
    if "\nsame\n" in key:
        return Attempt(SAME_CALL - 1 + episode.failed, SAME_CALL)
    limit = policy.tool_errors.limit or episode.failed
    return Attempt(limit, limit)


def is_refusal(failure: Failure) -> bool:
    """Returns whether the tool would refuse the same again: only 400 and 422, and not if it says when to come back."""
    return failure.status in (400, 422) and "retry_after" not in failure.details


def refuse_repeated_call(
    call: ToolCall, episode: Episode | None, policy: ToolPolicy | UnknownTool
) -> ToolResult | None:
    """The answer in place of a call that the tool has refused twice within a minute, byte for byte; None: send it."""
    if episode is None or episode.failed < SAME_CALL - 1:
        return None
    details, words = {"blocked": REFUSED_BY_TOOL}, read_words(episode)
    failure = Failure(
        codes.ATTEMPTS_EXHAUSTED,
        f"Tool '{call.tool}' refused exactly these arguments {episode.failed} times within the last minute.",
        details={**details, "original_error": words} if words else details,
        sent=call.arguments.value if isinstance(call.arguments, Document) else None,
    )
    return ToolResult(
        call,
        failure,
        attempt=Attempt(SAME_CALL, SAME_CALL),
        escalated=True,
        repeated=True,
        history=(*write_history(episode), f"Attempt {SAME_CALL}: The same call again, which was not sent"),
        limits=policy.feedback,
        finalising=policy.finalising,
    )


def refuse_over_budget(call: ToolCall, episode: Episode | None, policy: ToolPolicy | UnknownTool) -> ToolResult | None:
    """Returns the answer if the conversation has had as many errors of this tool as it may have; None: continue."""
    budget = policy.attempts.tool_errors
    if episode is None or budget.limit is None or episode.failed < budget.limit:
        return None
    failure = Failure(
        codes.TOOL_ERROR_BUDGET,
        f"Tool '{call.tool}' answered {episode.failed} calls of this conversation with an error, and no more than "
        f"{budget.limit} are allowed within {budget.window:g} seconds of one another.",
        details={
            "used": str(episode.failed),
            "limit": str(budget.limit),
            "errors": " | ".join(write_history(episode, "Error", words=True)),
        },
        sent=call.arguments.value if isinstance(call.arguments, Document) else None,
    )
    return ToolResult(
        call,
        failure,
        attempt=Attempt(budget.limit, budget.limit),
        history=write_history(episode, "Error"),
        limits=policy.feedback,
        finalising=policy.finalising,
    )


def write_standing(key: str, episode: Episode) -> tuple[str, ...]:
    """The history of an episode for a human; of refused calls, that of the first, which escalated."""
    return episode.attempts[0].lines if is_blocked(key) else write_history(episode)


# --- call caps --------------------------------------------------------------------------------------------------------
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
