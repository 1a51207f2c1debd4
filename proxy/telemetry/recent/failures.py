"""What is kept of a call that was refused, repaired or failed, so that the operator can open it later; never a value.

Values are removed before anything is kept: each violation is worded as if its value were a secret, so `Actual: "***"`
replaces the value that the model read, and texts that quote what was sent have the quotes masked. So this masks more
than the answer does: `core/display/preview.py` hides secrets alone, since the model knows what it sent. The text that
the model read is composed only when somebody opens the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import MASK, make_hider
from proxy.core.display.secrets import mask_credentials, may_hold_secret
from proxy.core.display.standins import describe_value
from proxy.core.display.suggestions import is_same_name
from proxy.core.envelope.feedback import write_feedback
from proxy.core.envelope.view import show_name, show_path
from proxy.core.explain.advice import add_advice
from proxy.core.explain.places import find_value
from proxy.core.json.jsontext import dumps
from proxy.core.model.codes import CALL_NOT_ALLOWED, Severity
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    Absent,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    JsonValue,
    Pointer,
    ToolCall,
    ToolResult,
    Violation,
)
from proxy.interfaces import CallRecord, ReplacedAnswer

# The most errors and repairs kept of one call, as many as the log's line lists.
MOST_LISTED: Final = 20
_LONGEST: Final = 200
# The most texts and numbers of the sent arguments that are masked in kept texts.
_MOST_LEAVES: Final = 256
_SHORTEST_LEAF: Final = 3
_NO_LEAVES: Final = (bool, Absent)
# The outcomes of calls whose failure is worded by the tool.
_OF_THE_TOOL: Final = frozenset({"tool_error", "upstream_error"})
# Details of a failure that quote the upstream, which may quote the call.
_QUOTING: Final = frozenset({"original_error", "answer_errors", "errors", "hint"})
_NO_ARGUMENTS: Final = Document(b"", None)
_USUAL: Final = FeedbackLimits()

Row = dict[str, Any]


@value_class
class KeptFailure:
    """The errors and repairs of one call without values, and the proxy's own answer to it, if it gave one. `got` says
    of each error what type the value had; `replaced` are a model's answers before that in which the call stood, as the
    entry shows them."""

    violations: tuple[Violation, ...]
    got: tuple[str, ...]
    repairs: tuple[Row, ...]
    answer: ToolResult | None
    policy: ToolPolicy | None
    replaced: tuple[Row, ...] = ()

    @property
    def errors(self) -> list[Row]:
        """The errors as rows, in the order of the call's own list."""
        return [_describe_error(*pair) for pair in zip(self.violations, self.got, strict=True)]

    @property
    def length(self) -> int:
        """The characters of what a client may have made long: each error's words, and the keys on the way to it."""
        length = 0
        for each in self.violations:
            length += len(each.message) + len(each.hint)
            length += sum([len(step) for step in each.path if isinstance(step, str)])
        return length + (len(dumps(self.replaced)) if self.replaced else 0)

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
        """The text that the model read, with every value masked; '' where the proxy gave no answer of its own. An
        example is made from the schema alone."""
        return write_feedback(add_advice(self.answer, self.policy)) if self.answer is not None else ""


def keep_failure(record: CallRecord) -> KeptFailure:
    """What is kept of a finished call."""
    sent = _find_sent(record)
    repairs = _describe_repairs(record, sent)
    came = list_errors(record)[:MOST_LISTED]
    replaced = tuple([_keep_replaced(each) for each in record.replaced])
    if not came and record.result is None:  # a repaired call
        return KeptFailure((), (), repairs, None, record.policy, replaced)
    limits = _USUAL if record.policy is None else record.policy.feedback
    leaves = _list_leaves(sent)
    if record.outcome in _OF_THE_TOOL:
        violations = tuple([_mask_words(each) for each in came])
    else:
        texts = " ".join([text for each in came for text in (each.message, each.hint)])
        mask = mask_credentials if may_hold_secret(texts) else str
        quoted = [leaf for leaf in leaves if leaf in texts or "*" in leaf]  # a mask may complete one that holds a star
        violations = tuple([_mask_violation(each, limits, quoted, mask) for each in came])
    got = tuple([describe_value(each.value) for each in came])
    answer = None if record.result is None else _mask_result(record.result, violations, leaves)
    if answer is not None and record.code == MASK:  # the tool has named its error after a value
        answer = replace(answer, failure=replace(answer.failure, code=replace(answer.failure.code, name=MASK)))
    by_hook = record.code == CALL_NOT_ALLOWED.name
    if answer is not None and (
        by_hook or record.outcome in _OF_THE_TOOL or not _QUOTING.isdisjoint(answer.failure.details)
    ):
        details = dict.fromkeys(answer.failure.details, MASK) if by_hook else answer.failure.details
        failure = replace(answer.failure, message=MASK, hint=MASK if answer.failure.hint else "", details=details)
        answer = replace(answer, failure=failure, history=(MASK,) * len(answer.history))
    return KeptFailure(violations, got, repairs, answer, record.policy, replaced)


def _keep_replaced(answer: ReplacedAnswer) -> Row:
    """An answer that another one took the place of: its calls as they came, each with what the model read of it."""
    return {"tokens": answer.tokens, "calls": [_keep_replaced_call(record, answer.valid) for record in answer.calls]}


def _keep_replaced_call(record: CallRecord, valid: str) -> Row:
    kept = keep_failure(record)
    found = {"gen_ai.tool.name": show_name(record.tool), **kept.fields()}
    if record.code:
        found["error.type"] = record.code
    return {**found, "model_read": kept.compose_answer() or valid}


