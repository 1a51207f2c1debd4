"""The adapter of HTTP operations: path, query, headers and body of a request are the arguments of one tool.

A request is read into one object, each parameter by its style, and judged as a whole. Valid parts are forwarded as they
came: `http_request.py` rewrites only the parts whose arguments were changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from proxy.adapters.ladder import find_call_id, find_conversation
from proxy.core.display.preview import clean_text
from proxy.core.json.jsontext import NO_ARGUMENTS, dumps, read_document
from proxy.core.model import codes
from proxy.core.model.fields import fold_header
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
from proxy.extensions.operations.adapters.undeclared_names import find_hidden, find_undeclared
from proxy.extensions.operations.core.channels import explain_unreadable
from proxy.extensions.operations.core.http.body import FORM, MULTIPART
from proxy.extensions.operations.core.http.multipart import (
    Pairs,
    Part,
    decode_cookie,
    find_boundary,
    find_doubtful_cookies,
    is_field_text,
    list_cookies,
    split_parts,
    strip_quotes,
)
from proxy.extensions.operations.core.http.request_text import (
    MOST_PAIRS,
    count_pairs,
    group_pairs,
    is_of,
    list_written_names,
    read_header,
    read_pairs,
    read_path,
    select_pairs,
    split_query,
)
from proxy.extensions.operations.core.http_operation import HttpArgument, HttpOperation
from proxy.plugin import Adapter, CallShape, QueryPolicy

# The repair by which an absent body becomes `{}` (docs/repair.md).
EMPTY: Final = "empty_arguments"
_SHOWN: Final = 60  # characters of a name in a message
_NO_BODY: Final = (b"", b"{}", b"null")  # of clients that send one with every request
# The arguments of a request without a body, if the body is optional.
_NOTHING: Final = Document(b"{}", {})
_MOST_FIELDS: Final = 1000
_JUDGING: Final = (QueryPolicy.JUDGE, QueryPolicy.STRICT)


@dataclass(slots=True)
class ReadRequest:
    """A request as arguments. `text` is a JSON body as it may be sent, after the `repairs` that reading it took.
    `aside` holds members of the body that have the name of another argument. `problem`: why the body cannot be read."""

    value: dict[str, JsonValue] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    text: bytes = b""
    repairs: tuple[Repair, ...] = ()
    aside: dict[str, JsonValue] = field(default_factory=dict)
    problem: JsonProblem | None = None


class HttpOperationAdapter(Adapter):
    """Implements `Adapter` for routes that take the requests of an HTTP operation."""

    name = "http"

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a request. Unreadable parts are violations of the call: `decide` refuses it and names their
        places."""
        operation, body = _get_operation(shape), request.body
        read = ReadRequest()
        arguments: Document | JsonProblem
        if operation.template.is_plain:
            read.violations += _check_undeclared_query(operation, request.query, shape.text.nodes)
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
        optional = not _get_operation(shape).template.body_required
        if not checked.enforced or (optional and not request.body.strip() and not checked.repairs):
            return request.body
        return checked.arguments


def _get_operation(shape: CallShape) -> HttpOperation:
    if not isinstance(shape.operation, HttpOperation):
        raise TypeError("a route of this adapter has an operation")
    return shape.operation


def read_request(request: RawRequest, operation: HttpOperation, shape: CallShape) -> ReadRequest:
    """Reads all parts of a request into one object."""
    read = ReadRequest()
    for argument in operation.in_place("path"):
        text = request.params.get(argument.declared.name)
        if text is not None:
            _take(read, operation, argument, read_path(argument.declared, text))
    _read_query(read, operation, request.query, shape.text.nodes)
    for argument in operation.in_place("header"):
        lines = [value for name, value in request.headers if name == argument.declared.name.lower()]
        if lines:
            _take(read, operation, argument, read_header(argument.declared, lines))
    read.violations += _find_lookalike_headers(operation, request)
    if cookies := list(operation.in_place("cookie")):
        _read_cookies(read, operation, cookies, list_cookie_lines(request))
    _read_body(read, operation, request, shape)
    return read


def list_cookie_lines(request: RawRequest) -> list[str]:
    """The values of the request's Cookie headers."""
    return [value for name, value in request.headers if name == "cookie"]


