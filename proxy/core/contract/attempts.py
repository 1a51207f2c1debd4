"""The retry contract: the cost of a wrong call, the text for the model, and the end of its attempts (docs/contract.md).

Attempts belong to a conversation and a tool. Only failures the model can mend by calling differently raise the attempt
(`raises_attempt`); service, auth, rate and cap failures neither raise nor reset it. One attempt is counted as follows:

  - A failed call is an attempt, also when it repeats an earlier one byte for byte.
  - A call with the tool_call_id and the bytes of one before it is a client's resend: the same attempt, answered again.
    An id of JSON-RPC means so only within its session: clients that open a session for each call use it every time.
  - Calls that arrived before the first of them was answered (parallel calls of one turn) are one attempt.
  - A delivered call ends the attempts of its tool. How often each of the refused arguments failed is remembered on, so
    that the same bytes escalate at their third failure whatever good calls came in between.

If a conversation is known only by its address, several users may share it. `attempts.address` then says which failures
count: those of the very same arguments (`hash_call`), all as with an id (`count`), or none (`off`).

The functions follow the order in which a call uses them (`call/run.py`); the store only remembers. The answer to the
last attempt *is* the escalation, in words and machine parts alike: it still lists its own errors.

The memory of a failed call is one bounded line for each error, made of codes, paths, expectations and JSON types, never
of a value (Acode FR-037, FR-042). An error of the tool itself also keeps the tool's own words.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Final

from proxy.core.contract.policy import Block, ByAddress, ToolPolicy, UnknownTool
from proxy.core.display.graphemes import cut, escape
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import format_pointer, name_json_type
from proxy.core.model import codes
from proxy.core.model.value_class import set_later
from proxy.core.model.values import (
    Absent,
    Attempt,
    Conversation,
    Document,
    Episode,
    FailedAttempt,
    Failure,
    FailureRecorded,
    Pointer,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.model.work import remember

# The failures a differently written call can mend; each raises the attempt.
RAISES_ATTEMPT: Final = frozenset(code.name for code in (
    codes.INVALID_ARGUMENTS, codes.CONTAINER_INVOCATION, codes.CONTAINER_NOT_EXPANDED, codes.UNKNOWN_TOOL,
    codes.UPSTREAM_REJECTED_ARGUMENTS, codes.BODY_TOO_LARGE,
))  # fmt: skip

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
    """A conversation's name in the store, 32 hexadecimal digits: the same key on two rungs is two conversations."""
    if not conversation.hash:
        named = f"{conversation.rung}\n{hash_name(conversation)}".encode("utf-8", "surrogatepass")
        set_later(conversation, "hash", blake2b(named, digest_size=16).hexdigest())
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
    """Returns whether an episode is one of attempts, and not of a tool's own errors."""
    return "\n" not in key or "\ndigest\n" in key


def hash_call(call: ToolCall, policy: ToolPolicy | UnknownTool) -> str:
    """Returns the digest of a call's arguments as sent, under one policy: a reload validates equal bytes
    again. For an unknown tool its name counts as well, because all of them share one key."""
    sent = call.arguments.text if isinstance(call.arguments, Document) else call.raw
    if isinstance(policy, ToolPolicy) and (policy.channels or policy.operation) is not None:
        # the same body at another path is another call
        sent = f"{sorted(call.params.items())}?{call.query}\n".encode("utf-8", "surrogatepass") + sent
    judged_by = policy.fingerprint if isinstance(policy, ToolPolicy) else f"unknown {call.tool}"
    return blake2b(judged_by.encode("utf-8", "surrogatepass") + b"\n" + sent, digest_size=16).hexdigest()


def find_ttl(conversation: Conversation, policy: ToolPolicy | UnknownTool) -> float:
    """Returns how many seconds an episode is remembered after its last failure."""
    attempts = policy.attempts
    return attempts.address_ttl if conversation.rung is _ADDRESS else attempts.ttl


def is_counted(conversation: Conversation, policy: ToolPolicy | UnknownTool) -> bool:
    """Returns whether failures are counted in this conversation."""
    return conversation.rung is not _ADDRESS or policy.attempts.address is not _OFF


def may_be_parallel(conversation: Conversation, policy: ToolPolicy | UnknownTool) -> bool:
    """Returns whether a turn may have made several calls that count as one: the first failure then waits."""
    return conversation.rung is not _ADDRESS or policy.attempts.address is ByAddress.COUNT


