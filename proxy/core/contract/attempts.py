"""The retry contract: what a wrong call costs, what the model reads, when it has to stop (contract section 4).

Attempts belong to a conversation and a tool. Only failures the model can mend by calling differently raise the attempt
(`raises_attempt`); service, auth, rate and cap failures neither raise nor reset it. What counts as one attempt:

- A failed call is an attempt, also when it repeats an earlier one byte for byte.
- A call with the tool_call_id and the bytes of one before it is a client's resend: the same attempt, answered again.
  An id of JSON-RPC means so within its session alone: clients that open a session for each call use it every time.
- Calls that arrived before the first of them was answered (parallel calls of one turn) are one attempt.
- A delivered call ends the attempts of its tool. How often each of the refused arguments failed is remembered on, so
  that the same bytes escalate at their third failure whatever good calls came in between.

Where a conversation is known by its address alone, several users may share it. `attempts.address` then says what is
counted: the failures of the very same arguments (`hash_arguments`), all as with an id (`count`), or none (`off`).

The functions stand in the order in which a call uses them (`call/run.py`); all of this is pure, and the store only
remembers. The answer to the last attempt *is* the escalation, in words and machine parts alike: it still lists its own
errors.

A call cap says how often one tool may be called in one conversation (Compozy gap 2; contract section 5). Its slot is
reserved when a call is about to be forwarded and given back unless it is delivered, so that failed calls do not use the
cap up and parallel calls cannot overshoot it. On the rung `ADDRESS`, which several users may share, a cap applies only
where the config says so (`by_address`).
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Final

from proxy.core.contract.history import write_history, write_history_lines, write_unknown_line
from proxy.core.contract.policy import Block, ByAddress, ToolPolicy, UnknownTool
from proxy.core.model import codes
from proxy.core.model.values import (
    Attempt,
    Conversation,
    Document,
    Episode,
    FailedAttempt,
    Failure,
    FailureRecorded,
    Rung,
    ToolCall,
    ToolResult,
    value_class,
)

# The failures a differently written call can mend; each raises the attempt.
RAISES_ATTEMPT: Final = frozenset(
    code.name
    for code in (
        codes.INVALID_ARGUMENTS, codes.CONTAINER_INVOCATION, codes.CONTAINER_NOT_EXPANDED, codes.UNKNOWN_TOOL,
        codes.UPSTREAM_REJECTED_ARGUMENTS, codes.BODY_TOO_LARGE,
    )
)  # fmt: skip

# Bounds of one history, so that it stays under 10 KB whatever is sent (Acode NFR-004; tests/contract measures it).
KEPT_ATTEMPTS: Final = 10
KEPT_DIGESTS: Final = 16
_NOTHING: Final = Episode(0, (), ())
# CPython 3.11 takes longer to look up a member of an enum than to call a function.
_HARD: Final = Block.HARD
_ADDRESS: Final = Rung.ADDRESS
_OFF: Final = ByAddress.OFF
_DIGEST: Final = ByAddress.DIGEST


# --- keys -----------------------------------------------------------------------------------------------------------
def hash_conversation(conversation: Conversation) -> str:
    """A conversation's name in the store: 32 hexadecimal digits, whatever the client sent. The same name found on two
    rungs is two conversations."""
    if not conversation.hash:
        named = f"{conversation.rung}\n{hash_name(conversation)}".encode("utf-8", "surrogatepass")
        object.__setattr__(conversation, "hash", blake2b(named, digest_size=16).hexdigest())
    return conversation.hash


def hash_name(conversation: Conversation) -> str:
    """A conversation's name as it may be kept and shown: 32 hexadecimal digits in place of what the client sent."""
    if not conversation.sent:
        return conversation.name
    return blake2b(conversation.name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def make_attempt_key(conversation: Conversation, tool: str, policy: ToolPolicy | UnknownTool, digest: str = "") -> str:
    """The store's key of an episode: `<conversation hash>/<tool>`, by address followed by the arguments' digest.

    All unknown names of a conversation share one key, else a model could invent names without end; the answer counts
    each name by itself until they escalate together.
    """
    key = f"{hash_conversation(conversation)}/{tool if isinstance(policy, ToolPolicy) else ''}"
    by_digest = conversation.rung is _ADDRESS and policy.attempts.address is _DIGEST
    return f"{key}\ndigest\n{digest}" if by_digest else key


def read_tool(key: str) -> str:
    """The tool of an episode, '' for unknown names."""
    return key.partition("/")[2].partition("\n")[0]


def is_attempts(key: str) -> bool:
    """Whether an episode is one of attempts, and not of a tool's own errors."""
    return "\n" not in key or "\ndigest\n" in key


def hash_arguments(arguments: bytes, fingerprint: str) -> str:
    """A hash of arguments as sent, under one policy: after a reload the same bytes are judged anew."""
    return blake2b(fingerprint.encode("utf-8", "surrogatepass") + b"\n" + arguments, digest_size=16).hexdigest()


def hash_call(call: ToolCall, policy: ToolPolicy | UnknownTool) -> str:
    """The digest of a call; for an unknown tool its name counts as well, because all of them share one key."""
    sent = call.arguments.text if isinstance(call.arguments, Document) else call.raw
    if isinstance(policy, ToolPolicy) and (policy.channels or policy.operation) is not None:
        # the same body at another path is another call
        sent = f"{sorted(call.params.items())}?{call.query}\n".encode("utf-8", "surrogatepass") + sent
    return hash_arguments(sent, policy.fingerprint if isinstance(policy, ToolPolicy) else f"unknown {call.tool}")


def find_ttl(conversation: Conversation, policy: ToolPolicy | UnknownTool) -> float:
    """How many seconds an episode is remembered after its last failure."""
    attempts = policy.attempts
    return attempts.address_ttl if conversation.rung is _ADDRESS else attempts.ttl


def is_counted(conversation: Conversation, policy: ToolPolicy | UnknownTool) -> bool:
    """Whether failures are counted in this conversation."""
    return conversation.rung is not _ADDRESS or policy.attempts.address is not _OFF


def may_be_parallel(conversation: Conversation, policy: ToolPolicy | UnknownTool) -> bool:
    """Whether a turn may have made several calls that count as one: the first failure then waits for the others."""
    return conversation.rung is not _ADDRESS or policy.attempts.address is ByAddress.COUNT


# --- before the work ------------------------------------------------------------------------------------------------
def asks_first(policy: ToolPolicy | UnknownTool) -> bool:
    """Whether a call has to wait for the store before it is judged, also where this process knows of no failure.

    Only `block: hard` refuses a valid call. In all other cases a call is judged at once if this process knows of no
    failure before it: an invalid one is refused again, and the store counts the repetition.
    """
    return policy.attempts.block is _HARD


def look_up_attempt(
    call: ToolCall, episode: Episode | None, sent: str, policy: ToolPolicy | UnknownTool
) -> ToolResult | None:
    """The answer that needs no work, or None where the call has to be judged. `sent` is the digest of the arguments.

    After the last attempt: under `block: hard` every further call; else the very bytes that were refused before.
    """
    attempts = policy.attempts
    if episode is None:
        return None
    times = episode.times(sent)
    number = max(episode.count, times)
    if number < attempts.max_attempts or (attempts.block is not _HARD and not times):
        return None
    return ToolResult(
        call,
        Failure(
            codes.ATTEMPTS_EXHAUSTED,
            f"Tool '{call.tool}' is blocked in this conversation.",
            details={"blocked": "every call" if attempts.block is _HARD else "these arguments"},
            sent=call.arguments.value if isinstance(call.arguments, Document) else None,
        ),
        attempt=Attempt(number, attempts.max_attempts),
        escalated=True,
        repeated=times > 0,
        history=write_history(episode),
        limits=policy.feedback,
        finalising=policy.finalising,
    )


# --- after a failure ------------------------------------------------------------------------------------------------
def raises_attempt(failure: Failure) -> bool:
    """Whether a failure counts against the model: by its code, or because its tool says which arguments are wrong."""
    return failure.code.name in RAISES_ATTEMPT or bool(failure.violations)


def make_failed_attempt(failure: Failure, sent: str, resend_id: str = "", seen: int | None = None) -> FailedAttempt:
    """What is kept of a failed call: hashes, and a few bounded lines made of codes, paths and types, no value.

    `sent` is the digest of its arguments, `resend_id` what its resend would have in common with it, `seen` how many
    attempts had been counted when it arrived.
    """
    # A tool_call_id is remembered as 16 hexadecimal digits, whatever its length.
    call = resend_id and blake2b(resend_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return FailedAttempt(sent, write_history_lines(failure), call, seen)


def find_resend_id(call: ToolCall) -> str:
    """What a client's resend of a call has in common with it, and no other call of its conversation; '' for nothing."""
    return call.call_id if call.resend_id is None else call.resend_id


def add(episode: Episode | None, attempt: FailedAttempt) -> FailureRecorded:
    """The episode after one more failed call: what every store does, so that all count alike."""
    before = episode or _NOTHING
    times = before.times(attempt.digest)
    joins = attempt.seen is not None and before.count > attempt.seen
    known = [kept for kept in before.attempts if kept.digest == attempt.digest]
    for kept in known:
        if attempt.call and kept.call == attempt.call:  # a client's resend
            return FailureRecorded(before, times > 1, max(kept.number, times), resent=True)
    # The same arguments twice in one turn: the model has not read yet that they are wrong.
    twin = joins and any(kept.number == before.count for kept in known)
    count, now = before.count + (not joins), max(1, times + (not twin))
    digests = (*(one for one in before.digests if one[0] != attempt.digest), (attempt.digest, now))
    grown = Episode(
        count,
        (*before.attempts, replace(attempt, seen=None, number=count))[-KEPT_ATTEMPTS:],
        digests[-KEPT_DIGESTS:],
        before.failed + 1,
    )
    return FailureRecorded(grown, times > 0 and not twin, max(count, now))


def clear_episode(episode: Episode) -> Episode:
    """What stays of an episode when a call was delivered: how often which arguments failed."""
    return Episode(0, (), episode.digests)


def grant_attempt(
    call: ToolCall, failure: Failure, recorded: FailureRecorded | None, policy: ToolPolicy | UnknownTool
) -> ToolResult:
    """The answer to a failed call: with attempt n of max, or the escalation at the last one.

    `recorded` is what the store made of the failure, None for one that does not raise the attempt.
    """
    if recorded is None:
        return ToolResult(call, failure, limits=policy.feedback, finalising=policy.finalising)
    number, most = recorded.number, policy.attempts.max_attempts
    escalated = number >= most
    if escalated:
        details = {**failure.details, "failed_with": failure.code.name}
        failure = replace(failure, code=codes.ATTEMPTS_EXHAUSTED, status=None, retryable=None, details=details)
    elif failure.code is codes.UNKNOWN_TOOL:
        # All unknown names of a conversation are counted together; told is how often this name was called.
        line = write_unknown_line(failure)
        number = max(1, len({kept.number for kept in recorded.episode.attempts if line in kept.lines}))
    return ToolResult(
        call,
        failure,
        attempt=Attempt(number, most),
        escalated=escalated,
        repeated=recorded.repeated,
        history=write_history(recorded.episode) if escalated else (),
        limits=policy.feedback,
        finalising=policy.finalising,
    )


def uses_up_attempts(recorded: FailureRecorded, policy: ToolPolicy | UnknownTool) -> bool:
    """Whether a failure is the escalation of its conversation, and not another one of the same turn, its resend, or one
    that came after it."""
    episode, limit = recorded.episode, policy.attempts.max_attempts
    if recorded.resent:
        return False
    if episode.count >= limit:
        return episode.count == limit and sum(kept.number == limit for kept in episode.attempts) == 1
    return recorded.repeated and recorded.number == limit  # the same arguments, whatever good calls came in between


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
