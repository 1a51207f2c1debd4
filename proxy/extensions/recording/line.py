"""One recorded call: judged from its arguments as they came, written as a line of JSON, and read back.

    {"v":1,"at":...,"route":...,"tool":...,"schema_id":...,"attempt":1,"outcome":"refused","config":...,
     "fate":{"decision":"reject","repairs":[],"errors":[["VAL-010","/at"]]},"sent":"{...}","masked":["/text"]}

`sent` is the text of the arguments as they came, or with substitutes at `masked`. `"lost": true` replaces it if the
arguments are too long, or if no substitute keeps the verdict.

Judging needs no request, conversation or tool. The arguments are read as the route reads them (its text repairs, its
limits) and decided by the tool's policy as if it enforced. Hooks, caps and corrections have no part in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Any, Final, Literal

from proxy.adapters import ADAPTERS
from proxy.call_record import CallRecord
from proxy.core.contract import attempts as contract
from proxy.core.contract.policy import Mode, ToolPolicy
from proxy.core.display.preview import is_secret_path
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import dumps, format_pointer, parse
from proxy.core.model.codes import Severity
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    Conversation,
    Decision,
    Document,
    Failure,
    FeedbackLimits,
    Fields,
    Forward,
    JsonProblem,
    JsonValue,
    Pointer,
    RawRequest,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.plugin import CallShape, add_advice, decide

# --- the fate of a call -----------------------------------------------------------------------------------------------
# The fate of a call, reduced to the parts that two judgements are compared by.
#
# reduce_decision   a Decision as a Fate: forwarded or not, the sent arguments, repairs, errors compare_fates     how
# a second Fate of the same call differs from the first

Change = Literal["same", "newly_accepted", "newly_refused", "other_arguments", "other_answer"]
CHANGES: Final[tuple[Change, ...]] = (
    "same", "newly_accepted", "newly_refused", "other_arguments", "other_answer",
)  # fmt: skip


@value_class
class Fate:
    """The fate of a call. `errors` are (code, path); `words` are their texts for the model; `code` is that of a failure
    without a place."""

    forwarded: bool
    arguments: bytes = field(default=b"", repr=False)
    repairs: tuple[tuple[str, str], ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = field(default=(), repr=False)
    code: str = ""


def reduce_decision(decision: Decision) -> Fate:
    """The fate of a call by a decision."""
    if isinstance(decision, Forward):
        checked = decision.checked
        repairs = tuple((each.rule, format_pointer(each.path)) for each in checked.repairs)
        return Fate(forwarded=True, arguments=checked.arguments, repairs=repairs)
    failure = decision.failure
    errors = [each for each in failure.violations if each.severity is Severity.ERROR]
    return Fate(
        forwarded=False,
        errors=tuple(sorted((each.code.name, format_pointer(each.path)) for each in errors)),
        words=tuple(sorted(f"{each.message}\n{each.expected}\n{each.hint}" for each in errors)),
        code=failure.code.name,
    )


def compare_fates(before: Fate, after: Fate) -> Change:
    """Returns how a call's fate changed."""
    if before.forwarded != after.forwarded:
        return "newly_accepted" if after.forwarded else "newly_refused"
    if after.forwarded:
        return "same" if before.arguments == after.arguments else "other_arguments"
    is_same = (before.code, before.errors, before.words) == (after.code, after.errors, after.words)
    return "same" if is_same else "other_answer"


# --- one recorded call ------------------------------------------------------------------------------------------------
# --- A recorded call can be judged again on another machine -----------------------------------------------------------
# A recorded call can be judged again on another machine: substitutes replace its texts and keep its verdict.
#
# A substitute has the length, the punctuation and the character classes of its text (a letter becomes x or X, a digit
# 1). It is used only if the verdict stays the same: a decisive text (a member of an enum) stays readable. This does not
# make a call anonymous. Numbers, keys, true, false and null stay as they are. Texts that are secrets are always
# replaced; if that changes the verdict, the call is lost.

# The most judgements that one call may take; about 4 are usual.
MOST_JUDGED: Final = 40


@value_class
class StoodIn:
    """Arguments with substitutes, and their places. None in its place: the call is lost."""

    value: JsonValue = field(repr=False)
    masked: tuple[Pointer, ...]


def stand_in(
    value: JsonValue, limits: FeedbackLimits, is_same: Callable[[JsonValue], bool], *, secrets_alone: bool = False
) -> StoodIn | None:
    """Returns the value with substitutes for as many texts as possible, or only for secrets; `is_same` says whether a
    value has the same verdict."""
    texts = list(_texts(value, ()))
    secret = [path for path, text in texts if is_secret_path(path, limits) or mask_credentials(text) != text]
    plain = [] if secrets_alone else [path for path, _ in texts if path not in set(secret)]
    replaced, left = set(secret), MOST_JUDGED
    if secret and not is_same(_replace(value, (), replaced)):
        return None
    waiting: list[Sequence[Pointer]] = [plain] if plain else []
    while waiting:
        group = waiting.pop()
        left -= 1
        if left < 0:
            return None
        if is_same(_replace(value, (), replaced | set(group))):
            replaced |= set(group)
        elif len(group) > 1:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    return StoodIn(_replace(value, (), replaced), tuple(sorted(replaced, key=str)))


def make_standin(text: str) -> str:
    """Returns the substitute of one text. Of a text that holds a JSON object or list, the keys stay."""
    if text[:1] in ("{", "["):
        inner = parse(text.encode("utf-8", "surrogatepass"))
        if isinstance(inner, dict | list):
            return _in_json(text)
    return "".join(map(_sign, text))


def _in_json(text: str) -> str:
    """Replaces the texts inside a text of JSON by substitutes; its keys and layout stay."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != '"':
            found.append(text[at])
            at += 1
            continue
        end = at + 1
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        quoted, rest = text[at : end + 1], text[end + 1 :].lstrip()
        found.append(quoted if rest.startswith(":") or "\\" in quoted else "".join(map(_sign, quoted)))
        at = end + 1
    return "".join(found)


def _sign(character: str) -> str:
    if character.isdecimal():
        return "1"
    if character.isalpha():
        return "X" if character.isupper() else "x"
    return character


def _texts(value: JsonValue, path: Pointer) -> list[tuple[Pointer, str]]:
    if isinstance(value, str):
        return [(path, value)] if make_standin(value) != value else []
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for step, item in members for found in _texts(item, (*path, step))]


def _replace(value: JsonValue, path: Pointer, places: set[Pointer]) -> JsonValue:
    if isinstance(value, str):
        return make_standin(value) if path in places else value
    if isinstance(value, dict):
        return {key: _replace(item, (*path, key), places) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace(item, (*path, index), places) for index, item in enumerate(value)]
    return value


# --- one recorded call ------------------------------------------------------------------------------------------------
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
        raise TypeError("the plain protocol knows only calls")
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
    """The content of a line. `sent` is None if the arguments are lost."""

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
    schema marks as secret; otherwise all values are replaced. Arguments of more than `longest` bytes are lost."""
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
    """Returns whether a call's verdict differs from the recorded one."""
    verdict = (recorded.forwarded, recorded.repairs, recorded.errors)
    return verdict != (judged.forwarded, judged.repairs, judged.errors)