# --- before the work ------------------------------------------------------------------------------------------------
def asks_first(policy: ToolPolicy | UnknownTool) -> bool:
    """Returns whether a call has to wait for the store before it is judged, even if this process knows of no failure.

    Only `block: hard` refuses a valid call. In all other cases a call is judged at once if this process knows of no
    failure before it. An invalid one is refused again, and the store counts the repetition.
    """
    return policy.attempts.block is _HARD


def look_up_attempt(
    call: ToolCall, episode: Episode | None, sent: str, policy: ToolPolicy | UnknownTool
) -> ToolResult | None:
    """Returns the answer that needs no work, or None if the call has to be judged. `sent` is the digest of the
    arguments.

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
    """Returns whether a failure counts against the model: by its code, or because its tool names wrong arguments."""
    return failure.code.name in RAISES_ATTEMPT or bool(failure.violations)


def make_failed_attempt(failure: Failure, sent: str, resend_id: str = "", seen: int | None = None) -> FailedAttempt:
    """Returns the record of a failed call: hashes, and a few bounded lines made of codes, paths and types, no value.

    `sent` is its arguments' digest, `resend_id` as of `find_resend_id`, `seen` how many attempts it arrived after.
    """
    # A tool_call_id is remembered as 16 hexadecimal digits, whatever its length.
    call = resend_id and blake2b(resend_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return FailedAttempt(sent, write_history_lines(failure), call, seen)


def find_resend_id(call: ToolCall) -> str:
    """Returns the mark that a client's resend of a call shares only with that call in its conversation; '' for none."""
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
    digests = (*[one for one in before.digests if one[0] != attempt.digest], (attempt.digest, now))
    grown = Episode(
        count,
        (*before.attempts, FailedAttempt(attempt.digest, attempt.lines, attempt.call, number=count))[-KEPT_ATTEMPTS:],
        digests[-KEPT_DIGESTS:],
        before.failed + 1,
    )
    return FailureRecorded(grown, times > 0 and not twin, max(count, now))


def clear_episode(episode: Episode) -> Episode:
    """Returns the rest of an episode after a delivered call: how often which arguments failed."""
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
        # All unknown names of a conversation are counted together; the answer says how often this name was called.
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
    """Returns whether a failure escalates its conversation: no resend, no other of its turn, no later one."""
    episode, limit = recorded.episode, policy.attempts.max_attempts
    if recorded.resent:
        return False
    if episode.count >= limit:
        return episode.count == limit and sum(kept.number == limit for kept in episode.attempts) == 1
    return recorded.repeated and recorded.number == limit  # the same arguments, whatever good calls came in between


# --- what is remembered, in words -------------------------------------------------------------------------------------
# One attempt's lines together, in bytes of memory: three to ten errors of usual length.
LONGEST_HISTORY: Final = 480
LONGEST_LINE: Final = 110
_LINES_OF_ONE: Final = 10
# Marks, among the lines of a tool's error, the tool's own words. They may quote what was sent, so only the answer to
# the same conversation shows them.
_WORDS: Final = "words: "
_LONGEST_NAME: Final = 48


def write_history(episode: Episode, what: str = "Attempt", *, words: bool = False) -> tuple[str, ...]:
    """One line for each attempt still remembered, such as "Attempt 2: Type mismatch on 'path' (got: integer)".

    Calls that are no longer kept are counted. `words`: with what the tool itself said, which may quote a value.
    """
    lines: dict[int, dict[str, None]] = {}
    for kept in episode.attempts:
        shown = (line.removeprefix(_WORDS) for line in kept.lines if words or not line.startswith(_WORDS))
        lines.setdefault(kept.number, {}).update(dict.fromkeys(shown))
    written = [f"{what} {number}: {'; '.join(entries)}" for number, entries in lines.items()]
    dropped = episode.failed - len(episode.attempts)
    if dropped > 0:
        written.insert(0, f"({dropped} earlier failed call{'' if dropped == 1 else 's'} no longer kept)")
    return tuple(written)


def write_history_lines(failure: Failure) -> tuple[str, ...]:
    """Returns the errors of a failed call, in at most `LONGEST_HISTORY` bytes of memory; others are counted."""
    if failure.code is codes.UNKNOWN_TOOL:
        return (write_unknown_line(failure),)
    if not failure.violations:
        return (_CALL_LINES.get(failure.code.name, failure.code.meaning.rstrip(".")),)
    lines: list[str] = []
    room = LONGEST_HISTORY - len("(+100 more)")
    for violation in failure.violations[:_LINES_OF_ONE]:
        line = cut(_line(violation), LONGEST_LINE)
        room -= len(line) if line.isascii() else _bytes(line)
        if room < 0 and lines:
            break
        lines.append(line)
    left = len(failure.violations) - len(lines)
    return (*lines, f"(+{left} more)") if left else tuple(lines)


