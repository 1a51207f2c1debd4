"""Arguments that no HTTP request can hold, although the schema takes them -> violations. Pure.

A path segment is one segment for every server: no slash, no `..`, nothing empty. A header holds printable ASCII. A list
holds no item with its own delimiter.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from proxy.core.contract.http_operation import HttpArgument, HttpOperation
from proxy.core.contract.spellings import leaves_segment
from proxy.core.model import codes
from proxy.core.model.values import ABSENT, JsonValue, Violation
from proxy.core.schema.http.parameter_text import write_header, write_pairs, write_path

_OF_PLACE: Final = {"path": "the path", "query": "the query", "header": "a header", "cookie": "a cookie",
                    "form": "a form", "file": "a form"}  # fmt: skip
_PATH_HINT: Final = "Send a value without slashes, without ';', and that is neither empty nor '.' or '..'."


def find_unwritable(operation: HttpOperation, value: JsonValue, sent: JsonValue = ABSENT) -> tuple[Violation, ...]:
    """Why arguments cannot be written as the operation's request; nothing where they can. What is as it was `sent` in a
    request of a client is not written."""
    if operation.template.is_plain:
        return ()
    if not isinstance(value, dict):
        return (Violation(codes.TYPE_MISMATCH, (), "The arguments are no object", "object"),)
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
                yield _violation(argument, _PATH_HINT, given)
        elif argument.declared.place == "file" and not _is_writable(argument, given):
            yield _violation(argument, "Send the content of the file as base64.", given)
        elif given is not ABSENT and given is not None and not _is_writable(argument, given):
            yield _violation(argument, "Send a single value, or a list without its delimiter in an item.", given)


def is_segment(argument: HttpArgument, value: JsonValue) -> bool:
    """Whether a value can be written as one segment of a path, for every server."""
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
    return declared.place != "cookie" or all(_is_cookie(text) for _, text in pairs)


def _is_base64(text: JsonValue) -> bool:
    try:
        b64decode(text, validate=True)
    except (ValueError, TypeError):
        return False
    return True


def _is_cookie(text: str) -> bool:
    """RFC 6265 section 4.1.1, cookie-octet."""
    return all("!" <= character <= "~" and character not in '",;\\' for character in text)


def _violation(argument: HttpArgument, hint: str, value: JsonValue) -> Violation:
    where = _OF_PLACE[argument.declared.place]
    message = f"'{argument.name}' cannot be written into {where} of a request"
    return Violation(codes.CONSTRAINT, (argument.name,), message, hint=hint, value=value)
