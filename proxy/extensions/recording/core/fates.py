"""What became of a call, reduced to what two judgements of it can be compared by.

reduce_decision   a Decision as a Fate: forwarded or not, the arguments that go, repairs, errors
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
    """What became of a call. `errors` are (code, path); `words` are what the model reads of each; `code` is that of the
    failure, where no place is to blame."""

    forwarded: bool
    arguments: bytes = field(default=b"", repr=False)
    repairs: tuple[tuple[str, str], ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = field(default=(), repr=False)
    code: str = ""


def reduce_decision(decision: Decision) -> Fate:
    """The fate that a decision means."""
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
    told = (before.code, before.errors, before.words)
    return "same" if told == (after.code, after.errors, after.words) else "other_answer"
