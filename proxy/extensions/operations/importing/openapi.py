"""Reads an OpenAPI description, JSON or YAML, from a URL or a file into a Harvest.

Each operation becomes a tool behind its own route path, or an MCP tool. The routes have the paths that clients
know (the server's base path included), so a client has to change only the host. Operations that cannot be judged, such
as those whose body is neither JSON nor a form, are left out by name, or relayed if the user asks for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from proxy.config.files.yaml12 import MAX_DEPTH, MAX_NODES, YamlError, read_yaml
from proxy.core.json.jsontext import TextLimits, format_pointer, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonProblem, JsonValue
from proxy.core.schema.dialects import normalise
from proxy.extensions.operations.core.http.operations import RequestTemplate
from proxy.extensions.operations.core.openapi import (
    ListedOperation,
    OpenApiError,
    import_operation,
    list_operations,
    list_servers,
)
from proxy.extensions.operations.importing.fetch import fetch_description, is_url
from proxy.extensions.operations.importing.harvest import (
    FoundTool,
    Harvest,
    ImportProblem,
    LeftOut,
    Recorded,
    RelayedPath,
)
from proxy.plugin import MAX_FILE_BYTES, SchemaError, compile_check, read_file, split_url

_CALL_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE", "GET", "HEAD")
_ROUTE_METHODS: Final = (*_CALL_METHODS, "OPTIONS")
_TOOL_NAME: Final = re.compile(r"[^\s{}]{1,128}")  # as schemas/config.schema.json has it
_SEGMENT: Final = re.compile(r"[^{}%?#\s]*|\{[^{}]+\}")
_PARAMETER: Final = re.compile(r"\{([^{}]+)\}")
MCP_PATH: Final = "/mcp"
_RELAY_HINT: Final = "--relay passes it on unjudged"
_LIMITS: Final = TextLimits(depth=MAX_DEPTH, nodes=MAX_NODES)


@value_class
class Choice:
    """The user's options. `only`: patterns (`*` for anything) of names or `METHOD /path`; `relay`: relay the others
    that cannot be judged. `upstream`: where the tools run, '' if the description says it. `as_mcp`: serve them as the
    tools of an MCP server, without their own paths."""

    only: tuple[str, ...] = ()
    relay: bool = False
    upstream: str = ""
    as_mcp: bool = False

    def wants(self, operation: ListedOperation) -> bool:
        """Returns whether the user has chosen an operation."""
        names = (operation.name, f"{operation.method} {operation.path}")
        return not self.only or any(fnmatchcase(name, pattern) for pattern in self.only for name in names)


async def read_openapi(
    source: str,
    choice: Choice,
    headers: Headers = (),
    folder: Path | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Harvest:
    """The tools of an OpenAPI description at a URL or in a file (a relative path starts at `folder`).

    `headers` go with the request; `advance` is called with the number of operations read and their total.
    Raises ImportProblem.
    """
    if is_url(source):
        text = await fetch_description(source, headers)
    else:
        text = _read_file((folder or Path()) / source)
    return harvest_operations(_parse(text, source), source, choice, advance)


def _read_file(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ImportProblem(f"cannot read {path}: {error.strerror}", "a URL begins with http:// or https://") from None
    except ValueError as error:
        raise ImportProblem(f"cannot read {path}: {error}") from None


def _parse(text: bytes, source: str) -> JsonValue:
    """The parsed text: JSON if it begins with `{`, else YAML."""
    shown = source.partition("?")[0]
    if text.lstrip()[:1] == b"{":
        value = parse(text, _LIMITS)
        if isinstance(value, JsonProblem):
            raise ImportProblem(f"{shown}:{value.line}:{value.column}: not JSON: {value.reason}")
        return value
    try:
        return read_yaml(text).value
    except YamlError as problem:
        raise ImportProblem(f"{shown}:{problem.line}:{problem.column}: {problem.message}") from None


def harvest_operations(
    document: JsonValue,
    source: str,
    choice: Choice,
    advance: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Harvest:
    """Reads a parsed description from `source`, a URL or the path of a file. `advance` is called with the number of
    operations read and their total.

    Raises ImportProblem if it is not a description, or does not name its server.
    """
    try:
        operations = list_operations(document)
    except OpenApiError as error:
        raise ImportProblem(error.message, error.hint) from None
    origin, prefix, notes = _find_server(document, source, choice.upstream)
    sorting = _Sorting(document, prefix, choice)
    own = "" if choice.as_mcp else _find_description_path(source, origin)
    if own:
        sorting.claim("GET", own)
        sorting.relayed.append(RelayedPath("GET", own, "the description itself"))
    for done, operation in enumerate(operations, 1):
        if choice.wants(operation):
            sorting.take(operation)
        advance(done, len(operations))
    sorting.left_out += _list_references(document)
    if choice.only and not (sorting.tools or sorting.left_out or len(sorting.relayed) > bool(own)):
        raise ImportProblem(f"no operation is called {' or '.join(choice.only)}", "without --only all are taken")
    return Harvest(
        "openapi",
        source,
        origin,
        _describe_source(document, len(operations)),
        tuple(sorting.tools),
        tuple(sorting.relayed),
        tuple(sorting.left_out),
        notes,
        tuple(f"{operation.method} {operation.path}" for operation in operations),
        MCP_PATH if choice.as_mcp else "",
    )


def _list_references(document: JsonValue) -> Iterator[LeftOut]:
    """The paths that are references, and so are left out."""
    paths = document.get("paths")
    for path, item in (paths if isinstance(paths, dict) else {}).items():
        if isinstance(item, dict) and "$ref" in item:
            yield LeftOut(path, "the path is a reference", "bundle the description first, with any OpenAPI bundler")


def _describe_source(document: JsonValue, count: int) -> str:
    info = document.get("info")
    title = str(info.get("title", "")) if isinstance(info, dict) else ""
    version = document.get("openapi") or document.get("swagger")
    return f"{title or 'a description'}, OpenAPI {version}, {count} operation{'s' * (count != 1)}"


# --- where the tools run ----------------------------------------------------------------------------------------------
def _find_server(document: JsonValue, source: str, upstream: str) -> tuple[str, str, tuple[str, ...]]:
    """The upstream's origin, the path that its operations start with, and notes about both."""
    written = list_servers(document)
    named = written[0] if written else ""
    if _is_http(source) and (not named or split_url(named) != split_url("")):  # another cannot be read
        named = urljoin(source, named or "/")
    if upstream.startswith("unix:"):
        return upstream, _read_base_path(named), ()
    if not upstream:
        if not _is_http(named):
            known = f"only {named!r}" if named else "nothing"
            raise ImportProblem(f"the description says {known} about where its server is", "add --upstream URL")
        return _cut_origin(named), _read_base_path(named), ()
    if not _is_http(upstream):
        raise ImportProblem("--upstream is not a URL", "http://host:port, https://host:port or unix:/path")
    notes: tuple[str, ...] = ()
    if _is_http(written[0] if written else "") and _cut_origin(written[0]) != _cut_origin(upstream):
        notes = (
            f"the description names {_cut_origin(written[0])} as its server: "
            "a client that follows it passes the proxy by",
        )
    query = split_url(upstream).query
    origin = _cut_origin(upstream) + (f"?{query}" if query else "")
    return origin, _read_base_path(upstream) or _read_base_path(named), notes


