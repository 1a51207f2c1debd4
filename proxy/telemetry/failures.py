"""The kept record of a call that was refused, repaired or failed, so that the operator can open it later; never a
value.

Values are removed before anything is kept. Each violation is worded as if its value were a secret (`Actual: "***"`),
and `Violation.quoted` says which part of its texts shows values. The words of the schema are never masked, because a
gap in them would tell which value was sent. The words of a tool or of a hook are masked whole. So this masks more than
the answer does: `core/display/preview.py` hides only secrets, since the model knows what it sent. The text that the
model read is composed only when somebody opens the call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from proxy.call_record import CallRecord
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import MASK
from proxy.core.display.secrets import is_plain, mask_credentials
from proxy.core.display.suggestions import is_same_name
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.view import show_name, show_path
from proxy.core.explain.advice import add_advice
from proxy.core.explain.places import find_value
from proxy.core.json.jsontext import NO_ARGUMENTS, dumps, name_json_type
from proxy.core.model.codes import CALL_NOT_ALLOWED, ERROR
from proxy.core.model.values import (
    ABSENT,
    Absent,
    Conversation,
    Document,
    Failure,
    JsonValue,
    Pointer,
    Repair,
    ToolCall,
    ToolResult,
    Violation,
    value_class,
)
from proxy.core.rules.keys import KEY_RULES

# The most errors and repairs kept of one call, as many as the log's line lists.
MOST_LISTED: Final = 20
_LONGEST: Final = 200
_LOOKED_AT: Final = 4096
_LONGEST_DETAIL: Final = 1024
# The outcomes of calls whose failure is worded by the tool.
_OF_THE_TOOL: Final = frozenset({"tool_error", "upstream_error"})
# Details of a failure that quote the upstream, which may quote the call.
_QUOTING: Final = frozenset({"original_error", "answer_errors", "errors", "hint"})

Row = dict[str, Any]


@value_class
class KeptFailure:
    """The errors and repairs of one call without values, and the proxy's own answer to it, if any. `got` says what type
    each wrong value had; `replaced` are the model's answers before the call's own, as the entry shows them."""

    violations: tuple[Violation, ...]
    got: tuple[str, ...]
    repairs: tuple[Row, ...]
    answer: ToolResult | None
    policy: ToolPolicy | None
    replaced: tuple[Row, ...] = ()

    @property
    def errors(self) -> list[Row]:
        """The errors as rows, in the order of the call's own list."""
        return [
            _describe_error(each, got)
            | {"message": each.message[:_LONGEST]}
            | ({"hint": each.hint[:_LONGEST]} if each.hint else {})
            for each, got in zip(self.violations, self.got, strict=True)
        ]

    @property
    def length(self) -> int:
        """The characters of what a client may have made long: each error's words, and the keys on the way to it."""
        sizes = [len(each.message) + len(each.hint) + sum(map(len, map(str, each.path))) for each in self.violations]
        return sum(sizes) + (len(dumps(self.replaced)) if self.replaced else 0)

    def fields(self) -> Row:
        """The fields that an entry shows."""
        found: Row = {}
        if self.violations:
            found["errors"] = self.errors
        if self.repairs:
            found["repairs"] = [dict(each) for each in self.repairs]
        if not self.violations and self.answer is not None:
            found["reason"] = self.answer.failure.message[:_LONGEST]
            if self.answer.history:
                found["earlier"] = [line[:_LONGEST] for line in self.answer.history[-MOST_LISTED:]]
        if self.replaced:
            found["replaced"] = [dict(each) for each in self.replaced]
        return found

    def compose_answer(self) -> str:
        """The text that the model read, every value masked; '' for no answer. Its example shows only the schema."""
        return write_feedback(add_advice(self.answer, self.policy)) if self.answer is not None else ""


def keep_failure(record: CallRecord) -> KeptFailure:
    """Returns what is kept of a finished call."""
    came = list_errors(record)[:MOST_LISTED]
    sent = record.call.arguments.value if record.call and isinstance(record.call.arguments, Document) else ABSENT
    went = record.checked.value if record.checked is not None else ABSENT
    repairs = tuple([_describe_repair(each, sent, went) for each in record.repairs[:MOST_LISTED]])
    replaced = tuple(
        [{"tokens": each.tokens, "calls": [_keep_replaced(call, each.valid) for call in each.calls]}
         for each in record.replaced]
    )  # fmt: skip
    if not came and record.result is None:  # a repaired call
        return KeptFailure((), (), repairs, None, record.policy, replaced)
    if record.outcome in _OF_THE_TOOL:  # the tool's words may quote what was sent in any form, and are masked whole
        violations = tuple([
            Violation(each.code, each.path, MASK, each.expected and MASK, each.hint and MASK, each.severity, MASK, True)
            for each in came
        ])  # fmt: skip
    else:
        violations = tuple(map(_mask_violation, came))
    got = tuple([describe_value(each.value) for each in came])
    answer = None if record.result is None else _mask_result(record, record.result, violations)
    return KeptFailure(violations, got, repairs, answer, record.policy, replaced)


def _keep_replaced(record: CallRecord, valid: str) -> Row:
    """A call of an answer that another one took the place of, with what the model read of it."""
    kept = keep_failure(record)
    found = {"gen_ai.tool.name": show_name(record.tool), **kept.fields()}
    if record.code:
        found["error.type"] = record.code
    return {**found, "model_read": kept.compose_answer() or valid}


