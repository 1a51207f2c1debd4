"""Headers that repeat what a message says (MCP 2026-07-28, "Request Metadata"): held against it, kept true. Pure.

Load balancers route by `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` without reading the body; so whoever does read it has
to refuse headers that say otherwise, and whoever changes it has to change them with it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.adapters.mcpmessage import VERSION_HEADER, VERSION_META, Message
from proxy.core.jsontext import LosslessFloat, as_decimal, at_pointer, number_text, parse
from proxy.core.model import ABSENT, Headers, JsonProblem, JsonValue, Pointer, RawRequest

METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"

_REPEATING: Final = frozenset({VERSION_HEADER, METHOD_HEADER, NAME_HEADER})

# Which member of `params` the header `Mcp-Name` repeats.
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# RFC 9110 section 5.6.2: what a header's name may be.
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
# "Value Encoding": what goes plainly; everything else, and what looks encoded, goes as base64.
_PLAIN: Final = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")
_CODED: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
# A chain of properties deeper than this is no parameter that anybody routes by.
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True)
class Mirror:
    """A parameter that a header repeats: where it stands in the arguments, and the header's name in lower case."""

    path: Pointer
    header: str


def mirrors(schema: JsonValue) -> tuple[Mirror, ...]:
    """The parameters that a tool's inputSchema marks with `x-mcp-header`; only those reached by `properties` alone
    count ("Schema Extension")."""
    return tuple(_mirrors(schema, ()))


def _mirrors(schema: JsonValue, path: Pointer) -> Iterator[Mirror]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _DEEPEST:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            said = inner.get("x-mcp-header")
            if isinstance(said, str) and _TOKEN.fullmatch(said):
                yield Mirror((*path, name), PARAM_PREFIX + said.lower())
            yield from _mirrors(inner, (*path, name))


def disagreement(request: RawRequest, message: Message) -> str:
    """What a header says otherwise than the message, in words; '' where they agree or only one of them speaks.

    A header that is missing is for the upstream to miss: it refuses that itself, and says what it knows.
    """
    if not message.modern:
        return ""
    named = message.param(_NAMED.get(message.method, ""))
    pairs = (
        ("MCP-Protocol-Version", request.header(VERSION_HEADER), message.meta.get(VERSION_META)),
        ("Mcp-Method", request.header(METHOD_HEADER), message.method),
        ("Mcp-Name", decoded(request.header(NAME_HEADER)), named),
    )
    for name, header, body in pairs:
        if header is not None and isinstance(body, str) and header != body:
            return f"Header mismatch: {name} does not match the body"
    return _said_twice(request)


def _said_twice(request: RawRequest) -> str:
    """Which of these headers is there twice: whoever reads the other one would read something else."""
    seen: set[str] = set()
    for name, _ in request.headers:
        if name in seen and (name in _REPEATING or name.startswith(PARAM_PREFIX)):
            return f"Header mismatch: {name} is there twice"
        seen.add(name)
    return ""


def wrong_mirror(request: RawRequest, wanted: tuple[Mirror, ...], arguments: JsonValue) -> str:
    """Which `Mcp-Param-*` header says otherwise than the arguments as they were sent; '' where none does."""
    arguments = _opened(arguments)
    for mirror in wanted:
        sent = request.header(mirror.header)
        if sent is not None and not _says(decoded(sent), _at(arguments, mirror.path)):
            return f"Header mismatch: {mirror.header} does not match the body"
    return ""


def kept_true(headers: Headers, tool: str, wanted: tuple[Mirror, ...], arguments: JsonValue) -> Headers:
    """The headers of a call whose body was changed: `Mcp-Name` and `Mcp-Param-*` say what the body says now."""
    ours = {mirror.header for mirror in wanted}
    kept = [(name, encoded(tool) if name == NAME_HEADER else value) for name, value in headers if name not in ours]
    told = ((mirror.header, _text(_at(arguments, mirror.path))) for mirror in wanted)
    return (*kept, *((name, encoded(text)) for name, text in told if text is not None))


def encoded(text: str) -> str:
    """A value as a header may carry it."""
    if _PLAIN.fullmatch(text) and not _CODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


def decoded(header: str | None) -> str | None:
    """What a header's value stands for; itself where its base64 is broken, so that it matches nothing."""
    found = _CODED.fullmatch(header) if header is not None else None
    if found is None:
        return header
    try:
        return base64.b64decode(found[1], validate=True).decode()
    except ValueError:  # no base64, no ASCII, no UTF-8
        return header


def _opened(arguments: JsonValue) -> JsonValue:
    """Arguments that came as JSON in a string are looked into: that they will be repaired must not hide a lie."""
    if not isinstance(arguments, str):
        return arguments
    value = parse(arguments.encode("utf-8", "surrogatepass"))
    return ABSENT if isinstance(value, JsonProblem) else value


def _at(arguments: JsonValue, path: Pointer) -> JsonValue:
    try:
        return at_pointer(arguments, path)
    except LookupError:
        return ABSENT


def _text(value: JsonValue) -> str | None:
    """A value as the specification writes it ("Type conversion"); None where no header belongs to it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | LosslessFloat):
        return number_text(value)
    return value if isinstance(value, str) else None


def _says(header: str | None, value: JsonValue) -> bool:
    text = _text(value)
    if text is None or header is None or header == text:
        return text is not None and header is not None
    number = parse(header.encode("utf-8", "surrogatepass"))
    numeric = isinstance(value, int | float | LosslessFloat) and not isinstance(value, bool)
    return numeric and isinstance(number, int | float | LosslessFloat) and as_decimal(number) == as_decimal(value)