def _is_http(text: str) -> bool:
    return text.startswith(("http://", "https://")) and split_url(text).netloc != ""


def _cut_origin(url: str) -> str:
    parts = split_url(url)
    if "@" in parts.netloc or not parts.hostname:
        raise ImportProblem("a URL with a name and a password, or without a host", "secrets go into --header")
    return f"{parts.scheme}://{parts.netloc}"


def _read_base_path(url: str) -> str:
    return split_url(url).path.rstrip("/")


def _find_description_path(source: str, origin: str) -> str:
    """The description's own path behind the proxy, where agents read it; '' where another server publishes it."""
    if not _is_http(source) or _cut_origin(source) != origin.partition("?")[0]:
        return ""
    path = split_url(source).path
    return path if path and _explain_unroutable(path) == "" else ""


# --- the operations ---------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Sorting:
    document: JsonValue
    prefix: str
    choice: Choice
    tools: list[FoundTool] = field(default_factory=list)
    relayed: list[RelayedPath] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    claimed: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, operation: ListedOperation) -> None:
        """Adds one operation to the tools, to the relayed paths, or to those left out."""
        path = self.prefix + _rename_parameters(operation.path)
        why = self.explain_unservable(operation, path)
        if why:
            self.leave(operation, why)
        elif operation.method not in _CALL_METHODS:
            self.add_unjudged(operation, path, f"{operation.method} carries no call")
        else:
            self.judge(operation, path)

    def explain_unservable(self, operation: ListedOperation, path: str) -> str:
        if operation.method not in _ROUTE_METHODS:
            return f"no route takes {operation.method}"
        if operation.elsewhere:
            return "it runs on another server"
        if why := _explain_unroutable(path):
            return why
        other = self.claim(operation.method, path)
        return f"its path is the same as that of {other}" if other else ""

    def claim(self, method: str, path: str) -> str:
        """Takes a path for a method; gives the operation that has it already, or ''."""
        key = (method, _PARAMETER.sub("{}", path))
        if key in self.claimed:
            return self.claimed[key]
        self.claimed[key] = f"{method} {path}"
        return ""

    def judge(self, operation: ListedOperation, path: str) -> None:
        """Makes a tool of an operation, or leaves it out with the reason."""
        origin = f"{operation.method} {operation.path}"
        try:
            found = import_operation(self.document, origin)
            compile_check(normalise(found.schema)[0])
        except OpenApiError as error:
            self.add_unjudged(operation, path, error.message)
        except SchemaError as error:
            where = f"{format_pointer(error.path)}: " if error.path else ""
            self.add_unjudged(operation, path, f"its schema does not compile: {where}{error.message}")
        else:
            request = _adapt_request(found.request, path, operation.path)
            described = found.description or operation.summary
            self.tools.append(
                FoundTool(
                    self.name_tool(operation),
                    described,
                    found.schema,
                    origin,
                    path,
                    operation.method,
                    found.notes,
                    request,
                )
            )

    def add_unjudged(self, operation: ListedOperation, path: str, why: str) -> None:
        if self.choice.relay:
            self.relayed.append(RelayedPath(operation.method, path, f"unjudged, as asked: {why}"))
        else:
            self.leave(operation, why, "" if self.choice.as_mcp else _RELAY_HINT, path)

    def leave(self, operation: ListedOperation, why: str, hint: str = "", path: str = "") -> None:
        name = f"{operation.method} {operation.path}"
        self.left_out.append(LeftOut(name, why, hint, operation.method if path else "", path))

    def name_tool(self, operation: ListedOperation) -> str:
        """A unique name for the tool: the operationId, by which agents call it, or a name made of method and path."""
        made = re.sub(r"[^A-Za-z0-9]+", "_", f"{operation.method.lower()}_{operation.path}").strip("_")[:120]
        usable = _TOOL_NAME.fullmatch(operation.name) and operation.name.isprintable()
        base = operation.name if usable else made
        name = next(name for name in _number_names(base) if name not in self.names)
        self.names.add(name)
        return name


