"""An OpenAPI description -> Harvest: each operation becomes a tool behind a route of its own path, or an MCP tool.

The routes have the paths that clients know already (the server's base path included), so that a client has to change
its host and nothing else. What cannot be judged, such as an operation whose body is neither JSON nor a form, is left
out by name, or relayed where the user asks for that.

Reads an OpenAPI description from a URL or a file, as JSON or YAML, into a Harvest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

from proxy.config.files.source import MAX_FILE_BYTES, read_file
from proxy.config.files.yaml12 import MAX_DEPTH, MAX_NODES, YamlError, read_yaml
from proxy.core.check.validation import SchemaError, compile_check
from proxy.core.json.jsontext import TextLimits, format_pointer, parse
from proxy.core.model.values import Headers, JsonProblem, JsonValue
from proxy.core.schema.dialects import normalise
from proxy.core.schema.http.operations import RequestTemplate
from proxy.core.schema.openapi import ListedOperation, OpenApiError, import_operation, list_operations, list_servers
from proxy.importing.fetch import fetch_description
from proxy.importing.harvest import FoundTool, Harvest, ImportProblem, LeftOut, RelayedPath

_CALL_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE", "GET", "HEAD")
_ROUTE_METHODS: Final = (*_CALL_METHODS, "OPTIONS")
_TOOL_NAME: Final = re.compile(r"[^\s{}]{1,128}")  # as schemas/config.schema.json has it
_SEGMENT: Final = re.compile(r"[^{}%?#\s]*|\{[^{}]+\}")
_PARAMETER: Final = re.compile(r"\{([^{}]+)\}")
MCP_PATH: Final = "/mcp"
_RELAY_HINT: Final = "--relay passes it on unjudged"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user asked for. `only`: patterns (`*` for anything) of names or `METHOD /path`; `relay`: pass on
    unjudged what cannot be judged; `upstream`: where the tools run, '' where the description says it; `as_mcp`: serve
    them as the tools of an MCP server, and no path of their own."""

    only: tuple[str, ...] = ()
    relay: bool = False
    upstream: str = ""
    as_mcp: bool = False

    def wants(self, operation: ListedOperation) -> bool:
        """Whether an operation was asked for."""
        names = (operation.name, f"{operation.method} {operation.path}")
        return not self.only or any(fnmatchcase(name, pattern) for pattern in self.only for name in names)


