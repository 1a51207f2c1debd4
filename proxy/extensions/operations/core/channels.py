"""The violations of an HTTP request outside of its body. Pure.

`judge_channels` judges path and query parameters: their text is read by its style, typed by its schema, and judged.
Text has no types, so `3` is the integer 3 where the schema takes an integer and the text "3" where it takes a text. A
number is read only if every reader reads the same: `1e2`, which some parsers read as 1, is not an integer. Requests
that two frameworks could read differently are refused: a single value sent twice, an invalid escape, a name that equals
a declared one without case or brackets.

`find_unwritable` finds arguments that no HTTP request can hold, although the schema takes them. A path segment is one
segment for every server: no slash, no `..`, nothing empty. A header holds printable ASCII. A list holds no item with
its own delimiter.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.spellings import leaves_segment
from proxy.core.display.preview import clean_text
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue, Pointer, Violation
from proxy.extensions.operations.core.http.multipart import (
    find_declared,
    fold_name,
    is_cookie_octets,
    is_token,
    list_hidden_names,
)
from proxy.extensions.operations.core.http.parameters import Parameter
from proxy.extensions.operations.core.http.request_text import (
    MOST_PAIRS,
    count_pairs,
    group_pairs,
    list_written_names,
    read_pairs,
    read_path,
    select_pairs,
    split_query,
    write_header,
    write_pairs,
    write_path,
)
from proxy.extensions.operations.core.http_operation import Channels, HttpArgument, HttpOperation, JudgedParameter
from proxy.plugin import list_violations

_SHOWN: Final = 60  # characters of a name in a message
_MOST_UNKNOWN: Final = 100  # undeclared names that are reported


@value_class
class JudgedChannels(Channels):
    """Implements `ChannelJudge`."""

    def judge(self, params: Mapping[str, str], query: str) -> tuple[Violation, ...]:
        """The violations of a request's path and query."""
        return judge_channels(self, params, query)


