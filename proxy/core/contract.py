"""The retry contract: what a wrong call costs, what the model is told, when it is told to stop (contract section 4).

Attempts belong to a key (conversation, tool); `tool_call_id` never links them. Only failures the model can mend by
calling differently raise the attempt (`RAISES_ATTEMPT`); service, auth, rate and cap failures neither raise nor reset
it; a delivered call ends the episode. A byte-identical resend counts once: it gets a stronger text, and after as many
resends as there are attempts the episode is exhausted as well, since a counter alone never stops a model that repeats
itself.

How the story uses it; all of this is pure, the store is only told what to remember:

    key, digest = attempt_key(conversation, tool, policy), digest_of(call, policy)
    if store.knows(key) or asks_first(policy):
        answer = look(call, await store.look(key), digest, policy)
        if answer is not None:                                        # a ToolResult: answered without work
            return answer
    ... decide; ahead = store.look_ahead(key); send ...
    delivered:  episode = await store.clear(key)                      # episode.count failed attempts came before
                (store.clear_soon(key, ahead) where the store knows of none: the answer waits for nothing)
    failed:     recorded = await store.fail(key, remember(failure, digest), ttl_of(call.conversation, policy))
                           if raises_attempt(failure) else None
                result = grant(call, failure, recorded, policy)

The answer to the last attempt *is* the escalation: it still lists its own errors. On the rung `ADDRESS`, which several
users may share, escalation is words only: nothing is ever blocked or answered without work.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from proxy.core import codes
from proxy.core.graphemes import cut, escape
from proxy.core.jsontext import format_pointer, json_type
from proxy.core.model import (
    Absent,
    Attempt,
    Conversation,
    Document,
    Episode,
    FailedAttempt,
    Failure,
    FailureRecorded,
    FeedbackLimits,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.policy import AttemptsPolicy, Block, ToolPolicy
from proxy.core.secrets import mask

# The failures a differently written call can mend; each raises the attempt.
RAISES_ATTEMPT: Final = frozenset(
    {
        codes.INVALID_ARGUMENTS.name,
        codes.CONTAINER_INVOCATION.name,
        codes.CONTAINER_NOT_EXPANDED.name,
        codes.UNKNOWN_TOOL.name,
        codes.UPSTREAM_REJECTED_ARGUMENTS.name,
    }
)

# Bounds of one history, so that it stays under 10 KB whatever is sent (Acode NFR-004; tests/contract measures it).
KEPT_ATTEMPTS: Final = 10
KEPT_DIGESTS: Final = 16
LONGEST_HISTORY: Final = 140
_LINES_OF_ONE: Final = 3
_LONGEST_NAME: Final = 48

_DEFAULT_ATTEMPTS: Final = AttemptsPolicy()
# CPython 3.11 takes longer to look up a member of an enum than to call a function.
_HARD: Final = Block.HARD
_ADDRESS: Final = Rung.ADDRESS


# --- keys -----------------------------------------------------------------------------------------------------------
def conversation_hash(conversation: Conversation) -> str:
    """A conversation's name in the store: 32 hexadecimal digits, whatever the client sent. The same key found on two
    rungs is two conversations."""
    named = f"{conversation.rung}\n{conversation.key}".encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16).hexdigest()


def attempt_key(conversation: Conversation, tool: str, policy: ToolPolicy | None) -> str:
    """The store's key of an episode: `<conversation hash>/<tool>`.

    Without a policy the tool is unknown: all unknown names of a conversation share one key, else a model could invent
    names for ever.
    """
    return f"{conversation_hash(conversation)}/{tool if policy is not None else ''}"


def digest(arguments: bytes, fingerprint: str) -> str:
    """A hash of arguments as sent, under one policy: after a reload the same bytes are judged anew."""
    return blake2b(fingerprint.encode("utf-8", "surrogatepass") + b"\n" + arguments, digest_size=16).hexdigest()


def digest_of(call: ToolCall, policy: ToolPolicy | None) -> str:
    """The digest of a call; for an unknown tool its name counts as well, because all of them share one key."""
    sent = call.arguments.text if isinstance(call.arguments, Document) else call.raw
    return digest(sent, policy.fingerprint if policy is not None else f"unknown {call.tool}")


def ttl_of(conversation: Conversation, policy: ToolPolicy | None) -> float:
    """How many seconds an episode is remembered after its last failure."""
    attempts = _attempts(policy)
    return attempts.address_ttl if conversation.rung is _ADDRESS else attempts.ttl


def _attempts(policy: ToolPolicy | None) -> AttemptsPolicy:
    return _DEFAULT_ATTEMPTS if policy is None else policy.attempts


def _limits(policy: ToolPolicy | None) -> FeedbackLimits:
    return FeedbackLimits() if policy is None else policy.feedback


def _finalising(policy: ToolPolicy | None) -> bool:
    return policy is not None and policy.finalising


# --- before the work ------------------------------------------------------------------------------------------------
def asks_first(policy: ToolPolicy | None) -> bool:
    """Whether a call has to wait for the store before it is judged, also where this process knows of no failure.

    Only `block: hard` refuses what is right; otherwise a call that no failure of this process preceded is judged at
    once: a wrong one is refused again, which the store then counts as the repetition it is.
    """
    return policy is not None and policy.attempts.block is _HARD


def look(call: ToolCall, episode: Episode | None, sent: str, policy: ToolPolicy | None) -> ToolResult | None:
    """The answer that needs no work, or None where the call has to be judged.

    After the last attempt: under `block: hard` every further call; else the very bytes that were refused before.
    """
    attempts = _attempts(policy)
    if episode is None or call.conversation.rung is _ADDRESS or not exhausted(episode, attempts):
        return None
    repeated = sent in episode.digests
    if attempts.block is not _HARD and not repeated:
        return None
    return ToolResult(
        call,
        Failure(
            codes.ATTEMPTS_EXHAUSTED,
            f"Tool '{call.tool}' is blocked in this conversation.",
            details={"blocked": "every call" if attempts.block is _HARD else "these arguments"},
            sent=call.arguments.value if isinstance(call.arguments, Document) else None,
        ),
        attempt=Attempt(episode.count, attempts.max_attempts),
        escalated=True,
        blocked=True,
        repeated=repeated,
        history=history(episode),
        limits=_limits(policy),
        finalising=_finalising(policy),
    )


def exhausted(episode: Episode, attempts: AttemptsPolicy) -> bool:
    """Whether the model has used up its attempts, by different calls or by repeating one."""
    return max(episode.count, episode.repeats) >= attempts.max_attempts


# --- after a failure ------------------------------------------------------------------------------------------------
def raises_attempt(failure: Failure) -> bool:
    """Whether a failure counts against the model: by its code, or because its tool says which arguments are wrong."""
    return failure.code.name in RAISES_ATTEMPT or bool(failure.violations)


def remember(failure: Failure, sent: str) -> FailedAttempt:
    """What is kept of a failed attempt: its digest and one bounded line, made of codes, paths and types, no value."""
    return FailedAttempt(sent, (history_line(failure),))


def add(episode: Episode | None, attempt: FailedAttempt) -> FailureRecorded:
    """The episode after one more failure: what every store does, so that all count alike."""
    if episode is None:
        return FailureRecorded(Episode(1, (attempt,), (attempt.digest,)), repeated=False)
    if attempt.digest in episode.digests:
        return FailureRecorded(replace(episode, repeats=episode.repeats + 1), repeated=True)
    grown = Episode(
        episode.count + 1,
        (*episode.attempts, attempt)[-KEPT_ATTEMPTS:],
        (*episode.digests, attempt.digest)[-KEPT_DIGESTS:],
        episode.repeats,
    )
    return FailureRecorded(grown, repeated=False)


def grant(call: ToolCall, failure: Failure, recorded: FailureRecorded | None, policy: ToolPolicy | None) -> ToolResult:
    """The answer to a failed call: with attempt n of max, or the escalation at the last one.

    `recorded` is what the store made of the failure, None for one that does not raise the attempt.
    """
    limits = _limits(policy)
    if recorded is None:
        return ToolResult(call, failure, limits=limits, finalising=_finalising(policy))
    attempts = _attempts(policy)
    episode = recorded.episode
    escalated = exhausted(episode, attempts)
    blocked = escalated and call.conversation.rung is not _ADDRESS
    return ToolResult(
        call,
        _exhausted_failure(failure) if blocked else failure,
        attempt=Attempt(episode.count, attempts.max_attempts),
        escalated=escalated,
        blocked=blocked,
        repeated=recorded.repeated,
        history=history(episode) if escalated else (),
        limits=limits,
        finalising=_finalising(policy),
    )


def _exhausted_failure(failure: Failure) -> Failure:
    details = {**failure.details, "failed_with": failure.code.name}
    return replace(failure, code=codes.ATTEMPTS_EXHAUSTED, status=None, retryable=None, details=details)


# --- history --------------------------------------------------------------------------------------------------------
def history(episode: Episode) -> tuple[str, ...]:
    """One line for each attempt still remembered, such as "Attempt 2: Type mismatch on 'path' (got: integer)"."""
    first = episode.count - len(episode.attempts) + 1
    lines = [f"Attempt {first + index}: {'; '.join(kept.lines)}" for index, kept in enumerate(episode.attempts)]
    if episode.repeats:
        times = "once" if episode.repeats == 1 else f"{episode.repeats} times"
        lines.append(f"Arguments that had already been refused were sent again {times}.")
    return tuple(lines)


def history_line(failure: Failure) -> str:
    """What one failed attempt got wrong, in at most `LONGEST_HISTORY` code points; never a value."""
    shown = [_line(violation) for violation in failure.violations[:_LINES_OF_ONE]]
    if len(failure.violations) > _LINES_OF_ONE:
        shown.append(f"(+{len(failure.violations) - _LINES_OF_ONE} more)")
    text = "; ".join(shown) or _CALL_LINES.get(failure.code.name, failure.code.meaning.rstrip("."))
    return cut(text, LONGEST_HISTORY)


# What an attempt did wrong as a whole, where no single value is to blame.
_CALL_LINES: Final = {
    codes.CONTAINER_INVOCATION.name: "Container called with parameters",
    codes.CONTAINER_NOT_EXPANDED.name: "Function called before its container was expanded",
    codes.UNKNOWN_TOOL.name: "Unknown tool",
    codes.UPSTREAM_REJECTED_ARGUMENTS.name: "The tool refused the arguments",
}

# The seed's wording of one history line (Acode, "Escalation Message"), by violation code.
_LINES: Final = {
    codes.REQUIRED_MISSING.name: "Missing required field {name}",
    codes.TYPE_MISMATCH.name: "Type mismatch on {name} (got: {type})",
    codes.CONSTRAINT.name: "Value out of range for {name}{expected}",
    codes.INVALID_JSON.name: "Invalid JSON",
    codes.UNKNOWN_FIELD.name: "Unknown field {name}",
    codes.ARRAY_LENGTH.name: "Wrong items in {name}{expected}",
    codes.PATTERN_MISMATCH.name: "Pattern mismatch on {name}",
    codes.ENUM_MISMATCH.name: "Invalid enum value for {name}{expected}",
    codes.STRING_LENGTH.name: "{length} for {name}{limit}",
    codes.FORMAT_MISMATCH.name: "Invalid format for {name}{expected}",
    codes.NO_BRANCH.name: "No alternative fits {name}",
    codes.AMBIGUOUS.name: "Ambiguous value for {name}",
}


def _line(violation: Violation) -> str:
    template = _LINES.get(violation.code.name, violation.code.meaning + " on {name}")
    length, limit = _length_words(violation) if violation.code is codes.STRING_LENGTH else ("", "")
    return template.format(
        name=_name(violation),
        type="nothing" if isinstance(violation.value, Absent) else json_type(violation.value),
        expected=f" (expected: {cut(escape(violation.expected), _LONGEST_NAME)})" if violation.expected else "",
        length=length,
        limit=limit,
    )


def _name(violation: Violation) -> str:
    text = format_pointer(violation.path).removeprefix("/")
    return f"'{cut(escape(mask(text, _LONGEST_NAME)), _LONGEST_NAME)}'" if text else "the arguments"


def _length_words(violation: Violation) -> tuple[str, str]:
    """("String too long", " (max: 4096)"): the bound is read out of what was expected, the direction from the value."""
    bounds = [int(digits) for digits in re.findall(r"[0-9]{1,18}", violation.expected)]
    if not bounds or not isinstance(violation.value, str):
        return "Wrong string length", ""
    if len(violation.value) > bounds[-1]:
        return "String too long", f" (max: {bounds[-1]})"
    return "String too short", f" (min: {bounds[0]})"
