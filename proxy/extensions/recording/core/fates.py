"""The fate of a call, reduced to the parts that two judgements are compared by.

reduce_decision   a Decision as a Fate: forwarded or not, the sent arguments, repairs, errors
compare_fates     how a second Fate of the same call differs from the first
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal

from proxy.core.json.jsontext import format_pointer
from proxy.core.model.codes import Severity
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Decision, Forward

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
    """How a call's fate changed."""
    if before.forwarded != after.forwarded:
        return "newly_accepted" if after.forwarded else "newly_refused"
    if after.forwarded:
        return "same" if before.arguments == after.arguments else "other_arguments"
    is_same = (before.code, before.errors, before.words) == (after.code, after.errors, after.words)
    return "same" if is_same else "other_answer"
