"""Writes the arguments of an HTTP operation as its request: the whole request, or only the changed parts of one.

There are two cases:

1. `write_request`: a client called the tool by name. Every part is written from the arguments.
2. `rewrite_request`: a client sent the request itself, and some arguments were changed. A path segment, a pair of the
   query, a header or a field of a form is written again if its argument was changed, the body if one of its members
   was. All other bytes stay.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

from proxy.core.json.jsontext import are_equal, dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue, RawRequest, Violation
from proxy.extensions.operations.adapters.http_operation import (
    ReadRequest,
    list_cookie_lines,
    read_request,
    split_body_parts,
)
from proxy.extensions.operations.core.channels import find_unwritable
from proxy.extensions.operations.core.http.body import FORM, MULTIPART
from proxy.extensions.operations.core.http.multipart import Pairs, find_boundary, join_parts
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.http.request_text import (
    escape_pairs,
    is_of,
    split_query,
    write_header,
    write_pairs,
    write_path,
)
from proxy.extensions.operations.core.http_operation import HttpArgument, HttpOperation, bind_arguments
from proxy.plugin import CallShape, Check, QueryPolicy, WrittenRequest

# RFC 3986 section 3.3 without `;`, at which servlet containers cut a segment.
_SEGMENT_SAFE: Final = "!$&'()*+,=:@"
_SEGMENT: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2})*")
_OCTETS: Final = "application/octet-stream"

Values = Mapping[str, JsonValue]


def _write_segment(argument: HttpArgument, value: JsonValue) -> str:
    text = write_path(argument.declared, value)
    if text is None:  # unreachable: `decide` refuses such values
        raise ValueError("the value of a path parameter cannot be written")
    safe = _SEGMENT_SAFE + (";" if argument.declared.style == "matrix" else "")
    return quote(text, safe=safe)


def _write_argument_pairs(argument: HttpArgument, value: JsonValue) -> Pairs:
    return [] if value is ABSENT else (write_pairs(argument.declared, value) or [])


# --- from the arguments alone -----------------------------------------------------------------------------------------
def write_request(operation: HttpOperation, value: Values) -> WrittenRequest:
    """The whole request of a call by name. `decide` has checked that it can be written."""
    segments = {each.declared.name: _write_segment(each, value[each.name]) for each in operation.in_place("path")}
    query = escape_pairs([pair for each in operation.in_place("query") for pair in _list_pairs(each, value)])
    headers = [
        (each.declared.name.lower(), text)
        for each in operation.in_place("header")
        if each.name in value and (text := write_header(each.declared, value[each.name])) is not None
    ]
    cookies = [pair for each in operation.in_place("cookie") for pair in _list_pairs(each, value)]
    if cookies:
        headers.append(("cookie", "; ".join(f"{name}={text}" for name, text in cookies)))
    body, media_type = _write_body(operation, value)
    removed = {each.declared.name.lower() for each in operation.in_place("header")}
    if any(operation.in_place("cookie")):  # a client's own cookies beside the arguments are not judged
        removed.add("cookie")
    return WrittenRequest(segments, query, tuple(headers), frozenset(removed), body, media_type)


def _list_pairs(argument: HttpArgument, value: Values) -> Pairs:
    return _write_argument_pairs(argument, value.get(argument.name, ABSENT))


def _write_body(operation: HttpOperation, value: Values) -> tuple[bytes, str]:
    template = operation.template
    if template.body == FORM:
        pairs = [pair for each in _list_fields(operation, value) for pair in _list_pairs(each, value)]
        return (escape_pairs(pairs).encode(), FORM) if pairs or template.body_required else (b"", "")
    if template.body == MULTIPART:
        return _write_parts(operation, value)
    if template.body_argument:
        given = value.get(template.body_argument, ABSENT)
        return (b"", "") if given is ABSENT else (dumps(given), template.body)
    members = _select_members(operation, value)
    return (dumps(members), template.body) if template.body and (members or template.body_required) else (b"", "")


def _list_fields(operation: HttpOperation, *values: Values) -> list[HttpArgument]:
    """The fields of a form: the declared ones, and the others that arguments have."""
    declared = list(operation.in_place("form"))
    others = dict.fromkeys(name for value in values for name in value if name not in operation.names)
    return [*declared, *(operation.make_field(name) for name in others)] if operation.template.is_form else declared


def _select_members(operation: HttpOperation, value: Values) -> dict[str, JsonValue]:
    names = operation.names
    return {name: item for name, item in value.items() if name not in names}


def _write_parts(operation: HttpOperation, value: Values) -> tuple[bytes, str]:
    parts: list[tuple[str, str | None, str, bytes]] = [
        (name, None, "", text.encode())
        for each in _list_fields(operation, value)
        for name, text in _list_pairs(each, value)
    ]
    for each in operation.in_place("file"):
        given = value.get(each.name, ABSENT)
        texts = given if isinstance(given, list) else () if given is ABSENT or given is None else (given,)
        parts += [(each.declared.name, each.declared.name, _OCTETS, b64decode(text)) for text in texts]
    if not parts and not operation.template.body_required:
        return b"", ""
    boundary = blake2b(b"\0".join(content for *_, content in parts), digest_size=20).hexdigest()
    return join_parts(parts, boundary), f"{MULTIPART}; boundary={boundary}"


def raw_segments(template: str, request: RawRequest) -> dict[str, str]:
    """The path parameters of a request as they were sent; a segment that RFC 3986 does not allow is escaped again. A
    `;`, at which some servers cut a segment, is escaped too."""
    found: dict[str, str] = {}
    for name, segment in zip(template.split("/"), request.path.split("/"), strict=True):
        if name[:1] == "{":
            key = name[1:-1]
            found[key] = segment if _SEGMENT.fullmatch(segment) else quote(request.params[key], safe=_SEGMENT_SAFE)
    return found


# --- over a request that came -----------------------------------------------------------------------------------------
def rewrite_request(
    request: RawRequest, sent: Mapping[str, str], operation: HttpOperation, shape: CallShape, value: Values | None
) -> WrittenRequest:
    """The client's request with the changed arguments of `value`; unchanged for None. `sent`: its path parameters as
    they came."""
    if value is None:
        return WrittenRequest(sent, request.query, body=request.body)
    read = read_request(request, operation, shape)
    fields = [each for each in _list_fields(operation, read.value, value) if each not in operation.arguments]
    changed = [each for each in (*operation.arguments, *fields) if not _is_same(read.value, value, each.name)]
    segments = {
        each.declared.name: _write_segment(each, value[each.name]) if each in changed else sent[each.declared.name]
        for each in operation.in_place("path")
    }
    query = _rewrite_query(request.query, [each for each in changed if each.declared.place == "query"], value)
    headers = {
        each.declared.name.lower(): write_header(each.declared, value[each.name]) if each.name in value else None
        for each in changed
        if each.declared.place == "header"
    }
    cookies = [each for each in changed if each.declared.place == "cookie"]
    if cookies:
        headers["cookie"] = _rewrite_cookies(request, cookies, value)
    return WrittenRequest(
        {**sent, **segments},
        query,
        tuple((name, text) for name, text in headers.items() if text),
        frozenset(headers),
        _rewrite_body(request, operation, read, value, changed),
    )


def _is_same(before: Values, after: Values, name: str) -> bool:
    """Returns whether an argument is unchanged; 1, 1.0 and true are all different."""
    one, other = before.get(name, ABSENT), after.get(name, ABSENT)
    if one is ABSENT or other is ABSENT:
        return one is other
    return are_equal(one, other) and dumps(one) == dumps(other)


def _rewrite_query(query: str, changed: list[HttpArgument], value: Values) -> str:
    """Returns the query with new pairs for changed arguments, at the place of the first of them."""
    kept = [(part, (split_query(part) or [("", "")])[0][0]) for part in query.split("&") if part]
    for argument in changed:
        mine = [index for index, (_, name) in enumerate(kept) if is_of(argument.declared, name)]
        pairs = _write_argument_pairs(argument, value.get(argument.name, ABSENT))
        written = [(escape_pairs([pair]), pair[0]) for pair in pairs]
        at = mine[0] if mine else len(kept)
        rest = [(index, each) for index, each in enumerate(kept) if index not in mine]
        kept = [each for index, each in rest if index < at] + written + [each for index, each in rest if index > at]
    return "&".join(part for part, _ in kept) if changed else query


def _rewrite_cookies(request: RawRequest, changed: list[HttpArgument], value: Values) -> str:
    parts = [part.strip(" \t") for line in list_cookie_lines(request) for part in line.split(";")]
    kept = [part for part in parts if not any(is_of(each.declared, part.partition("=")[0]) for each in changed)]
    written = [f"{name}={text}" for each in changed for name, text in _list_pairs(each, value)]
    return "; ".join([*kept, *written])


def _rewrite_body(
    request: RawRequest, operation: HttpOperation, read: ReadRequest, value: Values, changed: list[HttpArgument]
) -> bytes:
    template = operation.template
    in_form = [each for each in changed if each.declared.place in ("form", "file")]
    if template.body == FORM:
        return _rewrite_query(request.body.decode("ascii"), in_form, value).encode() if in_form else request.body
    if template.body == MULTIPART:
        return _rewrite_parts(request, in_form, value) if in_form else request.body
    if not template.has_json:
        return request.body
    if template.body_argument:
        if _is_same(read.value, value, template.body_argument):
            return read.text if read.repairs else request.body
        return dumps(value[template.body_argument]) if template.body_argument in value else b""
    before, after = _select_members(operation, read.value), _select_members(operation, value)
    if before.keys() == after.keys() and all(_is_same(before, after, name) for name in before):
        return read.text if read.repairs else request.body
    return dumps({**after, **read.aside})


def _rewrite_parts(request: RawRequest, changed: Iterable[HttpArgument], value: Values) -> bytes:
    """Returns a multipart body with new parts for changed fields. All others keep their bytes."""
    content_type = request.header("content-type") or ""
    parts = split_body_parts(request) or []
    made = [(part.name, part.filename, part.media_type, request.body[part.start : part.end]) for part in parts]
    for argument in changed:
        mine = [part for part in made if not is_of(argument.declared, part[0])]
        made = [*mine, *((name, None, "", text.encode()) for name, text in _list_pairs(argument, value))]
    return join_parts(made, find_boundary(content_type))


# --- an operation with the settings of its policy and its route -------------------------------------------------------
@value_class
class BoundOperation(HttpOperation):
    """Implements `OperationRule`."""

    @property
    def matrix(self) -> frozenset[str]:
        """The path parameters in matrix style, in which `;` has a meaning."""
        return frozenset(each.declared.name for each in self.in_place("path") if each.declared.style == "matrix")

    def find_unwritable(self, value: JsonValue, sent: JsonValue = ABSENT) -> tuple[Violation, ...]:
        """The violations of arguments that cannot be written as a request."""
        return find_unwritable(self, value, sent)

    def write(self, value: JsonValue) -> WrittenRequest:
        """The whole request of a call by name."""
        return write_request(self, value)

    def rewrite(self, request: RawRequest, route_path: str, shape: object, value: JsonValue | None) -> WrittenRequest:
        """The client's request with the changed arguments."""
        if not isinstance(shape, CallShape):
            raise TypeError("the shape of a route is wanted")
        return rewrite_request(request, raw_segments(route_path, request), self, shape, value)


def bind_operation(
    template: RequestTemplate, check: Check | None, *, by_name: bool = False, query: QueryPolicy = QueryPolicy.JUDGE
) -> BoundOperation:
    """Looks up every argument of a template in the schema of its tool."""
    arguments, closed = bind_arguments(template, check)
    return BoundOperation(template, check, arguments, closed, by_name, query)