def judge_channels(channels: Channels, params: Mapping[str, str], query: str) -> tuple[Violation, ...]:
    """The violations of a request's path and query, and warnings for undeclared names.

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
    if count_pairs(query) > MOST_PAIRS:
        message = f"The query string has more than {MOST_PAIRS} pairs"
        yield Violation(codes.CONSTRAINT, ("query",), message, hint="Send less, or split the work over several calls.")
        return
    pairs = split_query(query)
    if pairs is None:
        hint = "Escape each byte of the UTF-8 text as %XX."
        yield Violation(codes.CONSTRAINT, ("query",), "The query string is not escaped text in UTF-8", hint=hint)
        return
    taken, groups = set(channels.free), group_pairs(pairs)
    sent = {fold_name(name) for name in groups}  # another spelling of a name is reported as such
    for parameter in channels.query:
        mine = select_pairs(parameter.declared, groups)
        taken.update(name for name, _ in mine)
        taken.add(parameter.declared.name)
        if mine:
            readings = read_pairs(parameter.declared, mine)
            yield from (
                _judge_readings(parameter, readings)
                if readings
                else [explain_unreadable(parameter.declared, (parameter.declared.place, parameter.declared.name))]
            )
        elif parameter.declared.required and fold_name(parameter.declared.name) not in sent:
            name = parameter.declared.name
            message = f"Required query parameter '{clean_text(name, _SHOWN)}' is missing"
            yield Violation(codes.REQUIRED_MISSING, ("query", name), message, hint=f"Add '?{name}=...' to the URL.")
    yield from _find_undeclared(channels, [name for name in groups if name not in taken])
    declared = _fold_declared(channels)
    for name in dict.fromkeys(list_hidden_names(query)):
        if (match := find_declared(name, declared)) is not None:
            message = f"'{clean_text(name, _SHOWN)}' behind a ';' is read as '{match}' by some services"
            hint = "Escape the ';' as %3B, and join by '&'."
            yield Violation(codes.UNKNOWN_FIELD, ("query", match), message, hint=hint)


def _fold_declared(channels: Channels) -> dict[str, str]:
    """The declared names of a query, by their folded form."""
    names = [name for each in channels.query for name in (each.declared.name, *list_written_names(each.declared))]
    return {fold_name(name): name for name in (*names, *channels.free)}


def _find_undeclared(channels: Channels, names: list[str]) -> Iterator[Violation]:
    declared, unknown = _fold_declared(channels), 0
    known = ", ".join(sorted(declared.values())) or "none"
    for name in names:
        shown = clean_text(name, _SHOWN)
        if (match := find_declared(name, declared)) is not None:
            message = f"Query parameter '{shown}' is read as '{match}' by some services, and as unknown by others"
            yield Violation(codes.UNKNOWN_FIELD, ("query", name), message, hint=f"Write it as '{match}'.")
        elif (unknown := unknown + 1) <= _MOST_UNKNOWN:
            severity = Severity.ERROR if channels.strict else Severity.WARNING
            message = f"Unknown query parameter '{shown}'"
            hint = f"Leave it out of the URL; known: {known}." if channels.strict else ""
            yield Violation(codes.UNKNOWN_FIELD, ("query", name), message, hint=hint, severity=severity)


def _judge_readings(parameter: JudgedParameter, readings: list[JsonValue]) -> Iterator[Violation]:
    if any(parameter.check.accepts(reading) for reading in readings):
        return
    declared, check = parameter.declared, parameter.check
    where = "Path parameter" if declared.place == "path" else "Query parameter"
    place = f"It belongs in the {'path' if declared.place == 'path' else 'query'} of the URL, not in the body."
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


# --- arguments that no request can hold -------------------------------------------------------------------------------
_OF_PLACE: Final = {"path": "the path", "query": "the query", "header": "a header", "cookie": "a cookie",
                    "form": "a form", "file": "a form"}  # fmt: skip
# The values that a request can hold, by the place of an argument.
_SINGLE: Final = "Send a single value, or a list without its delimiter in an item."
_WRITABLE: Final = {
    "path": "Send a value without slashes, backslashes, '%', ';' and control characters, a list without its delimiter "
    "in an item, and nothing that is empty, or only dots and blanks.",
    "query": _SINGLE,
    "form": _SINGLE,
    "header": "Send printable ASCII without blanks at its ends, or a list of one or more such texts, none of them "
    "empty or with a comma.",
    "cookie": "Send printable ASCII without blanks, commas, ';', '%', quotes and backslashes.",
    "file": "Send the content of the file as base64.",
}


def find_unwritable(operation: HttpOperation, value: JsonValue, sent: JsonValue = ABSENT) -> tuple[Violation, ...]:
    """The violations of arguments that cannot be written as the operation's request. Those that are unchanged from
    `sent`, the client's own request, are not written."""
    if operation.template.is_plain:
        return ()
    if not isinstance(value, dict):
        return (Violation(codes.TYPE_MISMATCH, (), "The arguments are not an object", "object"),)
    same = {name for name in value if name in sent and sent[name] is value[name]} if isinstance(sent, dict) else ()
    return tuple(found for found in _violations(operation, value) if not found.path or found.path[0] not in same)


def _violations(operation: HttpOperation, value: dict[str, JsonValue]) -> Iterator[Violation]:
    for argument in operation.arguments:
        given = value.get(argument.name, ABSENT)
        if argument.declared.place == "path":
            if given is ABSENT:
                message = f"Required field '{argument.name}' is missing"
                yield Violation(
                    codes.REQUIRED_MISSING, (argument.name,), message, hint="The path cannot do without it."
                )
            elif not is_segment(argument, given):
                yield _violation(argument, given)
        elif given is ABSENT or given is None:
            continue
        elif not _is_writable(argument, given):
            yield _violation(argument, given)
        elif isinstance(given, dict):
            yield from _find_foreign_names(operation, argument, given, value)
    yield from _find_homeless(operation, value)


