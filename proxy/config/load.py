"""`load(path, environ) -> Loaded`: the whole config, or a ConfigError with ALL of its mistakes.

The story: read the file, put `${...}` in, hold it against the published schema, then read section by section what is
right, so that one mistake hides no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config.access import check_auth, may_be_token
from proxy.config.context import Context
from proxy.config.correction import check_correct, read_correction
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import Config, Mcp, RouteEntry, Tool
from proxy.config.network import read_listen, read_trusted
from proxy.config.policies import layered
from proxy.config.routes import Routes
from proxy.config.schemas import Schemas
from proxy.config.secrets import Substitution, Unresolved, as_written
from proxy.config.sections import (
    check_addresses,
    read_admin,
    read_documents,
    read_drain,
    read_guidance,
    read_headers,
    read_hooks,
    read_reload,
    read_telemetry,
    read_upstreams,
    read_workers,
)
from proxy.config.source import Files, Source
from proxy.config.stateurl import masked_url, read_state
from proxy.config.structure import Structure, check_structure, section
from proxy.config.tools import Catalogue, check_policy
from proxy.core.model import JsonValue, Pointer
from proxy.core.policy import Mode


@dataclass(frozen=True, slots=True)
class Loaded:
    """A config that can be served, every file it was made of, and a hash over their contents.

    `seen` has the hash of each file, for whoever wants to know whether it has changed since; '' where it could not be
    read. The config file itself comes first.
    """

    config: Config
    files: tuple[Path, ...]
    digest: str = field(repr=False)
    seen: Mapping[Path, str] = field(default_factory=dict, repr=False)


def load(path: Path | str, environ: Mapping[str, str]) -> Loaded:
    """Reads a config file.

    Takes the path (YAML, or JSON where it ends in .json) and the environment `${NAME}` is looked up in. Raises
    ConfigError, which holds every mistake with its line and column.
    """
    files = Files()
    try:
        return _loaded(Path(path), environ, files)
    except ConfigError as error:
        error.seen = files.seen
        raise


def _loaded(path: Path, environ: Mapping[str, str], files: Files) -> Loaded:
    source = _read(path, files)
    value, unresolved = _put_in(source, environ, files, path.parent)
    structure, mistakes = check_structure(source, value, frozenset(unresolved))
    context = Context(source, structure, path.parent, [*unresolved.values(), *mistakes])
    config = _config(context, files)
    if context.mistakes:
        raise ConfigError(context.mistakes)
    return Loaded(config, files.read, files.digest, files.seen)


def _read(path: Path, files: Files) -> Source:
    try:
        return files.source(path, str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Mistake(str(path), 1, 1, "", f"cannot read the config: {reason}")]) from None


def _put_in(
    source: Source, environ: Mapping[str, str], files: Files, folder: Path
) -> tuple[JsonValue, dict[Pointer, Mistake]]:
    """The value with every reference put in, and the places where one could not be."""
    problems: list[Unresolved] = []
    substitution = Substitution(environ, files.text, folder, _is_schema, _may_hold_secret)
    value = substitution.apply(source.value, problems)
    mistakes = {
        problem.path: source.mistake(problem.path, section(source.value, problem.path), problem.message, problem.hint)
        for problem in problems
    }
    return value, mistakes


def _is_schema(path: Pointer) -> bool:
    """A schema written in place is data: `$` in a pattern means what it means there."""
    if path[2:4] == ("mcp", "tools"):
        return len(path) == 6 and path[5] in ("schema", "overlay")
    if len(path) == 3:
        return path[0] in ("tools", "routes") and path[2] in ("schema", "response_schema")
    return path[-1:] == ("schema",) and path[2:4] == ("container", "functions")


def _may_hold_secret(path: Pointer) -> bool:
    """Header values, the URLs of upstreams and of the store, the operator's token and what hooks are made with are
    never shown."""
    in_headers = "headers" in path[:-2] and path[-2] == "set"
    return (
        in_headers
        or path in (("admin", "token"), ("state", "url"), ("state", "sentinel", "password"))
        or may_be_token(path)
        or (path[:1] == ("hooks",) and path[2:3] == ("settings",))
        or (path[:1] == ("upstreams",) and path[2:] == ("url",))
    )


def _config(context: Context, files: Files) -> Config:
    listen, admin = read_listen(context, files), read_admin(context)
    check_addresses(context, listen.address, admin)
    upstreams = read_upstreams(context, files)
    schemas = Schemas(files, context.folder, read_documents(context, files), context.mistakes.append)
    defaults = context.mapping("defaults")
    read_headers(context, ("defaults", "headers"), defaults.get("headers", {}))
    check_auth(context, ("defaults", "auth"), defaults.get("auth"))
    catalogue = Catalogue(context, schemas, layered(defaults))
    check_policy(context, ("defaults",), defaults, catalogue.known_to_caps)
    catalogue.check()
    routes = Routes(context, catalogue)
    entries = routes.read()
    correction = read_correction(context, files, upstreams)
    check_correct(context, entries)
    routes.used_upstreams.update({correction.upstream} if correction is not None else ())
    _note_unused(context, routes, catalogue)
    _note_routes(context, entries)
    config = Config(
        routes=entries,
        upstreams=upstreams,
        listen=listen,
        admin=admin,
        trusted=read_trusted(context),
        state=read_state(context, files),
        telemetry=read_telemetry(context),
        hooks=read_hooks(context),
        guidance=read_guidance(context),
        correction=correction,
        reload=read_reload(context),
        workers=read_workers(context),
        notes=tuple(dict.fromkeys(context.notes)),
        written=redacted(context.structure),
        **read_drain(context),
    )
    _check_workers(context, config)
    return config


def _check_workers(context: Context, config: Config) -> None:
    if (why := unshared(config)) is not None:
        context.mistake(("workers",), *why, key=True)
    if config.workers > 1 and config.listen.unix:
        hint = "listen at host:port, or take one worker"
        context.mistake(("workers",), "several workers cannot share a unix socket", hint, key=True)


def unshared(config: Config) -> tuple[str, str] | None:
    """What several workers would each remember for themselves, so that nothing would be counted right: (message, hint).

    A conversation's calls come to any worker; its attempts, caps and expanded containers have to be known to all.
    """
    if config.workers == 1 or config.state.backend != "memory":
        return None
    for route in config.routes:
        learns = route.mcp is not None and route.policy.mode is Mode.ENFORCE
        if learns or any(_counts(tool) for tool in route.tools.values()):
            message = f"{config.workers} workers do not share `state: {{backend: memory}}`"
            return message, f"route {route.name!r} counts attempts or calls: take one worker, or a shared backend"
    return None


def _counts(tool: Tool) -> bool:
    """Whether something of a tool's calls is remembered."""
    judged = tool.policy.mode is Mode.ENFORCE and (tool.schema is not None or tool.container is not None)
    return judged or tool.policy.caps.of(tool.name).limit is not None