def _read_cookies(read: ReadRequest, operation: HttpOperation, cookies: list[HttpArgument], lines: list[str]) -> None:
    pairs = list_cookies(lines)
    owners = {name: argument for argument in cookies for name in list_written_names(argument.declared)}
    in_json = {each.declared.name for each in cookies if each.declared.style == "json"}
    for name in dict.fromkeys(find_doubtful_cookies(lines, owners, in_json)):
        read.violations.append(_explain_doubtful_cookie(owners[name], name))
    for argument in cookies:
        mine = [pair for pair in pairs if is_of(argument.declared, pair[0])]
        if not mine:
            continue
        plain = [(name, strip_quotes(text)) for name, text in mine]
        _take(read, operation, argument, read_pairs(argument.declared, plain))
        # Some services keep the quotes, and some decode escapes.
        for other in (mine, [(name, decode_cookie(text)) for name, text in plain]):
            if other != plain and not _takes_any(operation, argument, read_pairs(argument.declared, other)):
                read.violations.append(_explain_doubtful_cookie(argument, argument.declared.name))


def _takes_any(operation: HttpOperation, argument: HttpArgument, readings: list[JsonValue]) -> bool:
    check = operation.check
    return check is None or any(all(check.accepts_at(node, reading) for node in argument.nodes) for reading in readings)


def _explain_doubtful_cookie(argument: HttpArgument, name: str) -> Violation:
    shown = clean_text(name, _SHOWN)
    message = f"The cookie '{shown}' can be read in two ways"
    hint = f"Send it once, as {shown}=VALUE, without blanks, quotes, backslashes and escapes."
    return Violation(codes.CONSTRAINT, (argument.name,), message, hint=hint)


def _find_lookalike_headers(operation: HttpOperation, request: RawRequest) -> Iterator[Violation]:
    """Headers that some gateways read as a declared one."""
    declared = {fold_header(each.declared.name): each for each in operation.in_place("header")}
    for name in dict.fromkeys(name for name, _ in request.headers):
        argument = declared.get(fold_header(name))
        if argument is not None and name != argument.declared.name.lower():
            declared_name = argument.declared.name
            message = f"The header '{clean_text(name, _SHOWN)}' is read as '{declared_name}' by some services"
            yield Violation(codes.UNKNOWN_FIELD, (argument.name,), message, hint=f"Write it as '{declared_name}'.")


def _take(read: ReadRequest, operation: HttpOperation, argument: HttpArgument, readings: list[JsonValue]) -> None:
    """Adds an argument by its possible readings; without any, adds a violation."""
    if argument.declared.empty and readings == [""]:
        return
    if readings:
        read.value[argument.name] = argument.choose(readings, operation.check)
    else:
        read.violations.append(explain_unreadable(argument.declared, (argument.name,)))


# --- names and values -------------------------------------------------------------------------------------------------
def _read_query(read: ReadRequest, operation: HttpOperation, query: str, most: int) -> None:
    if operation.query not in _JUDGING or _has_too_many(read, query, "query string", most):
        return
    pairs = split_query(query)
    if pairs is None:
        hint = "Escape each byte of the UTF-8 text as %XX."
        message = "The query string is not escaped text in UTF-8"
        read.violations.append(Violation(codes.CONSTRAINT, (), message, hint=hint))
        return
    _read_names(read, operation, pairs, "query", query)


def _check_undeclared_query(operation: HttpOperation, query: str, most: int) -> list[Violation]:
    """The violations of a query where the operation declares none."""
    read = ReadRequest()
    if query:
        _read_query(read, operation, query, most)
    return read.violations


def _has_too_many(read: ReadRequest, text: str, what: str, most: int) -> bool:
    """Returns whether a query or a form has too many pairs to read (`most` by the config), which adds a violation."""
    most = min(most, MOST_PAIRS)
    if count_pairs(text) <= most:
        return False
    hint = "Send less, or split the work over several calls; escape a ';' as %3B."
    read.violations.append(Violation(codes.CONSTRAINT, (), f"The {what} has more than {most} pairs", hint=hint))
    return True


def _read_names(read: ReadRequest, operation: HttpOperation, pairs: Pairs, place: str, text: str = "") -> None:
    """Reads the arguments in a query or a form; `text` as it was sent."""
    taken = set(operation.template.credentials) if place == "query" else set[str]()
    arguments, groups = list(operation.in_place(place)), group_pairs(pairs)
    for argument in arguments:
        mine = select_pairs(argument.declared, groups)
        taken.update(name for name, _ in mine)
        taken.add(argument.declared.name)
        if mine:
            _take(read, operation, argument, read_pairs(argument.declared, mine))
    known = [*(each.declared.name for each in arguments), *operation.template.credentials]
    known += [name for argument in arguments for name in list_written_names(argument.declared)]
    undeclared = [name for name in groups if name not in taken]
    read.violations += find_undeclared(operation, known, undeclared, place)
    read.violations += find_hidden(known, text)
    if place == "form" and not operation.closed:
        _read_undeclared(read, operation, {name: groups[name] for name in undeclared if name not in operation.names})


