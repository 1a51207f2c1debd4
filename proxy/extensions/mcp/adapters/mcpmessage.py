"""Messages that MCP clients post, and the headers that repeat parts of them. Pure.

A body is one JSON-RPC message (or a batch, in old revisions). Two eras of the protocol are in use at once, and one
connection can carry both while a client tries which one its server knows. So the era belongs to each message:
2026-07-28 and later name their revision in the header `MCP-Protocol-Version` and in `_meta`; all other messages are of
the old era (`initialize`, sessions).

Since 2026-07-28 load balancers route by `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` without reading the body
(specification, "Request Metadata"). So a reader of the body has to refuse headers that contradict it
(`find_disagreement`, `find_wrong_mirror`), and whoever changes the body has to change them with it (`update_headers`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from proxy.core.json.jsonspan import find_span, read_members
from proxy.core.json.jsontext import (
    LosslessFloat,
    TextLimits,
    dumps,
    find_at_pointer,
    find_case_duplicate,
    make_decimal,
    parse,
    write_number,
)
from proxy.core.json.strictreader import KnownText, outline
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Headers, JsonProblem, JsonValue, Pointer, RawRequest

CALL: Final = "tools/call"
LIST: Final = "tools/list"
VERSION_HEADER: Final = "mcp-protocol-version"
VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_META: Final = "io.modelcontextprotocol/clientCapabilities"
SESSION_HEADER: Final = "mcp-session-id"

# The members by which the request of a message is found.
_HEAD: Final = frozenset({"id", "method", "params"})
# The members that define a message and a call; they must not have a second reading.
_MESSAGE: Final[tuple[Pointer, ...]] = (("method",), ("id",), ("params",))
_CALLED: Final[tuple[Pointer, ...]] = (("params", "name"), ("params", "arguments"))

# A message with only these members has one reading, even for a server that ignores case.
_USUAL: Final = frozenset({"jsonrpc", "id", "method", "params"})
_USUAL_PARAMS: Final = frozenset({"name", "arguments", "_meta"})

# The first revision without sessions (specification 2026-07-28, changelog). Revisions are dates, so they can be
# compared.
MODERN: Final = "2026-07-28"
_REVISION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@value_class
class Message:
    """One message. `id` is `ABSENT` for a notification and for an id that no answer could repeat. `params` is any
    value.

    `revision` is the revision that the message names, or ''; `modern` means 2026-07-28 or later.
    """

    id: JsonValue
    method: str
    params: JsonValue = field(default=ABSENT, repr=False)
    revision: str = ""

    @property
    def modern(self) -> bool:
        """Returns whether the message belongs to the revisions without sessions."""
        return self.revision >= MODERN

    @property
    def is_call(self) -> bool:
        """Returns whether the message calls a tool."""
        return self.method == CALL

    def param(self, name: str) -> JsonValue:
        """A member of `params`, `ABSENT` where there is none."""
        return self.params.get(name, ABSENT) if isinstance(self.params, dict) else ABSENT

    @property
    def meta(self) -> dict[str, JsonValue]:
        """The message's `_meta`."""
        found = self.param("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def is_enveloped(self) -> bool:
        """Returns whether the message itself names a revision, as every request since 2026-07-28 does. A header does
        not count: servers over stdio never see it."""
        return VERSION_META in self.meta


@value_class
class MessageBatch:
    """Several messages in one body (revision 2025-03-26). `may_pass` says that none of them calls a tool,
    `lists` that one of them asks for the list of tools."""

    may_pass: bool
    lists: bool = False


# Requests of a server -> the capability that a client has to declare for them ("Capability Negotiation").
_NEEDS: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


def find_missing_capability(method: JsonValue, declared: JsonValue) -> str:
    """The capability that a server's request needs and its client has not declared; '' if none is missing, or the
    client has declared nothing at all."""
    needed = _NEEDS.get(method, "") if isinstance(method, str) else ""
    return needed if isinstance(declared, dict) and needed not in declared else ""


def is_bare(request: RawRequest) -> bool:
    """Returns whether a request carries no message: a GET or DELETE without a body. One with a body is read like a
    POST, because servers may treat it as one (`X-HTTP-Method-Override`)."""
    return request.method != "POST" and not request.body


def read_message(request: RawRequest, limits: TextLimits) -> Message | MessageBatch | JsonProblem:
    """The message of a POST, or why its body is unreadable. Never raises."""
    value = parse(request.body, limits)
    if isinstance(value, JsonProblem):
        return value
    if isinstance(value, list):
        return MessageBatch(
            all(isinstance(item, dict) and item.get("method") != CALL and not _find_ambiguity(item) for item in value),
            any(isinstance(item, dict) and item.get("method") == LIST for item in value),
        )
    if not isinstance(value, dict):
        return JsonProblem("not a JSON-RPC message", 1, 1)
    return _find_ambiguity(value) or _make_message(value, request)


def _find_ambiguity(value: dict[str, JsonValue]) -> JsonProblem | None:
    """The problem of a message that a server which ignores the case of names could read differently, or None."""
    params = value.get("params")
    if value.keys() <= _USUAL and (not isinstance(params, dict) or params.keys() <= _USUAL_PARAMS):
        return None
    places = _MESSAGE + _CALLED if value.get("method") == CALL else _MESSAGE
    return next((found for place in places if (found := find_case_duplicate(value, place)) is not None), None)


def guess_message(request: RawRequest) -> Message | None:
    """The likely message of an unreadable body: enough to answer under its id, never enough to forward.

    For bodies that `read_message` refuses although a lenient reader accepts them (duplicate keys, too much depth).
    """
    value = read_lenient(request.body)
    return _make_message(value, request) if value else None


def read_lenient(text: bytes) -> dict[str, JsonValue]:
    """The object in a text, read leniently if it is not strict JSON: enough to find its request, never enough to
    forward. Empty if there is no object."""
    value = parse(text)
    if isinstance(value, JsonProblem):
        # Values with several spellings, or none in JSON (NaN, 1e999), are not accepted as ids.
        seen = text.outline if type(text) is KnownText else outline(text)
        value = json.loads(seen) if seen else None
    return value if isinstance(value, dict) else {}


def read_head(text: bytes) -> dict[str, JsonValue]:
    """The id, method and parameters of a message, and ABSENT for its other members: they may be of any size and depth.
    Read leniently: enough to find its request, never enough to forward."""
    head: dict[str, JsonValue] = {}
    for name, value in read_members(text, _HEAD).items():
        is_read = not isinstance(value, JsonProblem)  # not half an emoji, or NaN
        head[name] = value if is_read else read_lenient(text[slice(*find_span(text, (name,)))])
    return head


def _make_message(value: dict[str, JsonValue], request: RawRequest) -> Message:
    method, params = value.get("method"), value.get("params", ABSENT)
    return Message(_read_id(value), method if isinstance(method, str) else "", params, _find_revision(request, params))


def _read_id(value: dict[str, JsonValue]) -> JsonValue:
    found = value.get("id", ABSENT)
    return found if write_id(found) else ABSENT


def write_id(value: JsonValue) -> bytes:
    """Returns a JSON-RPC id as JSON: a text or a number (JSON-RPC 2.0 section 4; MCP forbids null). Any other value
    gives b'', as does a text that no answer could repeat, because it has half a character."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | LosslessFloat):
        return b""
    try:
        return dumps(value)
    except UnicodeEncodeError:
        return b""


def _find_revision(request: RawRequest, params: JsonValue) -> str:
    """The later of the revisions in header and `_meta`; a message in which they differ is refused for that."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    named, headers = meta.get(VERSION_META) if isinstance(meta, dict) else None, request.headers
    is_unique = len(headers.by_name) == len(headers)
    if is_unique and (only := headers.get(VERSION_HEADER)) == named:
        return only if only is not None and _REVISION.fullmatch(only) else ""
    revisions: tuple[JsonValue, ...] = (*[value for name, value in headers if name == VERSION_HEADER], named)
    return max((each for each in revisions if isinstance(each, str) and _REVISION.fullmatch(each)), default="")


# --- headers that repeat a message ------------------------------------------------------------------------------------
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"

_REPEATING: Final = frozenset({VERSION_HEADER, METHOD_HEADER, NAME_HEADER})

# The member of `params` that the header `Mcp-Name` repeats.
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# RFC 9110 section 5.6.2: the grammar of header names.
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
# "Value Encoding": these values are sent plainly; all others, and any that look encoded, are sent as base64.
_PLAIN: Final = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")
_CODED: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
# "Schema Extension": the types of parameters that headers repeat.
_MIRRORED_TYPES: Final = ("string", "integer", "boolean")
# Deeper chains of properties are ignored, because load balancers do not route by them.
_DEEPEST: Final = 8


@value_class
class Mirror:
    """A parameter that a header repeats: its place in the arguments, and the header's name in lower case. `must` is
    False for a type that the specification does not allow here, so that clients may ignore it."""

    path: Pointer
    header: str
    must: bool = True


def find_mirrors(schema: JsonValue) -> tuple[Mirror, ...]:
    """Returns the parameters that a tool's inputSchema marks with `x-mcp-header`. Only those reached through nothing
    but `properties` count ("Schema Extension")."""
    return tuple(_list_mirrors(schema, ()))


def _list_mirrors(schema: JsonValue, path: Pointer) -> Iterator[Mirror]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _DEEPEST:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            header = inner.get("x-mcp-header")
            if isinstance(header, str) and _TOKEN.fullmatch(header):
                must = inner.get("type") in _MIRRORED_TYPES
                yield Mirror((*path, name), PARAM_PREFIX + header.lower(), must)
            yield from _list_mirrors(inner, (*path, name))


def find_disagreement(request: RawRequest, message: Message) -> str:
    """A message about the first header that contradicts the body; '' if none does.

    A missing header is left to the server, which refuses the request and names the header (`find_missing_header`).
    """
    if not message.modern:
        return ""
    for name, header, body in _pair_headers(request, message):
        if header is not None and isinstance(body, str) and header != body:
            return f"Header mismatch: {name} does not match the body"
    return _find_repeated_header(request)


def find_missing_header(request: RawRequest, message: Message) -> str:
    """A message about the first header that a request lacks; '' if it has all of them."""
    for name, header, body in _pair_headers(request, message):
        if header is None and isinstance(body, str):
            return f"Header mismatch: {name} is missing"
    return ""


def _pair_headers(request: RawRequest, message: Message) -> tuple[tuple[str, str | None, JsonValue], ...]:
    """The headers that repeat a message: name, value, and the value in the body."""
    return (
        ("MCP-Protocol-Version", request.header(VERSION_HEADER), message.meta.get(VERSION_META)),
        ("Mcp-Method", request.header(METHOD_HEADER), message.method),
        ("Mcp-Name", decode_value(request.header(NAME_HEADER)), message.param(_NAMED.get(message.method, ""))),
    )


def _find_repeated_header(request: RawRequest) -> str:
    """A message about a repeating header that is twice, as two readers could take different values; otherwise ''."""
    seen: set[str] = set()
    for name, _ in () if len(request.headers.by_name) == len(request.headers) else request.headers:
        if name in seen and (name in _REPEATING or name.startswith(PARAM_PREFIX)):
            return f"Header mismatch: {name} is there twice"
        seen.add(name)
    return ""


def find_wrong_mirror(
    request: RawRequest, mirrors: tuple[Mirror, ...], arguments: JsonValue, *, complete: bool = False
) -> str:
    """A message about the first `Mcp-Param-*` header that contradicts the arguments as they were sent; '' if none
    does. With `complete` also about one that is missing."""
    arguments = _open_arguments(arguments)
    for mirror in mirrors:
        sent = request.header(mirror.header)
        if complete and mirror.must and sent is None and _write_text(_find_at(arguments, mirror.path)) is not None:
            return f"Header mismatch: {mirror.header} is missing"
        if sent is not None and not _is_spelling_of(decode_value(sent), _find_at(arguments, mirror.path)):
            return f"Header mismatch: {mirror.header} does not match the body"
    return ""


def update_headers(headers: Headers, tool: str, mirrors: tuple[Mirror, ...], arguments: JsonValue) -> Headers:
    """The headers of a call whose body was changed: `Mcp-Name` and `Mcp-Param-*` match the body."""
    ours = {mirror.header for mirror in mirrors}
    kept = [field for field in rename_in_headers(headers, tool) if field[0] not in ours]
    values = ((mirror.header, _write_text(_find_at(arguments, mirror.path))) for mirror in mirrors)
    return (*kept, *((name, encode_value(text)) for name, text in values if text is not None))


def rename_in_headers(headers: Headers, tool: str) -> Headers:
    """Returns the headers of a call with another tool name in `Mcp-Name`, if they have one."""
    return tuple((name, encode_value(tool) if name == NAME_HEADER else value) for name, value in headers)


def make_headers(message: Message, mirrors: tuple[Mirror, ...]) -> Headers:
    """The headers that a request of the revisions without sessions has to carry beside its message."""
    if not message.modern:
        return ()
    named = message.param(_NAMED.get(message.method, ""))
    fields: Headers = ((VERSION_HEADER, message.revision), (METHOD_HEADER, message.method))
    if isinstance(named, str):
        fields = (*fields, (NAME_HEADER, encode_value(named)))
    return update_headers(fields, named if isinstance(named, str) else "", mirrors, message.param("arguments"))


def encode_value(text: str) -> str:
    """A value as a header may carry it."""
    if _PLAIN.fullmatch(text) and not _CODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


def decode_value(header: str | None) -> str | None:
    """The decoded value of a header; the value itself where its base64 is broken, so that it matches nothing."""
    found = _CODED.fullmatch(header) if header is not None and header.startswith("=?") else None
    if found is None:
        return header
    try:
        return base64.b64decode(found[1], validate=True).decode()
    except ValueError:  # not base64, ASCII or UTF-8
        return header


def _open_arguments(arguments: JsonValue) -> JsonValue:
    """Parses arguments that came as JSON in a string: a later repair must not hide a contradiction."""
    if not isinstance(arguments, str):
        return arguments
    value = parse(arguments.encode("utf-8", "surrogatepass"))
    return ABSENT if isinstance(value, JsonProblem) else value


def _find_at(arguments: JsonValue, path: Pointer) -> JsonValue:
    try:
        return find_at_pointer(arguments, path)
    except LookupError:
        return ABSENT


def _write_text(value: JsonValue) -> str | None:
    """Returns a value in the specification's spelling ("Type conversion"); None if it has no header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | LosslessFloat):
        return write_number(value)
    return value if isinstance(value, str) else None


def _is_spelling_of(header: str | None, value: JsonValue) -> bool:
    text = _write_text(value)
    if text is None or header is None or header == text:
        return text is not None and header is not None
    number = parse(header.encode("utf-8", "surrogatepass"))
    numeric = isinstance(value, int | float | LosslessFloat) and not isinstance(value, bool)
    return numeric and isinstance(number, int | float | LosslessFloat) and make_decimal(number) == make_decimal(value)
