"""The one decision: may this call go to its tool? No other file makes a `CheckedCall`.

The steps: a container with parameters is refused; unreadable JSON is refused. Arguments that the schema
accepts are forwarded as the very bytes that came. Refused arguments are repaired, judged again, and then forwarded
rewritten or refused. `validation: off` and `mode: report` are the operator's word that a tool takes anything; the call
is then marked as unchecked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.container import check_container
from proxy.core.contract.policy import LeakedMarkup, Mode, ToolPolicy, UnknownKeys
from proxy.core.contract.request_rules import OTHER_SPELLING
from proxy.core.explain.explain import explain_invalid_json, list_violations
from proxy.core.explain.leaked import find_leaked_markup
from proxy.core.explain.undeclared import find_unknown_fields, has_only_undeclared, list_notices
from proxy.core.json.embedded import find_embedded
from proxy.core.json.fast_json import has_pair
from proxy.core.json.jsontext import TRUSTED, TextLimits, are_equal, dumps_known, parse
from proxy.core.json.strictreader import KnownText, UnreadDocument
from proxy.core.model import codes
from proxy.core.model.value_class import UNREAD, Lazy, value_class
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Decision,
    Document,
    Failure,
    Forward,
    JsonProblem,
    JsonValue,
    Pointer,
    Reject,
    Repair,
    ToolCall,
    Violation,
)
from proxy.core.repair.engine import Repaired, repair
from proxy.core.repair.respell import INTEGRAL_FRACTION, RESPELT, respell_integers, respell_keys, respell_text
from proxy.core.rules.rules import HOOK
from proxy.core.schema.matching import share_search_budget

# The hint of an answer where the repair engine gave up (`work.REPAIRING`).
_TOO_MUCH: Final = (
    "The arguments are too large or too deeply nested to be repaired: send less in one call, with every value in the "
    "type the tool asks for."
)

_TOO_LONG: Final = Violation(codes.CONSTRAINT, (), "The arguments are too large once repaired")

# The rule that finds a final output in prose.
_EMBEDDED: Final = "embedded_json"
_RESPELT: Final = {RESPELT}
_REPLACED: Final = Repair(HOOK, ())
_TEXT: Final = TextLimits()

# Constants, because each call reads them and a look-up of an enum's member is slow.
_ENFORCED: Final = Mode.ENFORCE
_AS_SCHEMA: Final = UnknownKeys.SCHEMA
_REFUSE: Final = UnknownKeys.REFUSE
_FORWARD: Final = UnknownKeys.FORWARD
_NOT_GUARDED: Final = LeakedMarkup.OFF


def decide(call: ToolCall, policy: ToolPolicy) -> Decision:
    """Forward or Reject. Pure and deterministic: the same call under the same policy gets the same decision.

    Takes the call as decoded and the compiled policy of its tool; never raises."""
    if policy.check is None or policy.check.linear:
        decision = _judge(call, policy)
    else:  # the first verdict, the repair and the second verdict share one budget for patterns that backtrack
        with share_search_budget():
            decision = _judge(call, policy)
    if policy.channels is None and policy.operation is None and policy.mode is _ENFORCED:
        return decision
    return complete_decision(call, policy, decision)


def decide_accepted(call: ToolCall, policy: ToolPolicy) -> Decision | None:
    """Returns the decision of `decide` if the schema accepts the arguments as sent, or None. It checks them once."""
    document, check = call.arguments, policy.check
    if check is None or not check.linear or not isinstance(document, Document):
        return None
    if policy.unknown_keys not in (_AS_SCHEMA, _FORWARD) or not check.accepts(document.value):
        return None
    return complete_decision(call, policy, _judge(call, policy, is_accepted=True))


def prepare(policy: ToolPolicy) -> None:
    """Writes the code that judges a tool's calls and its answers. Takes milliseconds, or a second
    for a very large schema, so it runs in a thread."""
    if policy.check is not None:
        policy.check.prepare(everywhere=bool(policy.repair.rules))
    if policy.answer is not None:
        policy.answer.check.prepare(everywhere=False)


def restore_decision(
    call: ToolCall,
    document: Document,
    arguments: bytes | None,
    repairs: tuple[Repair, ...],
    found: tuple[Violation, ...],
    hint: str = "",
    advice: tuple[tuple[str, ...], str, bool] | None = None,
) -> Decision:
    """The decision that `decide` made in a child process. `arguments` None: the call was refused for what was `found`;
    b'': it is forwarded as it came; otherwise it was repaired. The child process did not judge its path and query."""
    is_unread = type(document) is UnreadDocument
    if arguments is None and is_unread:
        meaning = codes.INVALID_ARGUMENTS.meaning
        return Reject(
            _UnreadFailure(codes.INVALID_ARGUMENTS, meaning, found, hint, sent=UNREAD, advice=advice, document=document)
        )
    if arguments is None:
        return Reject(replace(_failure(call, found, hint), advice=advice))
    text, made = (arguments, document.repairs + repairs) if arguments else (document.text, document.repairs)
    if is_unread:
        return Forward(_UnreadCall(call, text, UNREAD, made, found))
    value = parse(text, TRUSTED) if arguments else document.value
    if isinstance(value, JsonProblem):
        raise ValueError("repaired arguments are JSON")
    return Forward(CheckedCall(call, text, value, made, found))


def _read_arguments(call: CheckedCall) -> JsonValue:
    document = call.call.arguments
    is_as_sent = isinstance(document, Document) and document.text is call.arguments
    return document.value if isinstance(document, Document) and is_as_sent else parse(call.arguments, TRUSTED)


class _UnreadCall(CheckedCall):
    """A checked call whose value is read when it is first asked for: it takes many times the memory of its text."""

    value = Lazy(CheckedCall.value, _read_arguments)


@value_class
class _UnreadFailure(Failure):
    """A failure of arguments that are read when somebody asks what was `sent`: few answers show it."""

    document: Document | None = None
    sent = Lazy(Failure.sent, lambda failure: failure.document.value)


def complete_decision(call: ToolCall, policy: ToolPolicy, decision: Decision) -> Decision:
    """A restored decision with path and query judged, and made report-only where the policy says so."""
    if policy.channels is not None:
        decision = _add_violations(call, policy.channels.judge(call.params, call.query), decision)
    if policy.operation is not None:
        by_name, found = policy.operation.by_name, call.violations
        sent = call.arguments.value if isinstance(call.arguments, Document) else ABSENT
        # Arguments of a hook are in no request yet.
        is_own = isinstance(call.arguments, Document) and _REPLACED not in call.arguments.repairs
        if isinstance(decision, Forward) and decision.checked.value is not ABSENT:
            found += policy.operation.find_unwritable(
                decision.checked.value, sent if is_own and not by_name else ABSENT
            )
        decision = _add_violations(call, found, decision)
        if by_name and isinstance(decision, Reject) and policy.operation.find_unwritable(sent):
            return decision  # no request at all can be made of the call as it came
    if policy.mode is _ENFORCED or (isinstance(decision, Forward) and not decision.checked.repairs):
        return decision
    return forward_as_sent(call, decision)


def forward_as_sent(call: ToolCall, decision: Decision) -> Forward:
    """Report-only: forwards the client's own bytes, and records what an enforced route would have done."""
    text = call.arguments.text if isinstance(call.arguments, Document) else call.raw
    value = call.arguments.value if isinstance(call.arguments, Document) else ABSENT
    if isinstance(decision, Reject):
        return Forward(CheckedCall(call, text, value, enforced=False, would=decision.failure))
    return Forward(replace(decision.checked, arguments=text, value=value, enforced=False))


