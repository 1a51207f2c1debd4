"""The places of a refused call that a correction may change: those that failed, and those that the hints name."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.check.validation import Check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.explain.explain import list_violations
from proxy.core.explain.misplaced import hinted_places
from proxy.core.model.codes import Severity
from proxy.core.model.values import Document, Failure, JsonValue, ToolCall, Violation


def list_failing_places(check: Check, arguments: JsonValue, violations: Sequence[Violation]) -> list[tuple[str, ...]]:
    """The places of the violations, in text, and those where the unrepaired arguments break the schema: a place that a
    repair rule can mend has no violation, but may be corrected too. The list includes the members that the hints of
    either ask a model to rename or move."""
    found = list(violations)
    if not check.accepts(arguments):
        found += list_violations(check, arguments, ())
    places = [item.path for item in found if item.severity is Severity.ERROR]
    places += hinted_places(check, arguments, found)
    return [tuple(map(str, path)) for path in places]


def find_failing_places(call: ToolCall, policy: ToolPolicy, failure: Failure) -> list[tuple[str, ...]]:
    """The places of a refused call that a correction may change; no body at all counts as no arguments."""
    document, failed = call.arguments, list_failed(failure)
    if not failed or policy.check is None or not isinstance(document, Document):
        return failed
    value: JsonValue = {} if document.text == b"" else document.value
    return list_failing_places(policy.check, value, failure.violations)


def list_failed(failure: Failure) -> list[tuple[str, ...]]:
    """The places that a failure names as wrong, in text."""
    return [tuple(map(str, item.path)) for item in failure.violations if item.severity is Severity.ERROR]