def _note_unused(context: Context, routes: Routes, catalogue: Catalogue) -> None:
    for name in context.names("upstreams"):
        if name not in routes.used_upstreams:
            context.notes.append(f"upstream {name!r} is used by no route")
    for name in catalogue.names:
        if name not in catalogue.used:
            context.notes.append(f"tool {name!r} can be called by no route")


def _note_routes(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    for route in routes:
        if route.mcp is not None:
            _note_listed(context, route.name, route.mcp)
        for tool in route.tools.values():
            if tool.schema is not None:
                context.notes.extend(f"tool {tool.name!r}: {note}" for note in tool.schema.notes)
            elif tool.container is None:
                context.notes.append(
                    f"route {route.name!r}: calls of tool {tool.name!r} are not judged (validation: off)"
                )
            if tool.policy.mode == "report":
                context.notes.append(
                    f"route {route.name!r}: report only, invalid calls of tool {tool.name!r} go through"
                )


def _note_listed(context: Context, route: str, mcp: Mcp) -> None:
    if mcp.unknown_schema == "forward":
        context.notes.append(f"route {route!r}: calls go on unjudged while the server's list of tools cannot be had")
    if mcp.on_bad_schema == "forward":
        context.notes.append(f"route {route!r}: calls of tools whose listed schema cannot be used are not judged")
    if mcp.template.mode == "report":
        context.notes.append(f"route {route!r}: report only, invalid calls of its tools go through")


def redacted(structure: Structure) -> JsonValue:
    """The config as written, for dumps: `${...}` unresolved, header values that stand in the file masked."""
    return _masked(as_written(structure.value), ())


def _masked(value: JsonValue, path: Pointer) -> JsonValue:
    if isinstance(value, dict):
        return {key: _masked(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, (*path, index)) for index, item in enumerate(value)]
    if path == ("state", "url") and isinstance(value, str):
        return masked_url(value)
    if isinstance(value, str) and "${" not in value and _may_hold_secret(path) and path[-1:] != ("url",):
        return "***"
    return value