def harvest_operations(
    document: JsonValue,
    source: str,
    choice: Choice,
    advance: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Harvest:
    """Reads a parsed description that came from `source`, a URL or the path of a file. `advance` hears how many of all
    operations are read.

    Raises ImportProblem where it is no description, or says nowhere where its server is.
    """
    try:
        operations = list_operations(document)
    except OpenApiError as error:
        raise ImportProblem(error.message, error.hint) from None
    origin, prefix, notes = _server(document, source, choice.upstream)
    sorting = _Sorting(document, prefix, choice)
    own = "" if choice.as_mcp else _description_path(source, origin)
    if own:
        sorting.claim("GET", own)
        sorting.relayed.append(RelayedPath("GET", own, "the description itself"))
    for done, operation in enumerate(operations, 1):
        if choice.wants(operation):
            sorting.take(operation)
        advance(done, len(operations))
    sorting.left_out += _references(document)
    if choice.only and not (sorting.tools or sorting.left_out or len(sorting.relayed) > bool(own)):
        raise ImportProblem(f"no operation is called {' or '.join(choice.only)}", "without --only all are taken")
    return Harvest(
        "openapi",
        source,
        origin,
        _about(document, len(operations)),
        tuple(sorting.tools),
        tuple(sorting.relayed),
        tuple(sorting.left_out),
        notes,
        tuple(f"{operation.method} {operation.path}" for operation in operations),
        MCP_PATH if choice.as_mcp else "",
    )


def _references(document: JsonValue) -> Iterator[LeftOut]:
    """Paths whose operations stand elsewhere."""
    paths = document.get("paths")
    for path, item in (paths if isinstance(paths, dict) else {}).items():
        if isinstance(item, dict) and "$ref" in item:
            yield LeftOut(path, "the path is a reference", "bundle the description first, with any OpenAPI bundler")


def _about(document: JsonValue, count: int) -> str:
    info = document.get("info")
    title = str(info.get("title", "")) if isinstance(info, dict) else ""
    version = document.get("openapi") or document.get("swagger")
    return f"{title or 'a description'}, OpenAPI {version}, {count} operation{'s' * (count != 1)}"


# --- where the tools run ----------------------------------------------------------------------------------------------
def _server(document: JsonValue, source: str, upstream: str) -> tuple[str, str, tuple[str, ...]]:
    """The upstream's origin, the path its operations start at, and what to know about the two."""
    written = list_servers(document)
    named = urljoin(source, written[0] if written else "/") if _is_url(source) else (written[0] if written else "")
    if upstream.startswith("unix:"):
        return upstream, _base_path(named), ()
    if not upstream:
        if not _is_url(named):
            said = f"only {named!r}" if named else "nothing"
            raise ImportProblem(f"the description says {said} about where its server is", "add --upstream URL")
        return _origin(named), _base_path(named), ()
    if not _is_url(upstream):
        raise ImportProblem("--upstream is no URL", "http://host:port, https://host:port or unix:/path")
    notes: tuple[str, ...] = ()
    if _is_url(written[0] if written else "") and _origin(written[0]) != _origin(upstream):
        notes = (
            f"the description names {_origin(written[0])} as its server: a client that follows it passes the proxy by",
        )
    return _origin(upstream), _base_path(upstream) or _base_path(named), notes


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc or not parts.hostname:
        raise ImportProblem("a URL with a name and a password, or without a host", "secrets go into --header")
    return f"{parts.scheme}://{parts.netloc}"


def _base_path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _description_path(source: str, origin: str) -> str:
    """Where agents that read the description find it behind the proxy; '' where it lies elsewhere."""
    if not _is_url(source) or _origin(source) != origin:
        return ""
    path = urlsplit(source).path
    return path if path and _unroutable(path) == "" else ""


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
        """Puts one operation where it belongs."""
        path = self.prefix + _renamed(operation.path)
        why = self.unservable(operation, path)
        if why:
            self.leave(operation, why)
        elif operation.method not in _CALL_METHODS:
            self.cannot_judge(operation, path, f"{operation.method} carries no call")
        else:
            self.judge(operation, path)

    def unservable(self, operation: ListedOperation, path: str) -> str:
        if operation.method not in _ROUTE_METHODS:
            return f"no route takes {operation.method}"
        if operation.elsewhere:
            return "it runs on a server of its own"
        if why := _unroutable(path):
            return why
        other = self.claim(operation.method, path)
        return f"its path is the same as that of {other}" if other else ""

    def claim(self, method: str, path: str) -> str:
        """Takes a path for a method; gives who has it already, or ''."""
        key = (method, _PARAMETER.sub("{}", path))
        if key in self.claimed:
            return self.claimed[key]
        self.claimed[key] = f"{method} {path}"
        return ""

    def judge(self, operation: ListedOperation, path: str) -> None:
        """Makes a tool of an operation, or says why there can be none."""
        origin = f"{operation.method} {operation.path}"
        try:
            found = import_operation(self.document, origin)
            compile_check(normalise(found.schema)[0])
        except OpenApiError as error:
            self.cannot_judge(operation, path, error.message)
        except SchemaError as error:
            where = f"{format_pointer(error.path)}: " if error.path else ""
            self.cannot_judge(operation, path, f"its schema does not compile: {where}{error.message}")
        else:
            request = _request(found.request, path, operation.path)
            described = found.description or operation.summary
            self.tools.append(
                FoundTool(
                    self.named(operation), described, found.schema, origin, path, operation.method, found.notes, request
                )
            )

    def cannot_judge(self, operation: ListedOperation, path: str, why: str) -> None:
        if self.choice.relay:
            self.relayed.append(RelayedPath(operation.method, path, f"unjudged, as asked: {why}"))
        else:
            self.leave(operation, why, "" if self.choice.as_mcp else _RELAY_HINT, path)

    def leave(self, operation: ListedOperation, why: str, hint: str = "", path: str = "") -> None:
        name = f"{operation.method} {operation.path}"
        self.left_out.append(LeftOut(name, why, hint, operation.method if path else "", path))

    def named(self, operation: ListedOperation) -> str:
        """The operationId, which agents call the tool by, else a name made of method and path; each only once."""
        made = re.sub(r"[^A-Za-z0-9]+", "_", f"{operation.method.lower()}_{operation.path}").strip("_")[:120]
        usable = _TOOL_NAME.fullmatch(operation.name) and operation.name.isprintable()
        base = operation.name if usable else made
        name = next(name for name in _numbered(base) if name not in self.names)
        self.names.add(name)
        return name


def _numbered(base: str) -> Iterator[str]:
    yield base
    for number in range(2, 1_000_000):
        yield f"{base[:120]}_{number}"


def _renamed(path: str) -> str:
    """Path parameters by names that a route knows: `{pet-id}` is `{pet_id}`, and `{tool}` would name the tool."""
    taken: set[str] = set()

    def name(found: re.Match[str]) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", found[1])
        plain = f"_{plain}" if plain[0].isdigit() else f"{plain}_" if plain == "tool" else plain
        chosen = next(each for each in _numbered(plain) if each not in taken)
        taken.add(chosen)
        return f"{{{chosen}}}"

    return _PARAMETER.sub(name, path)


def _request(template: RequestTemplate, path: str, described: str) -> RequestTemplate:
    """The request with the path of its route, its parameters under the names that they have there."""
    names = dict(zip(_PARAMETER.findall(described), _PARAMETER.findall(path)[-described.count("{") :], strict=False))
    parameters = tuple(
        replace(each, name=names.get(each.name, each.name)) if each.place == "path" else each
        for each in template.parameters
    )
    return replace(template, path=path, parameters=parameters)


def _unroutable(path: str) -> str:
    """Why no route can have a path, or ''."""
    segments: Iterable[str] = path.split("/")[1:]
    if not path.startswith("/") or any(not _SEGMENT.fullmatch(segment) for segment in segments):
        return "a route's path has parameters in whole segments, and no ?, #, % or blanks"
    *inner, last = path.split("/")[1:]
    if "" in inner or {".", ".."} & {*inner, last}:
        return "its path has an empty segment, '.' or '..'"
    return ""


__all__ = ["MAX_FILE_BYTES", "is_url", "read_openapi"]

_LIMITS: Final = TextLimits(depth=MAX_DEPTH, nodes=MAX_NODES)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_url(source: str) -> bool:
    """Whether a source is a URL and not the path of a file."""
    return _URL.match(source) is not None


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
        text = _file((folder or Path()) / source)
    return harvest_operations(_parsed(text, source), source, choice, advance)


def _file(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ImportProblem(f"cannot read {path}: {error.strerror}", "a URL begins with http:// or https://") from None
    except ValueError as error:
        raise ImportProblem(f"cannot read {path}: {error}") from None


def _parsed(text: bytes, source: str) -> JsonValue:
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