def _read_undeclared(read: ReadRequest, operation: HttpOperation, groups: dict[str, Pairs]) -> None:
    """The fields of a form that no parameter declares, which the rest of the schema judges."""
    if len(groups) > _MOST_FIELDS:
        message, hint = f"The form has more than {_MOST_FIELDS} undeclared fields", "Send only the declared ones."
        read.violations.append(Violation(codes.CONSTRAINT, (), message, hint=hint))
        return
    for name, pairs in groups.items():
        field = operation.make_field(name, is_list=len(pairs) > 1)
        _take(read, operation, field, read_pairs(field.declared, pairs))


# --- bodies -----------------------------------------------------------------------------------------------------------
def _read_body(read: ReadRequest, operation: HttpOperation, request: RawRequest, shape: CallShape) -> None:
    template, body = operation.template, request.body
    if not template.body:
        if body.strip() not in _NO_BODY:
            message = "The operation takes no body"
            read.violations.append(Violation(codes.UNKNOWN_FIELD, (), message, hint="Send the request without one."))
    elif template.body == FORM:
        _read_form(read, operation, request, shape)
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
            hint = f"It belongs in the {places[name]} of the request: leave it out of the body."
            message = f"Unknown field '{clean_text(name, _SHOWN)}' in the body"
            read.violations.append(Violation(codes.UNKNOWN_FIELD, (name,), message, hint=hint))
        else:
            read.aside[name] = value


def _read_form(read: ReadRequest, operation: HttpOperation, request: RawRequest, shape: CallShape) -> None:
    text = request.body.decode("latin-1")
    if _has_too_many(read, text, "form", shape.text.nodes):
        return
    pairs = split_query(text) if text.isascii() else None
    if pairs is None:
        hint = "Escape each byte of the UTF-8 text as %XX."
        read.violations.append(Violation(codes.CONSTRAINT, (), "The form is not escaped text in UTF-8", hint=hint))
        return
    _read_names(read, operation, pairs, "form", text)


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
        hint = "Send each field as a part with a separate name, its text in UTF-8, and no other headers."
        message = "The body is not plain multipart/form-data that all services read alike"
        read.violations.append(Violation(codes.CONSTRAINT, (), message, hint=hint))
        return
    files = {each.declared.name: each for each in operation.in_place("file")}
    for part in parts:
        if part.filename is not None or part.name in files:
            _read_file(read, files.get(part.name), part)
    _read_names(read, operation, [pair for pair in fields if pair[0] not in files], "form")


def _read_file(read: ReadRequest, argument: HttpArgument | None, part: Part) -> None:
    """Notes that a file is there. Browsers send a part without a file's name and content where none was chosen."""
    shown = clean_text(part.name, _SHOWN)
    if argument is None:
        message = f"The part '{shown}' has a file's name, and no file of this name is declared"
        read.violations.append(Violation(codes.UNKNOWN_FIELD, (part.name,), message, hint="Send it as a field."))
    elif not part.filename:
        if part.filename is None or part.end > part.start:
            message = f"The part '{shown}' is a file, and is sent without a file's name"
            hint = f'Send it with filename="{shown}".'
            read.violations.append(Violation(codes.CONSTRAINT, (argument.name,), message, hint=hint))
    elif argument.declared.explode:
        read.value.setdefault(argument.name, []).append("")
    elif argument.name in read.value:
        read.violations.append(explain_unreadable(argument.declared, (argument.name,)))
    else:
        read.value[argument.name] = ""


def _read_fields(body: bytes, parts: list[Part]) -> Pairs | None:
    fields = [part for part in parts if part.filename is None]
    if not all(is_field_text(part.media_type) for part in fields):
        return None
    try:
        pairs = [(part.name, body[part.start : part.end].decode()) for part in fields]
    except UnicodeDecodeError:
        return None
    # HTML's form field that names the charset of all others (section 4.10.22.4).
    named = [text.strip().lower() for name, text in pairs if name == "_charset_"]
    return pairs if all(charset in ("utf-8", "us-ascii") for charset in named) else None


ADAPTER: Final = HttpOperationAdapter()
