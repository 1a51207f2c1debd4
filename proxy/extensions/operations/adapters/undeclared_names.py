"""Names in a query or a form that no parameter declares, and those that services may take for a declared one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.core.display.preview import clean_text
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import Violation
from proxy.extensions.operations.core.http.multipart import find_declared, fold_name, list_hidden_names
from proxy.extensions.operations.core.http_operation import HttpOperation
from proxy.plugin import OTHER_SPELLING, QueryPolicy

_SHOWN: Final = 60  # characters of a name in a message
_MOST_UNKNOWN: Final = 100


def find_hidden(declared: list[str], text: str) -> Iterator[Violation]:
    """Declared names behind a `;`, which some services read and others take for a part of the value before it."""
    folded = {fold_name(name): name for name in declared}
    for name in dict.fromkeys(list_hidden_names(text)):
        if (match := find_declared(name, folded)) is not None:
            message = f"'{clean_text(name, _SHOWN)}' behind a ';' is read as '{match}' by some services"
            yield Violation(codes.UNKNOWN_FIELD, (match,), message, hint="Escape the ';' as %3B, and join by '&'.")


def find_undeclared(operation: HttpOperation, declared: list[str], names: list[str], place: str) -> Iterator[Violation]:
    """Yields names of a query or a form (`place`) that are not among the `declared` ones. One that some service reads
    as a declared name is an error, any other an error or a warning as the operation says."""
    folded = {fold_name(name): name for name in declared}
    others = ("form", "file") if place == "query" else ("query", "file")
    elsewhere = {fold_name(each.declared.name): each.declared.name for each in operation.in_place(*others)}
    what, other = ("query parameter", "form") if place == "query" else ("field of the form", "query")
    unknown = 0
    for name in names:
        shown = clean_text(name, _SHOWN)
        if (match := find_declared(name, folded)) is not None:
            message = f"The {what} '{shown}' is read as '{match}' by some services, and as unknown by others"
            hint = f"Write it as '{match}'."
            yield Violation(codes.UNKNOWN_FIELD, (name,), message, hint=hint, keyword=OTHER_SPELLING, limit=match)
        elif (match := find_declared(name, elsewhere)) is not None:
            message = f"The {what} '{shown}' is read as '{match}' of the {other} by some services"
            yield Violation(codes.UNKNOWN_FIELD, (name,), message, hint=f"Leave it out: it is in the {other}.")
        elif (unknown := unknown + 1) <= _MOST_UNKNOWN:
            strict = operation.query is QueryPolicy.STRICT or (place == "form" and operation.closed)
            hint = f"Leave it out; known: {', '.join(sorted(declared)) or 'none'}." if strict else ""
            severity = Severity.ERROR if strict else Severity.WARNING
            yield Violation(codes.UNKNOWN_FIELD, (name,), f"Unknown {what} '{shown}'", hint=hint, severity=severity)
