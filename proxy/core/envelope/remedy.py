"""The last line of an answer: what to do next, by what happened.

A refusal says change it, a rate limit or an outage says wait, what can never work says so, and an escalation says what
to tell the user. `retryable`, `status` and this line never disagree.
"""

from __future__ import annotations

from typing import Final

from proxy.core.display.suggestions import quote_name
from proxy.core.envelope.view import show_path
from proxy.core.model import codes
from proxy.core.model.codes import Category, Severity
from proxy.core.model.values import Document, Failure, ToolResult

# Compozy gap 5: the corrective instruction of a final output.
_JSON_ONLY: Final = (
    "Please correct these errors and answer again with the corrected JSON only: no other text around it."
)


_ASK: Final = "Do not answer with guessed values: tell the user what is missing and ask for it."


def summarize_escalation(result: ToolResult) -> str:
    """The first line of an escalation (Acode FR-044)."""
    number = result.attempt.number if result.attempt else 0
    if _names_unknown(result) and not all(quote_name(result.call.tool) in line for line in result.history):
        return f"{number} calls of this conversation named tools that are not known."
    subject = f"Tool {quote_name(result.call.tool)} validation" if result.call.tool else "The validation of the call"
    return f"{subject} failed after {number} attempt{'' if number == 1 else 's'}."


def write_remedy(result: ToolResult) -> str:
    """What to do next, in one line."""
    failure = result.failure
    if result.finalising and failure.violations:
        return _ASK if result.escalated else _JSON_ONLY
    if result.escalated:
        return _write_stop(result)
    if failure.status in _CANNOT and not failure.may_retry:
        return "The tool's service cannot do this at all: no repetition helps. Tell the user."
    mendable = failure.code.category in (Category.INPUT_ERROR, Category.NOT_FOUND)
    if failure.may_retry and failure.hint and failure.status is not None and mendable:  # the tool says what to do
        return "Change the call as the tool says, and call it again."
    if failure.code is codes.RESOURCE_NOT_FOUND and failure.may_retry and _sent_nothing(result):
        return "The call names nothing that could be changed: tell the user."
    if failure.may_retry == failure.code.retryable:
        return _name_remedy(failure) or failure.code.remedy
    return "You may call the tool again." if failure.may_retry else "Do not repeat this call; tell the user."


# What to do about a value, where that is one thing; every other code: correct it.
_VERBS: Final = {codes.REQUIRED_MISSING: "add", codes.STRING_LENGTH: "change the length of"}


def _name_remedy(failure: Failure) -> str:
    """The remedy with the one place that is wrong; '' where there are several, or none."""
    found = [violation for violation in failure.violations if violation.severity is Severity.ERROR]
    if len(found) != 1 or not found[0].path or failure.code not in (codes.INVALID_ARGUMENTS, _REJECTED):
        return ""
    return f"Please {_VERBS.get(found[0].code, 'correct')} {show_path(found[0].path)} and call the tool again."


_REJECTED: Final = codes.UPSTREAM_REJECTED_ARGUMENTS


# Not implemented; HTTP version not supported (RFC 9110 sections 15.6.2 and 15.6.6).
_CANNOT: Final = frozenset({501, 505})


def _sent_nothing(result: ToolResult) -> bool:
    arguments = result.call.arguments
    return isinstance(arguments, Document) and (arguments.text == b"" or arguments.value in ({}, None))


def _names_unknown(result: ToolResult) -> bool:
    """Whether all that failed were calls of tools that are not known."""
    return bool(result.history) and all(": Unknown tool " in line for line in result.history)


def _write_stop(result: ToolResult) -> str:
    """What to do after the last attempt: what to tell the user is what is known to be wrong."""
    failure, tool = result.failure, quote_name(result.call.tool) if result.call.tool else "a tool"
    failed_with = failure.details.get("failed_with", "")
    if failure.container is not None:
        return f"Do not call {tool} with parameters again: it groups functions. Tell the user which one is needed."
    if failed_with == codes.UNKNOWN_TOOL.name or _names_unknown(result):
        return "Do not call tools that are not known: go on with those that are, or tell the user what is needed."
    found = [violation.code for violation in failure.violations]
    if not found or codes.REQUIRED_MISSING in found:
        if not found:
            return f"Do not call {tool} like this again: tell the user why it was refused, and ask how to go on."
        return f"Do not call {tool} with guessed arguments again: tell the user what is missing and ask for it."
    return f"Do not call {tool} with guessed arguments again: tell the user what is refused, and ask what to send."