def list_errors(record: CallRecord) -> list[Violation]:
    """The violations of a call that are errors, and not warnings."""
    return [each for each in record.violations if each.severity is Severity.ERROR]


def describe_errors(record: CallRecord) -> Row:
    """What each error expected and the type of the value sent, as an entry shows them; {} without errors."""
    errors = [
        {"path": show_path(each.path), "code": each.code.name, "expected": each.expected[:_LONGEST],
         "got": describe_value(each.value)}
        for each in list_errors(record)[:MOST_LISTED]
    ]  # fmt: skip
    return {"errors": errors} if errors else {}


def _find_sent(record: CallRecord) -> JsonValue:
    call = record.call
    return call.arguments.value if call is not None and isinstance(call.arguments, Document) else ABSENT


def _describe_error(kept: Violation, got: str) -> Row:
    found = {
        "path": show_path(kept.path), "code": kept.code.name, "expected": kept.expected[:_LONGEST],
        "got": got, "message": kept.message[:_LONGEST],
    }  # fmt: skip
    if kept.hint:
        found["hint"] = kept.hint[:_LONGEST]
    return found


def _describe_repairs(record: CallRecord, sent: JsonValue) -> tuple[Row, ...]:
    if not record.repairs:
        return ()
    went = record.checked.value if record.checked is not None else ABSENT
    return tuple([_describe_repair(each.rule, each.path, sent, went) for each in record.repairs[:MOST_LISTED]])


def _describe_repair(rule: str, path: Pointer, sent: JsonValue, went: JsonValue) -> Row:
    found = {"rule": rule, "path": show_path(path)}
    before, after = find_value(sent, path), find_value(went, path)
    if after is ABSENT and (renamed := _find_new_name(path, sent, went)) is not None:
        found["renamed"] = show_path(renamed)
        after = find_value(went, renamed)
    if before is not ABSENT or after is not ABSENT:
        found["got"], found["became"] = describe_value(before), describe_value(after)
    return found


def _find_new_name(path: Pointer, sent: JsonValue, went: JsonValue) -> Pointer | None:
    """The place in what was sent on of a key that a repair gave another name."""
    if not path:
        return None
    name, before, after = path[-1], find_value(sent, path[:-1]), find_value(went, path[:-1])
    if not isinstance(name, str) or not isinstance(before, dict) or not isinstance(after, dict):
        return None
    same = [key for key in after if key not in before and is_same_name(key, name)]
    return (*path[:-1], same[0]) if len(same) == 1 else None


# --- without values ---------------------------------------------------------------------------------------------------
def _list_leaves(value: JsonValue) -> tuple[str, ...]:
    """Texts and numbers inside the arguments that a sentence may quote, longest first."""
    found: set[str] = set()
    stack = [value]
    looked_at = 0
    while stack and looked_at < _MOST_LEAVES:
        item = stack.pop()
        looked_at += 1
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list):
            stack += item[:_MOST_LEAVES]
        elif item is not None and not isinstance(item, _NO_LEAVES):
            found.add(str(item))
    return tuple(sorted([text for text in found if len(text) >= _SHORTEST_LEAF], key=len, reverse=True))


def _hide(text: str, leaves: Sequence[str]) -> str:
    for leaf in leaves:
        if leaf in text:
            text = text.replace(leaf, MASK)
    return text


def _mask_violation(
    violation: Violation, limits: FeedbackLimits, leaves: Sequence[str], mask: Callable[[str], str]
) -> Violation:
    value = violation.value
    hider = make_hider(value, limits, path=violation.path, sensitive=True)
    message = _hide(mask(hider.hide_value(violation.message[:4096])), leaves)
    hint = _hide(mask(hider.hide_value(violation.hint[:4096])), leaves) if violation.hint else ""
    shown = value if value is None or isinstance(value, Absent | bool) else MASK
    return Violation(  # `replace` takes several times as long
        violation.code, violation.path, message, violation.expected, hint, violation.severity, shown,
        sensitive=True, keyword=violation.keyword, limit=violation.limit,
    )  # fmt: skip


def _mask_words(violation: Violation) -> Violation:
    """A violation that the tool found: its words may quote what was sent in any form, and are masked whole."""
    shown = MASK if violation.expected else ""
    hint = MASK if violation.hint else ""
    return Violation(violation.code, violation.path, MASK, shown, hint, violation.severity, MASK, sensitive=True)


def _mask_result(result: ToolResult, violations: tuple[Violation, ...], leaves: Sequence[str]) -> ToolResult:
    """The answer with nothing in it that was sent."""
    failure, came = result.failure, result.call
    kept = Failure(
        failure.code,
        _hide(failure.message[:4096], leaves),
        violations,
        _hide(failure.hint[:4096], leaves),
        dict(_mask_details(failure.details.items(), leaves)) if failure.details else {},
        failure.status,
        failure.retryable,
        container=None if failure.container is None else replace(failure.container, attempted=None, arguments=ABSENT),
        type_related=failure.type_related,
    )
    return ToolResult(
        ToolCall(came.tool[:_LONGEST], _NO_ARGUMENTS, came.call_id, Conversation("", came.conversation.rung)),
        kept,
        result.attempt,
        result.escalated,
        result.repeated,
        tuple([_hide(line, leaves) for line in result.history]),
        result.accepts,
        example_complete=False,
        limits=result.limits,
        finalising=result.finalising,
    )


def _mask_details(details: Any, leaves: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name, text in details:
        yield name, MASK if name in _QUOTING else _hide(str(text)[:1024], leaves)
