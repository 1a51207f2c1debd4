"""The adapter of HTTP operations: path, query, headers and body of a request are the arguments of one tool.

A request is read into one object, each parameter by its style, and judged as a whole. Valid parts are forwarded as they
came: `http_request.py` rewrites only the parts whose arguments were changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from proxy.adapters.base import CallShape, EnvelopeAdapter
from proxy.adapters.ladder import find_call_id, find_conversation
from proxy.adapters.plain import NO_ARGUMENTS
from proxy.core.contract.http_operation import HttpArgument, HttpOperation, QueryPolicy
from proxy.core.display.preview import clean_text
from proxy.core.explain.channels import explain_unreadable
from proxy.core.json.jsontext import dumps
from proxy.core.json.textrepair import read_document
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Document,
    Failure,
    JsonProblem,
    JsonValue,
    Passthrough,
    RawRequest,
    Repair,
    ToolCall,
    Violation,
)
from proxy.core.schema.http.body import FORM, MULTIPART
from proxy.core.schema.http.request_text import (
    Pairs,
    Part,
    find_boundary,
    is_of,
    read_header,
    read_pairs,
    read_path,
    split_parts,
    split_query,
)

# The repair by which an absent body becomes `{}` (repair.md section 1).
EMPTY: Final = "empty_arguments"
_SHOWN: Final = 60  # characters of a name in a message
# Bodies of clients that send one with every request.
_NO_BODY: Final = (b"", b"{}", b"null")
# The arguments of a request without a body, where the body is optional.
_NOTHING: Final = Document(b"{}", {})
_MOST_UNKNOWN: Final = 100
_JUDGING: Final = (QueryPolicy.JUDGE, QueryPolicy.STRICT)


@dataclass(slots=True)
class ReadRequest:
    """A request as arguments. `text` is a JSON body as it may be sent, after the `repairs` that reading it took;
    `aside` holds members of the body that have the name of another argument; `problem`: why the body cannot be read."""

    value: dict[str, JsonValue] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    text: bytes = b""
    repairs: tuple[Repair, ...] = ()
    aside: dict[str, JsonValue] = field(default_factory=dict)
    problem: JsonProblem | None = None


class HttpOperationAdapter(EnvelopeAdapter):
    """Implements `Adapter` for routes that take the requests of an HTTP operation."""

    name = "http"

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a request. Unreadable parts are violations of the call: `decide` refuses it and names their
        places."""
        operation, body = shape.operation, request.body
        if operation is None:
            raise ValueError("a route of this adapter has an operation")
        read = ReadRequest()
        arguments: Document | JsonProblem
        if operation.template.is_plain:
            read.violations += _check_undeclared_query(operation, request.query)
            absent = NO_ARGUMENTS if operation.template.body_required else _NOTHING
            arguments = read_document(body, shape.text, shape.text_repairs) if body.strip() else absent
        else:
            read = read_request(request, operation, shape)
            arguments = read.problem or Document(dumps(read.value), read.value, read.repairs)
        value = arguments.value if isinstance(arguments, Document) else ABSENT
        return ToolCall(
            shape.tool or "",
            arguments,
            find_call_id(request, shape.call_id_pointer, value, fresh_id),
            find_conversation(request, shape.ladder, value),
            body if isinstance(arguments, JsonProblem) else b"",
            request.params,
            request.query,
            violations=tuple(read.violations),
        )

    def rewrite(self, request: RawRequest, shape: CallShape, checked: CheckedCall) -> bytes:
        """The body of a plain operation; `http_request.py` writes all others. An absent optional body stays absent."""
        optional = shape.operation is not None and not shape.operation.template.body_required
        if not checked.enforced or (optional and not request.body.strip() and not checked.repairs):
            return request.body
        return checked.arguments