def _judge(call: ToolCall, policy: ToolPolicy, *, is_accepted: bool = False) -> Decision:
    if policy.container is not None and (misuse := check_container(call, policy)) is not None:
        return Reject(misuse)
    document = call.arguments
    if isinstance(document, JsonProblem) and policy.finalising:
        document = _find_final_output(call, document, policy)
    if isinstance(document, JsonProblem):
        return Reject(_failure(call, (explain_invalid_json(document),)))
    if policy.listed is not None:
        raise ValueError(f"{policy.tool!r} is judged in a child process")
    if policy.check is None or policy.container is not None:
        if type(document) is UnreadDocument:
            return Forward(_UnreadCall(call, document.text, UNREAD, document.repairs))
        return Forward(CheckedCall(call, document.text, document.value, document.repairs))
    return _validate(call, document, policy, policy.check, is_accepted)


def _find_final_output(call: ToolCall, problem: JsonProblem, policy: ToolPolicy) -> Document | JsonProblem:
    """A model's last word out of the prose around it, where exactly one object or array in the text is valid."""
    if policy.check is None or _EMBEDDED not in policy.repair.rules:
        return problem
    found: list[tuple[bytes, JsonValue]] = []
    for text, value in find_embedded(call.raw, _TEXT):
        if policy.check.accepts(value) and not any(are_equal(value, other) for _, other in found):
            found.append((text, value))
    return Document(*found[0], (Repair(_EMBEDDED, ()),)) if len(found) == 1 else problem


def _add_violations(call: ToolCall, found: tuple[Violation, ...], decision: Decision) -> Decision:
    """The decision on the arguments, extended by what is wrong in the request around them."""
    if not found or (isinstance(decision, Reject) and decision.failure.code is not codes.INVALID_ARGUMENTS):
        return decision
    if isinstance(decision, Forward):
        if any(violation.severity is codes.ERROR for violation in found):
            return Reject(_failure(call, found))
        return Forward(replace(decision.checked, warnings=decision.checked.warnings + found))
    # Arguments that were sent, under another spelling or unreadable: their own violation reports them already.
    sent: set[Pointer] = {(one.limit,) for one in found if one.keyword == OTHER_SPELLING}
    sent |= {one.path for one in found if one.code is codes.CONSTRAINT}
    own = [one for one in decision.failure.violations if one.code is not codes.REQUIRED_MISSING or one.path not in sent]
    return Reject(replace(decision.failure, violations=(*found, *own)))


