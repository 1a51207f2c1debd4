"""The jobs of child processes: functions from bytes to bytes, run by `offload` under a deadline and a memory limit.

    read_text       reads a text strictly, and says how it may be read again without its checks
    decide_call     judges one call by a tool's schema, with what a model reads where it is refused
    examine_schema  compiles a schema from outside, and measures what that costs

A tool's schema and policy cross as JSON (`describe_policy`), followed by the bytes of the arguments; a decision comes
back as JSON. A large value of the arguments in a violation is named by its place. Of many repairs the first come back
whole, the others as their number: reading them would keep everybody waiting. A child keeps the checks of the last
tools, so it compiles each of them once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, Final

from proxy.core.check.validation import compile_check
from proxy.core.contract.listed_tool import BadSchemaError, compile_listed
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide, restore_decision
from proxy.core.explain.advice import add_advice
from proxy.core.explain.places import find_value
from proxy.core.json.jsontext import (
    TRUSTED,
    TextLimits,
    dumps,
    examine_text,
    join_frame,
    make_decimal,
    parse,
    split_frame,
    walk,
)
from proxy.core.json.strictreader import KnownText, PlainReader
from proxy.core.model.codes import VIOLATION_CODES, Severity
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Decision,
    Document,
    Forward,
    JsonProblem,
    JsonValue,
    Repair,
    Rung,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.core.model.work import find_budget, share_work
from proxy.core.schema.formats import Formats
from proxy.core.schema.matching import make_matcher
from proxy.offload.child import MOST_SHARED

# The size of a value in a violation beyond which it is named by its place, in bytes.
_SHORT: Final = 1024
# Members of a list or an object that is sent along with a violation, keys counted.
_FEW: Final = 16
# The bound on repaired arguments: so many times their length, and so many bytes more.
_GROWTH: Final = 4
_SPARE: Final = 64 * 1024
# So many repairs of one call come back with their place.
_PLACED: Final = 2_000
_STATM: Final = Path("/proc/self/statm")
_NO_CONVERSATION: Final = Conversation("", Rung.ADDRESS)


# --- one text ---------------------------------------------------------------------------------------------------------
def read_text(payload: bytes) -> bytes:
    """Reads the text in `payload` (see `write_text_job`); gives what was found for `read_known_text`."""
    head, text = split_frame(payload)
    known = examine_text(text, TextLimits(head["depth"], head["nodes"]), frozenset(head["repairs"]))
    repaired, names = (b"", ()) if known.repaired is None else known.repaired
    description: JsonValue = {
        "found": _describe_found(known),
        "repaired": [_describe_found(repaired), list(names)] if isinstance(repaired, KnownText) else None,
        "outline": len(known.outline),
    }
    return join_frame(description, known.outline + repaired)


def write_text_job(text: bytes, limits: TextLimits, repairs: frozenset[str]) -> bytes:
    """Writes the input of `read_text`: a text, its limits, and the text repairs that its route allows."""
    return join_frame({"depth": limits.depth, "nodes": limits.nodes, "repairs": sorted(repairs)}, text)


def read_known_text(result: bytes, text: bytes, limits: TextLimits, repairs: frozenset[str]) -> KnownText:
    """The text with what `read_text` found in it."""
    head, rest = split_frame(result)
    known = KnownText.of(text, limits, _read_found(head["found"]))
    known.repairs, known.outline = repairs, rest[: head["outline"]]
    if head["repaired"] is not None:
        found, names = head["repaired"]
        known.repaired = KnownText.of(rest[head["outline"] :], limits, _read_found(found)), tuple(names)
    return known


def _describe_found(known: KnownText) -> JsonValue:
    found = known.found
    if isinstance(found, JsonProblem):
        path = None if found.path is None else list(found.path)
        return [found.reason, found.line, found.column, found.truncated, path]
    return found.value


def _read_found(found: Any) -> PlainReader | JsonProblem:
    if isinstance(found, str):
        return PlainReader(found)
    reason, line, column, truncated, path = found
    return JsonProblem(reason, line, column, truncated, None if path is None else tuple(path))


# --- a tool as it crosses ---------------------------------------------------------------------------------------------
# The fields of a policy that decide nothing about arguments, and the schema, which crosses in another form.
STAYING: Final = frozenset(
    ["check", "listed", "fingerprint", "schema_id", "description", "mode", "text", "attempts", "cap", "limits",
     "container", "member_of", "resend", "upstream_errors", "wrap_success", "added", "answer", "channels", "operation",
     "answers_here"]
)  # fmt: skip
_CROSSING: Final = tuple(each.name for each in fields(ToolPolicy) if each.init and each.name not in STAYING)
_USUAL: Final = ToolPolicy("", None, "")


def describe_policy(policy: ToolPolicy) -> bytes:
    """All of a policy that decides what becomes of arguments, as JSON."""
    policy_values: dict[str, JsonValue] = {name: _describe(getattr(policy, name)) for name in _CROSSING}
    if policy.listed is not None:
        policy_values["listed"] = [policy.listed.schema, policy.listed.formats.as_json()]
    elif policy.check is not None:
        schemas = policy.check.schemas
        others = {uri: value for uri, value in schemas.documents.items() if uri != schemas.base}
        policy_values["own"] = [schemas.documents[schemas.base], others, schemas.base, policy.check.formats.as_json()]
    return dumps(policy_values)


def _describe(value: Any) -> JsonValue:
    if is_dataclass(value):
        return {each.name: _describe(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    return sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value


def _restore(usual: Any, described: Any) -> Any:
    """The value of which `_describe` wrote the description; `usual` is another value of its type."""
    if is_dataclass(usual) and not isinstance(usual, type):
        return replace(usual, **{name: _restore(getattr(usual, name), item) for name, item in described.items()})
    return type(usual)(described) if isinstance(usual, (StrEnum, frozenset, tuple)) else described


@lru_cache(MOST_SHARED)
def read_shared_policy(text: bytes) -> ToolPolicy:
    """The policy that `describe_policy` wrote, compiled once for all jobs that name it."""
    policy_values: Any = parse(text, TRUSTED)
    if "listed" in policy_values:
        schema, formats = policy_values["listed"]
        check = compile_listed(schema, Formats.from_json(formats))
    else:
        schema, documents, base, formats = policy_values["own"]
        check = compile_check(schema, documents=documents, base=base, formats=Formats.from_json(formats))
    values = {name: _restore(getattr(_USUAL, name), policy_values[name]) for name in _CROSSING}
    return replace(_USUAL, check=check, **values)


# --- one call ---------------------------------------------------------------------------------------------------------
def decide_call(text: bytes, shared: bytes) -> bytes:
    """Judges arguments by a described policy; gives the decision for `read_decision`."""
    policy = read_shared_policy(shared)
    value = parse(text, TRUSTED) if text else None
    if isinstance(value, JsonProblem):
        raise ValueError("the arguments were read before")
    call = ToolCall(policy.tool, Document(text, value), "", _NO_CONVERSATION)
    with share_work(find_budget(value)):
        decision = decide(call, policy)
    if isinstance(decision, Forward):
        checked = decision.checked
        if len(checked.arguments) > _GROWTH * len(text) + _SPARE:
            raise MemoryError("the repaired arguments are many times as long as what was sent")
        head: JsonValue = {
            "forward": True,
            "repairs": [[repair.rule, list(repair.path)] for repair in checked.repairs[:_PLACED]],
            "more": dict(Counter(repair.rule for repair in checked.repairs[_PLACED:])),
            "violations": [describe_violation(violation, value) for violation in checked.warnings],
        }
        return join_frame(head, checked.arguments if checked.repairs else b"")
    failure = decision.failure
    advised = add_advice(ToolResult(call, failure, limits=policy.feedback), policy)
    return join_frame(
        {
            "forward": False,
            "violations": [describe_violation(violation, value) for violation in failure.violations],
            "hint": failure.hint,
            "advice": [list(advised.accepts), advised.example, advised.example_complete],
        },
        b"",
    )


def read_decision(result: bytes, call: ToolCall, document: Document) -> Decision:
    """The decision that a child came to about a call. Only `decide` makes what may be sent: see `decide.restored`."""
    head, arguments = split_frame(result)
    violations = tuple(read_violation(entry, lambda: document.value) for entry in head["violations"])
    if head["forward"]:
        repairs = tuple(Repair(rule, tuple(path)) for rule, path in head["repairs"])
        for rule, number in head["more"].items():
            repairs += (Repair(rule, ()),) * number
        return restore_decision(call, document, arguments, repairs, violations)
    accepts, example, complete = head["advice"]
    return restore_decision(call, document, None, (), violations, head["hint"], (tuple(accepts), example, complete))


def describe_violation(violation: Violation, sent: JsonValue) -> JsonValue:
    """Describes a violation; its value by place if that says the same, itself if it is short."""
    shown: JsonValue = []
    value = violation.value
    if value is not ABSENT and _is_short(value):
        shown = ["is", value]
    elif value is not ABSENT and find_value(sent, violation.path) is value:
        shown = ["at"]
    return [
        violation.code.name, list(violation.path), violation.message, violation.expected, violation.hint,
        violation.severity.value, violation.sensitive, shown, violation.keyword, violation.limit, violation.quoted,
    ]  # fmt: skip


def _is_short(value: JsonValue) -> bool:
    """Returns whether a value is sent along: reading all arguments again to find it would cost far more memory."""
    if isinstance(value, str):
        return len(value) <= _SHORT
    if isinstance(value, (dict, list)):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return len(parts) <= _FEW and not any(isinstance(part, (dict, list)) or not _is_short(part) for part in parts)
    return True


def read_violation(entry: Any, sent: Callable[[], JsonValue]) -> Violation:
    """A violation of the arguments that `sent` gives, which are read only where a violation shows a part of them."""
    code, steps, message, expected, hint, severity, sensitive, shown, keyword, limit, quoted = entry
    path = tuple(steps)
    value: JsonValue = ABSENT
    if shown:
        value = find_value(sent(), path) if shown[0] == "at" else shown[1]
    return Violation(
        VIOLATION_CODES[code],
        path,
        message,
        expected,
        hint,
        Severity(severity),
        value,
        sensitive,
        keyword,
        limit,
        quoted,
    )


# --- a schema from outside --------------------------------------------------------------------------------------------
def examine_schema(payload: bytes) -> bytes:
    """Compiles a listed schema. Gives `{bad: reason}`, or `{seconds, bytes, patterns}`: what compiling cost this
    process in CPU time and memory, and the dearest pattern's share of the seconds."""
    question: Any = parse(payload, TRUSTED)
    read_shared_policy.cache_clear()  # what this process holds already would hide what the schema costs
    seconds, held = time.process_time(), _resident()
    try:
        dearest = max(_pattern_seconds(question["schema"]), default=0.0)
        check = compile_listed(question["schema"], Formats.from_json(question["formats"]))
        check.prepare(everywhere=bool(question["rules"]))
    except BadSchemaError as bad:
        return dumps({"bad": str(bad)})
    spent = {"seconds": time.process_time() - seconds, "bytes": _resident() - held, "pattern": dearest}
    return dumps(spent)


def read_examined(result: bytes) -> tuple[str, float, float, float]:
    """The result of `examine_schema`: why the schema is unusable or '', seconds, bytes, slowest pattern's seconds."""
    answer: Any = parse(result)
    if "bad" in answer:
        return answer["bad"], 0.0, 0.0, 0.0
    seconds, size, pattern = (float(make_decimal(answer[key])) for key in ("seconds", "bytes", "pattern"))
    return "", seconds, size, pattern


def _pattern_seconds(schema: JsonValue) -> Iterator[float]:
    """The CPU time of each pattern. An invalid pattern is skipped: compiling the schema reports it."""
    parts = [part for part in walk(schema) if isinstance(part, dict)]
    named = [names for part in parts if isinstance(names := part.get("patternProperties"), dict)]
    for pattern in [*chain(*named), *(text for part in parts if isinstance(text := part.get("pattern"), str))]:
        started = time.process_time()
        try:
            make_matcher(pattern)
        except ValueError:
            continue
        yield time.process_time() - started


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    if not _STATM.exists():  # only Linux says: elsewhere only the seconds count
        return 0
    return int(_STATM.read_text(encoding="ascii").split()[1]) * PAGESIZE