def _find_homeless(operation: HttpOperation, value: dict[str, JsonValue]) -> Iterator[Violation]:
    """Arguments without a parameter that the body cannot hold: there is no body, it is one argument, or a form whose
    field would be read as another one."""
    template = operation.template
    if template.has_json and not template.body_argument:
        return
    declared = [*template.credentials]
    for each in operation.in_place("query", "form", "file"):
        given = value.get(each.name, ABSENT)
        declared += (each.declared.name, *list_written_names(each.declared))
        declared += given if isinstance(given, dict) and each.declared.explode else ()
    folded = {fold_name(name): name for name in declared}
    for name, given in value.items():
        if name in operation.names or name == template.body_argument:
            continue
        if not template.is_form:
            message = f"'{clean_text(name, _SHOWN)}' has no place in the request"
            yield Violation(codes.UNKNOWN_FIELD, (name,), message, hint="Leave it out.", value=given)
        elif (match := find_declared(name, folded)) is not None:
            message = f"'{clean_text(name, _SHOWN)}' would be read as the parameter '{match}' by some services"
            yield Violation(codes.UNKNOWN_FIELD, (name,), message, hint=f"Write it as '{match}'.", value=given)
        elif given is not None and (isinstance(given, dict) or not _is_writable(operation.make_field(name), given)):
            message = f"'{clean_text(name, _SHOWN)}' cannot be written into a form of a request"
            yield Violation(codes.CONSTRAINT, (name,), message, hint="Send a single value or a list.", value=given)


def _find_foreign_names(
    operation: HttpOperation, argument: HttpArgument, given: dict[str, JsonValue], value: dict[str, JsonValue]
) -> Iterator[Violation]:
    """Members of an object that a service would read as another parameter, or as no member at all."""
    declared = argument.declared
    if declared.style == "deepObject":
        for key in given:
            if "[" in key or "]" in key:
                yield _foreign_name(argument, key, "holds a bracket, at which services cut names")
        return
    if declared.place not in ("query", "form", "cookie") or declared.style != "form" or not declared.explode:
        return
    places = ("cookie",) if declared.place == "cookie" else ("query", "form", "file")
    taken = {fold_name(name): name for name in operation.template.credentials} if declared.place != "cookie" else {}
    for other in operation.in_place(*places):
        if other is not argument:
            sent = value.get(other.name, ABSENT)
            names = [
                other.declared.name,
                *list_written_names(other.declared),
                *(sent if isinstance(sent, dict) else ()),
            ]
            taken |= {fold_name(name): other.declared.name for name in names}
    for key in given:
        if declared.place == "cookie" and not is_token(key):
            yield _foreign_name(argument, key, "cannot be the name of a cookie")
            continue
        match = taken.get(fold_name(key)) if declared.place == "cookie" else find_declared(key, taken)
        if match is not None:
            yield _foreign_name(argument, key, f"would be read as the parameter '{match}'")


def _foreign_name(argument: HttpArgument, key: str, why: str) -> Violation:
    where = _OF_PLACE[argument.declared.place]
    message = f"The member '{clean_text(key, _SHOWN)}' of '{argument.name}' cannot be written into {where}: it {why}"
    return Violation(
        codes.CONSTRAINT, (argument.name, key), message, hint="Leave this member out, or name it otherwise."
    )


def is_segment(argument: HttpArgument, value: JsonValue) -> bool:
    """Returns whether a value can be written as one segment of a path, for every server."""
    text = write_path(argument.declared, value)
    if text is None or text in ("", ".", "..") or any(character < " " or character in "/\\\x7f" for character in text):
        return False
    return argument.declared.style == "matrix" or not leaves_segment(text)


def _is_writable(argument: HttpArgument, value: JsonValue) -> bool:
    declared = argument.declared
    if declared.place == "header":
        return write_header(declared, value) is not None
    if declared.place == "file":
        return all(_is_base64(item) for item in (value if isinstance(value, list) else [value]))
    pairs = write_pairs(declared, value)
    if pairs is None or (declared.required and not pairs):
        return False
    return declared.place != "cookie" or all(is_cookie_octets(text) for _, text in pairs)


def _is_base64(text: JsonValue) -> bool:
    try:
        b64decode(text, validate=True)
    except (ValueError, TypeError):
        return False
    return True


def _violation(argument: HttpArgument, value: JsonValue) -> Violation:
    where = _OF_PLACE[argument.declared.place]
    message = f"'{argument.name}' cannot be written into {where} of a request"
    hint = _WRITABLE[argument.declared.place]
    return Violation(codes.CONSTRAINT, (argument.name,), message, hint=hint, value=value)
