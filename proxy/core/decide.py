"""The one decision: may this call go to its tool? No other room makes a `CheckedCall`.

Order (house.md): a container with parameters ends here; unreadable JSON ends here; what the schema accepts goes on as
the very bytes that came; what it refuses is repaired, judged again, and goes on rewritten or not at all. `validation:
off` and `mode: report` are the operator's word that a tool takes anything; the call is then marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from proxy.core import codes
from proxy.core.container import check_container
from proxy.core.explain import invalid_json, violations
from proxy.core.jsontext import dumps_known
from proxy.core.mending import mended
from proxy.core.misplaced import notices, unknown_fields
from proxy.core.model import (
    ABSENT,
    CheckedCall,
    Decision,
    Document,
    Failure,
    Forward,
    JsonProblem,
    JsonValue,
    Reject,
    Repair,
    ToolCall,
    Violation,
)
from proxy.core.policy import Mode, ToolPolicy, UnknownKeys
from proxy.core.repair import Repaired, repair
from proxy.core.respell import has_integral_float, is_integral_float, respell_integers
from proxy.core.strict import respell_keys
from proxy.core.validation import Check

# What is said where the repair engine gave up (`repair.MAX_WORK`).
_TOO_MUCH: Final = (
    "The arguments are too large or too deeply nested to be repaired: send less in one call, with every value in the "
    "type the tool asks for."
)

# What nearly every call asks for: CPython 3.11 takes longer to look up a member of an enum than to call a function.
_ENFORCED: Final = Mode.ENFORCE
_AS_SCHEMA: Final = UnknownKeys.SCHEMA
_ERROR: Final = codes.Severity.ERROR


def decide(call: ToolCall, policy: ToolPolicy) -> Decision:
    """Forward or Reject. Pure and deterministic: the same call under the same policy gets the same decision.

    Takes the call as decoded and the compiled policy of its tool; never raises.
    """
    decision = _judge(call, policy)
    if policy.mode is _ENFORCED or (isinstance(decision, Forward) and not decision.checked.repairs):
        return decision
    return _report(call, decision)


def let_through(call: ToolCall, failure: Failure) -> Forward:
    """Report-only, for a call that has no policy because its tool is unknown (`failure` says so): it goes on as it
    came, and what an enforced route would have answered is kept for the books."""
    return _report(call, Reject(failure))


def _report(call: ToolCall, decision: Decision) -> Forward:
    """Report-only: the client's own bytes go on, and what an enforced route would have done is kept for the books."""
    text = call.arguments.text if isinstance(call.arguments, Document) else call.raw
    value = call.arguments.value if isinstance(call.arguments, Document) else ABSENT
    if isinstance(decision, Reject):
        return Forward(CheckedCall(call, text, value, enforced=False, would=decision.failure))
    return Forward(replace(decision.checked, arguments=text, value=value, enforced=False))


def _judge(call: ToolCall, policy: ToolPolicy) -> Decision:
    if policy.container is not None and (misuse := check_container(call, policy)) is not None:
        return Reject(misuse)
    document = call.arguments
    if isinstance(document, JsonProblem):
        return Reject(_failure(call, (invalid_json(document),)))
    if policy.check is None or policy.container is not None:
        return Forward(CheckedCall(call, document.text, document.value, document.repairs))
    return _validate(call, document, policy, policy.check)


def _validate(call: ToolCall, document: Document, policy: ToolPolicy, check: Check) -> Decision:
    """Validate first; repair only what was refused; validate again (repair.md section 2)."""
    if document.text == b"" and "empty_arguments" not in policy.repair.rules:
        return Reject(_failure(call, (invalid_json(JsonProblem("no arguments", 1, 1)),)))
    value, accepted = document.value, None
    if document.text and policy.unknown_keys is _AS_SCHEMA:  # nearly every call goes no further than this
        accepted = check.accepts(value)
        if accepted and _is_final(value, policy):
            return Forward(CheckedCall(call, document.text, value, document.repairs))
    repaired = _repaired(document, policy, check, accepted)
    found = tuple(_findings(check, repaired, policy))
    if found and any(violation.severity is _ERROR for violation in found):
        return Reject(_failure(call, found, _TOO_MUCH if repaired.exhausted else ""))
    text = dumps_known(repaired.value) if repaired.repairs else document.text
    return Forward(CheckedCall(call, text, repaired.value, document.repairs + repaired.repairs, found))


def _is_final(value: JsonValue, policy: ToolPolicy) -> bool:
    """Whether nothing is done or said about a value that the schema accepts: what `_repaired` and `_findings` would
    come to, without going there."""
    left = policy.leftover
    if left.told:
        return False
    if left.integers is None:
        return not has_integral_float(value)
    if type(value) is not dict:
        return False
    for key in left.integers:  # noqa: SIM110 - a generator would cost more than the look
        if is_integral_float(value.get(key)):
            return False
    return True


def _repaired(document: Document, policy: ToolPolicy, check: Check, accepted: bool | None) -> Repaired:
    """The value as the schema takes it: as it came, or repaired; else as far as the repairs got. `accepted` is what the
    schema says of the value, None where it was not asked yet."""
    value, rules = document.value, policy.repair
    if document.text == b"" or (value is None and "empty_arguments" in rules.rules and not check.accepts(None)):
        return Repaired({}, (Repair("empty_arguments", ()),), check.accepts({}))
    strict = policy.unknown_keys is UnknownKeys.REFUSE
    value, renames = respell_keys(check, value, rules) if strict else (value, ())
    if check.accepts(value) if accepted is None else accepted:
        value, respelt = respell_integers(check, value, rules)
        return Repaired(value, renames + respelt, True)
    short = mended(check, value, rules)
    repaired = repair(check, value, rules) if short is None else Repaired(*short, True)
    return replace(repaired, repairs=renames + repaired.repairs) if renames else repaired


def _findings(check: Check, repaired: Repaired, policy: ToolPolicy) -> Iterator[Violation]:
    """Everything there is to say about the value: what it breaks, what it must not hold, what it should not."""
    if not repaired.accepted:
        yield from violations(check, repaired.value, repaired.ambiguous)
    if policy.unknown_keys is not UnknownKeys.SCHEMA:
        refuse = policy.unknown_keys is UnknownKeys.REFUSE
        yield from unknown_fields(check, repaired.value, codes.Severity.ERROR if refuse else codes.Severity.WARNING)
    yield from notices(check, repaired.value)


def _failure(call: ToolCall, found: tuple[Violation, ...], hint: str = "") -> Failure:
    sent: JsonValue = call.arguments.value if isinstance(call.arguments, Document) else ABSENT
    return Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, found, hint, sent=sent)