def _number_names(base: str) -> Iterator[str]:
    yield base
    for number in range(2, 1_000_000):
        yield f"{base[:120]}_{number}"


def _rename_parameters(path: str) -> str:
    """The path with names that a route accepts for its parameters: `{pet-id}` becomes `{pet_id}`, and `{tool}`, which
    names the tool in a route, becomes `{tool_}`."""
    taken: set[str] = set()

    def name(found: re.Match[str]) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", found[1])
        plain = f"_{plain}" if plain[0].isdigit() else f"{plain}_" if plain == "tool" else plain
        chosen = next(each for each in _number_names(plain) if each not in taken)
        taken.add(chosen)
        return f"{{{chosen}}}"

    return _PARAMETER.sub(name, path)


def _adapt_request(template: RequestTemplate, path: str, described: str) -> RequestTemplate:
    """The request with its route's path, and its path parameters under the names in that path."""
    names = dict(zip(_PARAMETER.findall(described), _PARAMETER.findall(path)[-described.count("{") :], strict=False))
    parameters = tuple(
        replace(each, name=names.get(each.name, each.name)) if each.place == "path" else each
        for each in template.parameters
    )
    return replace(template, path=path, parameters=parameters)


def _explain_unroutable(path: str) -> str:
    """Returns why no route can have a path, or ''."""
    segments: Iterable[str] = path.split("/")[1:]
    if not path.startswith("/") or any(not _SEGMENT.fullmatch(segment) for segment in segments):
        return "a route's path has parameters in whole segments, and no ?, #, % or blanks"
    *inner, last = path.split("/")[1:]
    if "" in inner or {".", ".."} & {*inner, last}:
        return "its path has an empty segment, '.' or '..'"
    return ""


__all__ = ["MAX_FILE_BYTES", "is_url", "read_openapi"]


async def read_again(recorded: Recorded, headers: Headers, folder: Path) -> Harvest:
    """The current harvest of a recorded description; a file is looked for in `folder`. Raises ImportProblem."""
    return await read_openapi(recorded.source, Choice(upstream=recorded.upstream), headers, folder)