def read_request(request: RawRequest, operation: HttpOperation, shape: CallShape) -> ReadRequest:
    """Reads all parts of a request into one object."""
    read = ReadRequest()
    for argument in operation.in_place("path"):
        text = request.params.get(argument.declared.name)
        if text is not None:
            _take(read, operation, argument, read_path(argument.declared, text))
    _read_query(read, operation, request.query)
    for argument in operation.in_place("header"):
        lines = [value for name, value in request.headers if name == argument.declared.name.lower()]
        if lines:
            _take(read, operation, argument, read_header(argument.declared, lines))
    if any(operation.in_place("cookie")):
        pairs = list(list_cookies(request))
        for argument in operation.in_place("cookie"):
            mine = [pair for pair in pairs if is_of(argument.declared, pair[0])]
            if mine:
                _take(read, operation, argument, read_pairs(argument.declared, mine))
    _read_body(read, operation, request, shape)
    return read


def list_cookies(request: RawRequest) -> Iterator[tuple[str, str]]:
    """The cookies of a request, as they were sent."""
    for name, value in request.headers:
        if name == "cookie":
            for part in value.split(";"):
                key, _, text = part.strip().partition("=")
                yield key, text.strip('"')


def _take(read: ReadRequest, operation: HttpOperation, argument: HttpArgument, readings: list[JsonValue]) -> None:
    """Adds an argument by its possible readings; without any, adds a violation."""
    if argument.declared.empty and readings == [""]:
        return
    if readings:
        read.value[argument.name] = argument.choose(readings, operation.check)
    else:
        read.violations.append(explain_unreadable(argument.declared, (argument.name,)))


# --- names and values -------------------------------------------------------------------------------------------------
def _read_query(read: ReadRequest, operation: HttpOperation, query: str) -> None:
    if operation.query not in _JUDGING:
        return
    pairs = split_query(query)
    if pairs is None:
        hint = "Escape each byte of the UTF-8 text as %XX."
        message = "The query string is not escaped text in UTF-8"
        read.violations.append(Violation(codes.CONSTRAINT, (), message, hint=hint))
        return
    _read_names(read, operation, pairs, "query")


def _check_undeclared_query(operation: HttpOperation, query: str) -> list[Violation]:
    """The violations of a query where the operation declares none."""
    read = ReadRequest()
    if query:
        _read_query(read, operation, query)
    return read.violations


def _read_names(read: ReadRequest, operation: HttpOperation, pairs: Pairs, place: str) -> None:
    """The arguments that stand in a query or a form."""
    taken = set(operation.template.credentials) if place == "query" else set[str]()
    arguments = list(operation.in_place(place))
    for argument in arguments:
        mine = [pair for pair in pairs if is_of(argument.declared, pair[0])]
        taken.update(name for name, _ in mine)
        taken.add(argument.declared.name)
        if mine:
            _take(read, operation, argument, read_pairs(argument.declared, mine))
    known = [*(each.declared.name for each in arguments), *operation.template.credentials]
    read.violations += _find_undeclared(operation, known, [name for name, _ in pairs if name not in taken], place)


def _find_undeclared(
    operation: HttpOperation, declared: list[str], names: list[str], place: str
) -> Iterator[Violation]:
    folded = {fold_name(name): name for name in declared}
    what = "query parameter" if place == "query" else "field of the form"
    for name in list(dict.fromkeys(names))[:_MOST_UNKNOWN]:
        shown = clean_text(name, _SHOWN)
        meant = folded.get(fold_name(name))
        if meant is not None:
            message = f"The {what} '{shown}' is read as '{meant}' by some services, and as unknown by others"
            yield Violation(codes.UNKNOWN_FIELD, (name,), message, hint=f"Write it as '{meant}'.")
        else:
            strict = operation.query is QueryPolicy.STRICT
            hint = f"Leave it out; known: {', '.join(sorted(declared)) or 'none'}." if strict else ""
            severity = Severity.ERROR if strict else Severity.WARNING
            yield Violation(codes.UNKNOWN_FIELD, (name,), f"Unknown {what} '{shown}'", hint=hint, severity=severity)


