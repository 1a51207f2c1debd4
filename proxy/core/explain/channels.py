"""Path and query parameters -> violations: the text is read by its style, typed by its schema, and judged. Pure.

Text has no types, so `3` is the integer 3 where the schema takes an integer and the text "3" where it takes a text. A
number is read only where every reader takes it for the same: `1e2`, which some parsers read as 1, is no integer here.
What two frameworks could read differently is refused: a single value sent twice, an invalid escape, a name that
becomes a declared one where case or brackets do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.channels import Channels, JudgedParameter
from proxy.core.display.preview import clean_text
from proxy.core.explain.explain import list_violations
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import JsonValue, Pointer, Violation
from proxy.core.schema.http.parameter_text import is_of, read_pairs, read_path, split_query
from proxy.core.schema.http.parameters import Parameter

_SHOWN: Final = 60  # characters of a name in a message


def judge_channels(channels: Channels, params: Mapping[str, str], query: str) -> tuple[Violation, ...]:
    """Everything that is wrong with a request's path and query, and warnings for what nothing declares.

    Takes the decoded path parameters and the query as it was sent, without `?`.
    """
    found = [*_path(channels, params)]
    if channels.judges_query:
        found += _query(channels, query)
    return tuple(found)


def _path(channels: Channels, params: Mapping[str, str]) -> Iterator[Violation]:
    for parameter in channels.path:
        text = params.get(parameter.key)
        if text is not None:
            readings = read_path(parameter.declared, text)
            yield from (
                _judge_readings(parameter, readings)
                if readings
                else [explain_unreadable(parameter.declared, (parameter.declared.place, parameter.declared.name))]
            )


def _query(channels: Channels, query: str) -> Iterator[Violation]:
    pairs = split_query(query)
    if pairs is None:
        hint = "Escape each byte of the UTF-8 text as %XX."
        yield Violation(codes.CONSTRAINT, ("query",), "The query string is not escaped text in UTF-8", hint=hint)
        return
    taken: set[str] = set(channels.free)
    for parameter in channels.query:
        mine = [pair for pair in pairs if is_of(parameter.declared, pair[0])]
        taken.update(name for name, _ in mine)
        taken.add(parameter.declared.name)
        if mine:
            readings = read_pairs(parameter.declared, mine)
            yield from (
                _judge_readings(parameter, readings)
                if readings
                else [explain_unreadable(parameter.declared, (parameter.declared.place, parameter.declared.name))]
            )
        elif parameter.declared.required:
            name = parameter.declared.name
            message = f"Required query parameter '{clean_text(name, _SHOWN)}' is missing"
            yield Violation(codes.REQUIRED_MISSING, ("query", name), message, hint=f"Add '?{name}=...' to the URL.")
    yield from _find_undeclared(channels, [name for name, _ in pairs if name not in taken])


def _find_undeclared(channels: Channels, names: list[str]) -> Iterator[Violation]:
    declared = {_fold_name(name): name for name in (*(each.declared.name for each in channels.query), *channels.free)}
    known = ", ".join(sorted(declared.values())) or "none"
    for name in list(dict.fromkeys(names))[:100]:
        shown = clean_text(name, _SHOWN)
        meant = declared.get(_fold_name(name))
        if meant is not None:
            message = f"Query parameter '{shown}' is read as '{meant}' by some services, and as unknown by others"
            yield Violation(codes.UNKNOWN_FIELD, ("query", name), message, hint=f"Write it as '{meant}'.")
        else:
            severity = Severity.ERROR if channels.strict else Severity.WARNING
            message = f"Unknown query parameter '{shown}'"
            hint = f"Leave it out of the URL; known: {known}." if channels.strict else ""
            yield Violation(codes.UNKNOWN_FIELD, ("query", name), message, hint=hint, severity=severity)


def _fold_name(name: str) -> str:
    """A name as the most lenient framework reads it: case, brackets and blanks do not count, `.` is `_` (PHP)."""
    return name.strip(" \t\0").partition("[")[0].casefold().replace(".", "_").replace(" ", "_")


def _judge_readings(parameter: JudgedParameter, readings: list[JsonValue]) -> Iterator[Violation]:
    if any(parameter.check.accepts(reading) for reading in readings):
        return
    declared, check = parameter.declared, parameter.check
    where = "Path parameter" if declared.place == "path" else "Query parameter"
    place = f"It stands in the {'path' if declared.place == 'path' else 'query'} of the URL, not in the body."
    for violation in list_violations(check, readings[0], ()):
        yield replace(
            violation,
            path=(declared.place, declared.name, *violation.path),
            message=f"{where} '{clean_text(declared.name, _SHOWN)}': {violation.message}",
            hint=f"{violation.hint} {place}".strip(),
        )


def explain_unreadable(declared: Parameter, path: Pointer) -> Violation:
    """The violation for a parameter whose text is not in its style; `path` is its place among the arguments."""
    message = f"{declared.place.capitalize()} parameter '{clean_text(declared.name, _SHOWN)}' cannot be read"
    if declared.style == "json":
        hint = "Send it as strict JSON text, escaped for the URL."
    elif "array" in declared.kinds or "object" in declared.kinds:
        hint = f"Write it in the style {declared.style!r}{', exploded' if declared.explode else ''}, each name once."
    else:
        hint = "Send it once."
    return Violation(codes.CONSTRAINT, path, message, hint=hint)