def list_errors(record: CallRecord) -> list[Violation]:
    """The violations of a call that are errors, and not warnings."""
    return [each for each in record.violations if each.severity is ERROR]


def describe_errors(record: CallRecord) -> Row:
    """Returns what each error expected and the type of the value sent, as an entry shows them; {} without errors."""
    errors = [_describe_error(each, describe_value(each.value)) for each in list_errors(record)[:MOST_LISTED]]
    return {"errors": errors} if errors else {}


def _describe_error(violation: Violation, got: str) -> Row:
    expected = violation.expected[:_LONGEST]
    return {"path": show_path(violation.path), "code": violation.code.name, "expected": expected, "got": got}


def describe_value(value: JsonValue) -> str:
    """Type and size: `text of 5`, `list of 2`, `object of 3`, `number`, `boolean`, `null`; `nothing` for no value. An
    operator who may not see values still learns that a text came in place of a number."""
    if isinstance(value, str):
        return f"text of {len(value)}"
    if isinstance(value, (list, dict)):
        return f"{'list' if isinstance(value, list) else 'object'} of {len(value)}"
    return "nothing" if isinstance(value, Absent) else name_json_type(value)


def _describe_repair(made: Repair, sent: JsonValue, went: JsonValue) -> Row:
    path = made.path
    found = {"rule": made.rule, "path": show_path(path)}
    before, after = find_value(sent, path), find_value(went, path)
    if after is ABSENT and (renamed := find_renamed(made, sent, went)):
        found["renamed"], after = show_path(renamed), find_value(went, renamed)
    if before is not ABSENT or after is not ABSENT:
        found["got"], found["became"] = describe_value(before), describe_value(after)
    return found


def find_renamed(made: Repair, sent: JsonValue, went: JsonValue) -> Pointer:
    """The place of a key of the sent arguments under its new name, if a repair renamed it; () for none."""
    path = made.path
    if made.rule not in KEY_RULES or find_value(went, path) is not ABSENT:
        return ()
    held, holds = find_value(sent, path[:-1]), find_value(went, path[:-1])
    if not path or not isinstance(held, dict) or not isinstance(holds, dict) or path[-1] in holds:
        return ()
    named = [key for key in holds if key not in held and is_same_name(key, str(path[-1]))]
    return (*path[:-1], named[0]) if len(named) == 1 else ()


# --- without values ---------------------------------------------------------------------------------------------------
def _mask_violation(violation: Violation) -> Violation:
    """A violation without what it shows of the sent values. The words of the schema and of this proxy stay whole, also
    if a value is the same word: a gap in them would give the value away."""
    message, hint, quoted = violation.message, violation.hint, violation.quoted
    if quoted and message.endswith(quoted):
        message = message.removesuffix(quoted) + MASK
    elif quoted:
        before, found, after = hint.rpartition(quoted)
        message, hint = (message, f"{before}{MASK}{after}") if found else (MASK, MASK)
    message, hint = message[:_LOOKED_AT], hint[:_LOOKED_AT]
    if not is_plain(message) or not is_plain(hint):
        message, hint = mask_credentials(message), mask_credentials(hint)
    shown = violation.value if violation.value is None or isinstance(violation.value, Absent) else MASK
    return Violation(  # `replace` takes several times as long
        violation.code, violation.path, message, violation.expected, hint, violation.severity, shown,
        sensitive=True, keyword=violation.keyword, limit=violation.limit,
    )  # fmt: skip


def _mask_result(record: CallRecord, result: ToolResult, violations: tuple[Violation, ...]) -> ToolResult:
    """The answer without what it shows of the sent values."""
    failure, came, misuse = result.failure, result.call, result.failure.container
    # The words of a hook or of the tool may quote what was sent in any form, and are masked whole.
    by_hook = record.code == CALL_NOT_ALLOWED.name
    is_quoting = by_hook or record.outcome in _OF_THE_TOOL or not _QUOTING.isdisjoint(failure.details)
    details = {
        name: MASK if by_hook or name in _QUOTING else str(text)[:_LONGEST_DETAIL]
        for name, text in failure.details.items()
    }
    is_hint_quoting = is_quoting or misuse is not None  # the hint about a container repeats the arguments
    kept = Failure(
        replace(failure.code, name=MASK) if record.code == MASK else failure.code,  # the tool named it after a value
        MASK if is_quoting else failure.message[:_LOOKED_AT],
        violations,
        failure.hint and MASK if is_hint_quoting else failure.hint[:_LOOKED_AT],
        details,
        failure.status,
        failure.retryable,
        container=None if misuse is None else replace(misuse, attempted=None, arguments=ABSENT),
        type_related=failure.type_related,
    )
    return ToolResult(
        ToolCall(came.tool[:_LONGEST], NO_ARGUMENTS, came.call_id, Conversation("", came.conversation.rung)),
        kept,
        result.attempt,
        result.escalated,
        result.repeated,
        tuple([MASK] * len(result.history)) if is_quoting else result.history,
        result.accepts,
        example_complete=False,
        limits=result.limits,
        finalising=result.finalising,
    )
