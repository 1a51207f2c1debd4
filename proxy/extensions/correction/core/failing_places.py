"""The places of a refused call that a correction may change: those that failed, and those that the hints name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from proxy.core.contract.policy import ToolPolicy
from proxy.core.explain.misplaced import find_named_places, find_wrapper, list_unknown_beside
from proxy.core.explain.places import find_nodes_at
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import Document, Failure, JsonValue, Pointer, ToolCall, Violation
from proxy.plugin import Check, find_nearest, list_violations

_MOST_FOUND: Final = 100
# Names compared with a wrong one.
_MOST_NAMES: Final = 200


def list_failing_places(check: Check, arguments: JsonValue, violations: Sequence[Violation]) -> list[tuple[str, ...]]:
    """Returns the places of the violations, in text, and those where the unrepaired arguments break the schema. A place
    that a repair rule can mend has no violation, but may be corrected too. The list includes the members that the hints
    of either ask a model to rename or move."""
    found = list(violations)
    if not check.accepts(arguments):
        found += list_violations(check, arguments, ())
    places = [item.path for item in found if item.severity is Severity.ERROR]
    places += _list_hinted_places(check, arguments, found)
    return [tuple(map(str, path)) for path in places]


def _list_hinted_places(check: Check, root: JsonValue, found: Iterable[Violation]) -> Iterator[Pointer]:
    """Yields the places, beside those of the violations, that a model has to touch to do what their hints say. These
    are undeclared keys beside a missing one, the place of a missing key that was sent elsewhere, and the declared name
    of an undeclared key. If the arguments are in a wrapper, they are all arguments."""
    if find_wrapper(check, root):
        yield ()
    found = list(islice(found, _MOST_FOUND))
    missing = {v.path: v for v in found if v.code is codes.REQUIRED_MISSING and v.path}
    sent = find_named_places(root, {str(path[-1]) for path in missing})
    for path in missing:
        yield from ((*path[:-1], key) for key in list_unknown_beside(check, root, path[:-1]))
        elsewhere = [place for place in sent[str(path[-1])] if place != path]
        yield from elsewhere if len(elsewhere) == 1 else ()
    for violation in found:
        if violation.code is codes.UNKNOWN_FIELD and violation.path:
            yield violation.path
            declared = {key for node in find_nodes_at(check, violation.path[:-1]) for key in node.properties}
            nearest = find_nearest(str(violation.path[-1]), sorted(declared)[:_MOST_NAMES])
            yield from () if nearest is None else ((*violation.path[:-1], nearest),)


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