def _validate(call: ToolCall, document: Document, policy: ToolPolicy, check: Check, is_accepted: bool) -> Decision:
    """Validates first, repairs only what was refused, and validates again (docs/engine.md)."""
    if document.text == b"" and "empty_arguments" not in policy.repair.rules:
        return Reject(_failure(call, (explain_invalid_json(JsonProblem("no arguments", 1, 1)),)))
    text = document.text
    # A text without `<`, plain or escaped, holds no markup: this spares most calls the search.
    leaks = policy.leaked_markup is not _NOT_GUARDED and (
        text.find(b"<") >= 0 or (text.find(b"\\") >= 0 and text.find(b"\\u003") >= 0)
    )
    if type(document) is UnreadDocument and type(text) is KnownText and text.accepted_by is check and not leaks:
        return Forward(_UnreadCall(call, text, UNREAD, document.repairs))
    repaired = _repair_document(document, policy, check, is_accepted)
    found: tuple[Violation, ...] = ()
    # An accepted value has no finding if no key is unknown or deprecated.
    is_open = policy.unknown_keys in (_AS_SCHEMA, _FORWARD) and "deprecated" not in check.schemas.mentioned
    if leaks or not is_open or not repaired.accepted:
        found = _list_findings(check, repaired, policy, leaks=leaks)
    if found and codes.ERROR in [violation.severity for violation in found]:
        mended = repaired.value if repaired.repairs else ABSENT
        return Reject(_failure(call, found, _TOO_MUCH if repaired.exhausted else "", mended))
    if repaired.repairs:
        is_respelt = text and {made.rule for made in repaired.repairs} == _RESPELT
        text = respell_text(text, repaired.value, repaired.repairs) if is_respelt else dumps_known(repaired.value)
        if len(text) > policy.max_body:
            return Reject(_failure(call, (_TOO_LONG,), _TOO_MUCH))
    return Forward(CheckedCall(call, text, repaired.value, document.repairs + repaired.repairs, found))


def _repair_document(document: Document, policy: ToolPolicy, check: Check, is_accepted: bool) -> Repaired:
    """The value as the schema accepts it, as it came or repaired; otherwise as far as the repairs got."""
    value = document.value
    stands_for_none = value is None and "empty_arguments" in policy.repair_in_force.rules and not check.accepts(None)
    if document.text == b"" or stands_for_none:
        return Repaired({}, (Repair("empty_arguments", ()),), check.accepts({}))
    renames: tuple[Repair, ...] = ()
    if policy.unknown_keys is _REFUSE:
        value, renames = respell_keys(check, value, policy.repair_in_force)
    if is_accepted or check.accepts(value):
        if not has_pair(document.text, INTEGRAL_FRACTION):
            return Repaired(value, renames, True)
        value, respelt = respell_integers(check, value, policy.repair_in_force)
        return Repaired(value, renames + respelt, True)
    repaired = repair(check, value, policy.repair_in_force, tool=policy.tool, refused=True)
    return replace(repaired, repairs=renames + repaired.repairs) if renames else repaired


def _list_findings(check: Check, repaired: Repaired, policy: ToolPolicy, *, leaks: bool) -> tuple[Violation, ...]:
    """Every violation of the value: broken keywords, content that it must not hold, and warnings."""
    found: list[Violation] = []
    if not repaired.accepted:
        found += list_violations(check, repaired.value, repaired.ambiguous)
        if policy.unknown_keys is _FORWARD and not repaired.ambiguous and has_only_undeclared(check, repaired.value):
            found = [replace(one, severity=codes.Severity.WARNING) for one in found]
    if policy.unknown_keys not in (_AS_SCHEMA, _FORWARD):
        forbidden = {one.path for one in found if one.code is codes.UNKNOWN_FIELD}
        refuse = policy.unknown_keys is _REFUSE
        severity = codes.ERROR if refuse else codes.Severity.WARNING
        unknown = find_unknown_fields(check, repaired.value, severity)
        found += [one for one in unknown if one.path not in forbidden]  # what the schema forbids is said once
    if leaks:
        found += find_leaked_markup(check, repaired.value, refuse=policy.leaked_markup is LeakedMarkup.REFUSE)
    if "deprecated" in check.schemas.mentioned:
        found += list_notices(check, repaired.value)
    return tuple(found)


def _failure(call: ToolCall, found: tuple[Violation, ...], hint: str = "", mended: JsonValue = ABSENT) -> Failure:
    sent: JsonValue = call.arguments.value if isinstance(call.arguments, Document) else ABSENT
    return Failure(codes.INVALID_ARGUMENTS, codes.INVALID_ARGUMENTS.meaning, found, hint, sent=sent, mended=mended)