def fold_name(name: str) -> str:
    """A name as the most lenient frameworks read it: without case, brackets and outer blanks, with `_` for `.`
    (PHP)."""
    return name.strip(" \t\0").partition("[")[0].casefold().replace(".", "_").replace(" ", "_")


# --- bodies -----------------------------------------------------------------------------------------------------------
def _read_body(read: ReadRequest, operation: HttpOperation, request: RawRequest, shape: CallShape) -> None:
    template, body = operation.template, request.body
    if not template.body:
        if body.strip() not in _NO_BODY:
            message = "The operation takes no body"
            read.violations.append(Violation(codes.UNKNOWN_FIELD, (), message, hint="Send the request without one."))
    elif template.body == FORM:
        _read_form(read, operation, request)
    elif template.body == MULTIPART:
        _read_parts(read, operation, request)
    elif body.strip():
        _read_json(read, operation, body, shape)
    elif template.body_required and EMPTY in shape.text_repairs and not template.body_argument:
        read.text, read.repairs = b"{}", (Repair(EMPTY, ()),)


def _read_json(read: ReadRequest, operation: HttpOperation, body: bytes, shape: CallShape) -> None:
    document = read_document(body, shape.text, shape.text_repairs)
    if isinstance(document, JsonProblem):
        read.problem = document
        return
    read.text, read.repairs = document.text, document.repairs
    if operation.template.body_argument:
        read.value[operation.template.body_argument] = document.value
        return
    if not isinstance(document.value, dict):
        hint = "Send the members of the body as a JSON object."
        read.violations.append(Violation(codes.TYPE_MISMATCH, (), "The body is not a JSON object", "object", hint))
        return
    places = {each.name: each.declared.place for each in operation.arguments}
    for name, value in document.value.items():
        if name not in places:
            read.value[name] = value
        elif operation.closed:
            hint = f"It stands in the {places[name]} of the request: leave it out of the body."
            message = f"Unknown field '{clean_text(name, _SHOWN)}' in the body"
            read.violations.append(Violation(codes.UNKNOWN_FIELD, (name,), message, hint=hint))
        else:
            read.aside[name] = value


def _read_form(read: ReadRequest, operation: HttpOperation, request: RawRequest) -> None:
    text = request.body.decode("latin-1")
    pairs = split_query(text) if text.isascii() else None
    if pairs is None:
        hint = "Escape each byte of the UTF-8 text as %XX."
        read.violations.append(Violation(codes.CONSTRAINT, (), "The form is not escaped text in UTF-8", hint=hint))
        return
    _read_names(read, operation, pairs, "form")


def split_body_parts(request: RawRequest) -> list[Part] | None:
    """The parts of a multipart body; None where it cannot be read."""
    return split_parts(request.body, find_boundary(request.header("content-type") or ""))


def _read_parts(read: ReadRequest, operation: HttpOperation, request: RawRequest) -> None:
    """Reads the fields of a multipart body; of its files only the presence."""
    if not request.body and not operation.template.body_required:
        return
    parts = split_body_parts(request)
    fields = _read_fields(request.body, parts) if parts is not None else None
    if parts is None or fields is None:
        hint = "Send each field as a part with a name of its own, its text in UTF-8, and no other headers."
        read.violations.append(Violation(codes.CONSTRAINT, (), "The body is not plain multipart/form-data", hint=hint))
        return
    files = {each.declared.name: each for each in operation.in_place("file")}
    for part in parts:
        if part.name in files and part.filename is not None:
            argument = files[part.name]
            if argument.declared.explode:
                read.value.setdefault(argument.name, []).append("")
            elif argument.name in read.value:
                read.violations.append(explain_unreadable(argument.declared, (argument.name,)))
            else:
                read.value[argument.name] = ""
    _read_names(read, operation, [pair for pair in fields if pair[0] not in files], "form")


def _read_fields(body: bytes, parts: list[Part]) -> Pairs | None:
    try:
        return [(part.name, body[part.start : part.end].decode()) for part in parts if part.filename is None]
    except UnicodeDecodeError:
        return None
