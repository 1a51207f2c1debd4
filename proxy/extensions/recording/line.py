"""One recorded call: judged from its arguments as they came, written as a line of JSON, and read back.

    {"v":1,"at":...,"route":...,"tool":...,"schema_id":...,"attempt":1,"outcome":"refused","config":...,
     "fate":{"decision":"reject","repairs":[],"errors":[["VAL-010","/at"]]},"sent":"{...}","masked":["/text"]}

`sent` is the text of the arguments as they came, or with stand-ins at `masked`. `"lost": true` replaces it where the
arguments are too long, or where no stand-in keeps the verdict.

Judging needs no request, conversation or tool: the arguments are read as the route reads them (its text repairs, its
limits) and decided by the tool's policy as if it enforced. Hooks, caps and corrections have no part in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, replace
from operator import attrgetter
from typing import Any, Final

from proxy.adapters import ADAPTERS
from proxy.adapters.base import CallShape
from proxy.core.contract import attempts as contract
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.decide import decide
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    Conversation,
    Decision,
    Document,
    Failure,
    Fields,
    JsonProblem,
    JsonValue,
    RawRequest,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.extensions.recording.core.fates import Fate, reduce_decision
from proxy.extensions.recording.core.standins import stand_in
from proxy.interfaces import CallRecord

_HEADERS: Final = Fields((("content-type", "application/json"), ("x-conversation-id", "replay")))


def decide_sent(sent: bytes, shape: CallShape, policy: ToolPolicy) -> Decision:
    """The decision about arguments that came as these bytes."""
    plain = replace(
        shape, tool=policy.tool, tool_param=None, tool_pointer=None, arguments_pointer=None, arguments_encoding="json",
        call_id_pointer=None,
    )  # fmt: skip
    call = ADAPTERS["plain"].decode(RawRequest("POST", "/", "", _HEADERS, sent, {}, ""), plain, "replay")
    if isinstance(call, Failure):
        return Reject(call)
    if not isinstance(call, ToolCall):
        raise TypeError("the plain protocol knows calls alone")
    return decide(call, replace(policy, mode=Mode.ENFORCE))


def judge_sent(sent: bytes, shape: CallShape, policy: ToolPolicy) -> Fate:
    """The fate of arguments that came as these bytes."""
    return reduce_decision(decide_sent(sent, shape, policy))


def explain_refusal(failure: Failure, policy: ToolPolicy) -> ToolResult:
    """The answer that a served call would get if it were refused as the first of its conversation."""
    call = ToolCall(policy.tool, Document(b"", None), "replay", Conversation("replay", Rung.HEADER))
    recorded = contract.add(None, contract.make_failed_attempt(failure, ""))
    return add_advice(contract.grant_attempt(call, failure, recorded, policy), policy)


VERSION: Final = 1
# The fields of a `CallRecord` that a line holds, under the names that they have there.
RECORD_FIELDS: Final = ("route", "tool", "schema_id", "attempt", "outcome")
_read_record_fields: Final = attrgetter(*RECORD_FIELDS)


def describe_call(record: CallRecord, at: str, config: str) -> dict[str, JsonValue]:
    """The fields of a line beside its arguments and their fate: those of the record, the time (RFC 3339), and the
    digest of the config that judged the call."""
    return {"at": at, **dict(zip(RECORD_FIELDS, _read_record_fields(record), strict=True)), "config": config}


@value_class
class RecordedLine:
    """The content of a line. `sent` is None where the arguments are lost."""

    route: str
    tool: str
    sent: bytes | None = field(repr=False)
    masked: tuple[str, ...]
    fate: Fate
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)


def write_line(
    fields: Mapping[str, JsonValue], sent: bytes, shape: CallShape, policy: ToolPolicy, *, whole: bool, longest: int
) -> bytes:
    """The line of one call. `fields` are its other fields. With `whole` the arguments are kept, except those that the
    schema marks as secret; otherwise stand-ins replace all values. Arguments of more than `longest` bytes are lost."""
    fate = judge_sent(sent, shape, policy)
    row: dict[str, JsonValue] = {"v": VERSION, **fields, "fate": show_fate(fate)}
    if len(sent) > longest:
        return dumps(row | {"lost": True}) + b"\n"
    found = _mask(sent, fate, shape, policy, secrets_alone=whole)
    if found is None:
        return dumps(row | {"lost": True}) + b"\n"
    return dumps(row | {"sent": found[0].decode("utf-8", "replace"), "masked": list(found[1])}) + b"\n"


def _mask(
    sent: bytes, fate: Fate, shape: CallShape, policy: ToolPolicy, *, secrets_alone: bool
) -> tuple[bytes, tuple[str, ...]] | None:
    value = parse(sent)
    if isinstance(value, JsonProblem):  # text without a structure cannot be masked in parts
        return (sent, ()) if secrets_alone and not policy.feedback.secret_names else None
    known = (fate.forwarded, fate.repairs, fate.errors, fate.code)

    def is_same(changed: JsonValue) -> bool:
        other = judge_sent(dumps(changed), shape, policy)
        return known == (other.forwarded, other.repairs, other.errors, other.code)

    found = stand_in(value, policy.feedback, is_same, secrets_alone=secrets_alone) if is_same(value) else None
    if found is None:
        return None
    return dumps(found.value) if found.masked else sent, tuple(format_pointer(path) for path in found.masked)


def show_fate(fate: Fate) -> dict[str, JsonValue]:
    """A fate as the JSON object in a line."""
    return {
        "decision": "forward" if fate.forwarded else "reject",
        "repairs": [list(each) for each in fate.repairs],
        "errors": [list(each) for each in fate.errors],
    }


def read_line(line: bytes) -> RecordedLine | str:
    """The recorded call in a line, or the reason why it has none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(found, dict) or found.get("v") != VERSION or not isinstance(found.get("fate"), dict):
        return 'a recorded call is wanted: {"v": 1, "route": ..., "tool": ..., "sent": ..., "fate": ...}'
    sent = found.get("sent")
    if sent is not None and not isinstance(sent, str):
        return "'sent' must be the text of the arguments"
    try:
        masked, fate = tuple(map(str, found.get("masked", ()))), _read_fate(found["fate"])
    except (TypeError, ValueError):
        return "'masked' is a list of pointers, 'repairs' and 'errors' in 'fate' are lists of pairs"
    whole = None if sent is None else sent.encode("utf-8", "surrogatepass")
    return RecordedLine(str(found.get("route", "")), str(found.get("tool", "")), whole, masked, fate, found)


def _read_fate(written: dict[str, Any]) -> Fate:
    """The fate that `show_fate` wrote. Raises TypeError or ValueError for anything else."""
    repairs, errors = written.get("repairs", ()), written.get("errors", ())
    return Fate(
        written.get("decision") == "forward",
        repairs=tuple((str(rule), str(path)) for rule, path in repairs),
        errors=tuple((str(code), str(path)) for code, path in errors),
    )


def differs(recorded: Fate, judged: Fate) -> bool:
    """Whether a call's verdict differs from the recorded one."""
    verdict = (recorded.forwarded, recorded.repairs, recorded.errors)
    return verdict != (judged.forwarded, judged.repairs, judged.errors)