def write_tool_error(failure: Failure) -> tuple[str, ...]:
    """One error of the tool: its code, what it says of each argument, the tool's own words as far as there is room."""
    summary = "; ".join(write_history_lines(failure)) if failure.violations else failure.code.meaning.rstrip(".")
    line = cut(f"{failure.code.name}: {summary}", LONGEST_LINE)
    words = mask_credentials(failure.details.get("original_error", ""), LONGEST_HISTORY)
    room = LONGEST_HISTORY - _bytes(line) - len(_WORDS)
    words = cut(words, max(0, room * len(words) // (_bytes(words) or 1)))
    return (line, _WORDS + words) if words else (line,)


def read_words(episode: Episode) -> str:
    """Returns the tool's own words on the last call of an episode of its errors; '' if it had none."""
    lines = episode.attempts[-1].lines if episode.attempts else ()
    return next((line.removeprefix(_WORDS) for line in lines if line.startswith(_WORDS)), "")


def write_unknown_line(failure: Failure) -> str:
    """The line of a call of an unknown tool, which names it: "Unknown tool 'get_wether'"."""
    return cut(failure.message.rstrip("."), LONGEST_LINE) or "Unknown tool"


def _bytes(text: str) -> int:
    widest = ord(max(text, default=" "))
    return len(text) * (1 if widest < 256 else 2 if widest < 65536 else 4)


# The error of a whole attempt, if no single value is to blame.
_CALL_LINES: Final = {
    codes.CONTAINER_INVOCATION.name: "Container called with parameters",
    codes.CONTAINER_NOT_EXPANDED.name: "Function called before its container was expanded",
    codes.UPSTREAM_REJECTED_ARGUMENTS.name: "The tool refused the arguments",
    codes.BODY_TOO_LARGE.name: "Body too large",
}

# The seed's wording of one history line (Acode, "Escalation Message"), by violation code.
_LINES: Final = {
    codes.REQUIRED_MISSING.name: "Missing required field {name}",
    codes.TYPE_MISMATCH.name: "Type mismatch on {name} (got: {type})",
    codes.CONSTRAINT.name: "Value out of range for {name}{expected}", codes.INVALID_JSON.name: "Invalid JSON",
    codes.UNKNOWN_FIELD.name: "Unknown field {name}", codes.ARRAY_LENGTH.name: "Wrong items in {name}{expected}",
    codes.PATTERN_MISMATCH.name: "Pattern mismatch on {name}",
    codes.ENUM_MISMATCH.name: "Invalid enum value for {name}{expected}",
    codes.STRING_LENGTH.name: "{length} for {name}{limit}",
    codes.FORMAT_MISMATCH.name: "Invalid format for {name}{expected}",
    codes.NO_BRANCH.name: "No alternative fits {name}", codes.AMBIGUOUS.name: "Ambiguous value for {name}",
    codes.LEAKED_MARKUP.name: "Markup of the call in {name}", codes.DEPRECATED_FIELD.name: "Deprecated field {name}",
}  # fmt: skip
# The same of a text's length, by the keyword that was broken.
_LENGTHS: Final = {
    "maxLength": ("String too long", " (max: {})"), "minLength": ("String too short", " (min: {})")
}  # fmt: skip


def _line(violation: Violation) -> str:
    parts: dict[str, str] = {"name": _name(violation.path)}
    if violation.code is codes.TYPE_MISMATCH:
        parts["type"] = "nothing" if isinstance(violation.value, Absent) else name_json_type(violation.value)
    elif violation.code is codes.STRING_LENGTH:
        length, limit = _LENGTHS.get(violation.keyword, ("Wrong string length", ""))
        parts |= {"length": length, "limit": limit.format(violation.limit)}
    else:
        expected = violation.expected
        parts["expected"] = f" (expected: {cut(escape(expected), _LONGEST_NAME)})" if expected else ""
    return _LINES.get(violation.code.name, violation.code.meaning + " on {name}").format_map(parts)


def _write_name(path: Pointer) -> str:
    text = format_pointer(path).removeprefix("/")
    return f"'{cut(escape(mask_credentials(text, _LONGEST_NAME)), _LONGEST_NAME)}'" if text else "the arguments"


# Remembers only names in which nothing was hidden.
_name: Final = remember(_write_name, lambda path, name: name == f"'{format_pointer(path)[1:]}'")
