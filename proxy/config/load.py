"""`load(path, environ)` reads the whole config, or raises a ConfigError with ALL of its mistakes.

It reads the file, resolves `${...}`, compares the result with the published schema, and then reads the valid parts
section by section, so that one mistake hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from proxy.config.context import Context, check_added_keys, read_sections
from proxy.config.files.masking import is_schema_place, may_hold_secret, redact_config
from proxy.config.files.secrets import Substitution, Unresolved
from proxy.config.files.source import ConfigSource, Files
from proxy.config.files.structure import check_structure, describe_section
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import Config, Policy, RouteEntry, ToolConfig, ToolSchema, UpstreamConfig
from proxy.config.policies import merge_layers, name_scope
from proxy.config.routes import Routes
from proxy.config.schemas import SchemaLoader
from proxy.config.sections.access import check_auth
from proxy.config.sections.network import read_listen, read_trusted
from proxy.config.sections.top_level import (
    check_addresses,
    read_admin,
    read_documents,
    read_drain,
    read_headers,
    read_hooks,
    read_memory,
    read_reload,
    read_second_judge,
    read_state,
    read_telemetry,
    read_unknown_keywords,
    read_upstreams,
    read_workers,
)
from proxy.config.tools import ToolReader, check_policy
from proxy.core.contract.policy import Block, ByAddress, Mode
from proxy.core.contract.spellings import JudgedPaths
from proxy.core.json.jsontext import format_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue

# A segment of a path as other routers write templates: `:id`, `*`, `*rest`, `<id>`, `<int:id>`.
_FOREIGN_TEMPLATE: Final = re.compile(r"(?::|\*\*?|<(?:\w+:)?)(?P<name>[^:>]*)>?")


@value_class
class Loaded:
    """A valid config, every file it was made of (the config file first), and a hash over their contents.

    `seen` has the hash of each file ('' where it could not be read), to find out later whether it has changed.
    `files_digest` is a hash over the files in the config's folder, without `secret_files`: those of `${file:...}` and
    private keys.
    """

    config: Config
    files: tuple[Path, ...]
    digest: str = field(repr=False)
    files_digest: str = field(default="", repr=False)
    seen: Mapping[Path, str] = field(default_factory=dict, repr=False)
    secret_files: frozenset[Path] = frozenset()


def load(path: Path | str, environ: Mapping[str, str], *, config_only: bool = False) -> Loaded:
    """Reads a config file.

    Takes the path (YAML, or JSON where it ends in .json) and the environment in which `${NAME}` is looked up. Raises
    ConfigError with every mistake, each with its line and column. With `config_only` secrets, variables and files
    outside the config's folder may be missing; such a config can be checked, but must not be served.
    """
    files = Files()
    try:
        return _load(Path(path), environ, files, config_only)
    except ConfigError as error:
        error.seen = files.seen
        raise


def _load(path: Path, environ: Mapping[str, str], files: Files, config_only: bool) -> Loaded:
    source = _read(path, files)
    value, problems = _resolve_references(source, environ, files, path.parent)
    structure, mistakes = check_structure(source, value, frozenset(problem.path for problem in problems))
    context = Context(source, structure, path.parent, config_only=config_only)
    for problem in problems:
        if not (problem.missing and config_only):
            where = describe_section(source.value, problem.path)
            context.mistakes.append(source.mistake(problem.path, where, problem.message, problem.hint))
    context.mistakes += mistakes
    config = _read_config(context, files)
    if context.mistakes:
        raise ConfigError(context.mistakes)
    return Loaded(config, files.read, files.digest, files.digest_within(path.parent), files.seen, files.secrets)


def _read(path: Path, files: Files) -> ConfigSource:
    try:
        return files.source(path, str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Mistake(str(path), 1, 1, "", f"cannot read the config: {reason}")]) from None


def _resolve_references(
    source: ConfigSource, environ: Mapping[str, str], files: Files, folder: Path
) -> tuple[JsonValue, list[Unresolved]]:
    """The value with all references resolved, and those that could not be."""
    problems: list[Unresolved] = []
    substitution = Substitution(environ, files.secret, folder, is_schema_place, may_hold_secret)
    return substitution.apply(source.value, problems), problems


def _read_config(context: Context, files: Files) -> Config:
    listen, admin = read_listen(context, files), read_admin(context)
    check_addresses(context, listen.address, admin)
    upstreams = read_upstreams(context, files)
    schemas = _make_loader(context, files)
    defaults = context.mapping("defaults")
    read_headers(context, ("defaults", "headers"), defaults.get("headers", {}))
    check_auth(context, ("defaults", "auth"), defaults.get("auth"))
    catalogue = ToolReader(context, schemas, merge_layers(name_scope(defaults, "defaults")))
    check_policy(context, ("defaults",), defaults, catalogue.known_to_caps)
    catalogue.check()
    routes = Routes(context, catalogue)
    entries = routes.read()
    sections = read_sections(context, files, upstreams)
    check_added_keys(context, entries)
    upstreams, metadata_routes = _complete_upstreams(context, upstreams, entries, routes)
    _note_findings(context, routes, catalogue, entries)
    config = Config(
        routes=entries,
        left_out=routes.left_out,
        metadata_routes=metadata_routes,
        upstreams=upstreams,
        listen=listen,
        admin=admin,
        trusted=read_trusted(context),
        state=read_state(context, files),
        telemetry=read_telemetry(context),
        hooks=read_hooks(context),
        reload=read_reload(context),
        second_judge=read_second_judge(context),
        workers=read_workers(context),
        notes=tuple(dict.fromkeys(context.notes)),
        written=redact_config(context.structure),
        sections=sections,
        **{**read_drain(context), "memory": read_memory(context)},
    )
    _check_workers(context, config)
    return config


def _make_loader(context: Context, files: Files) -> SchemaLoader:
    """What reads the schemas of the config, and of the documents that it registers."""
    registered, report = read_documents(context, files), context.mistakes.append
    return SchemaLoader(files, context.folder, registered, report, read_unknown_keywords(context))


def _complete_upstreams(
    context: Context, upstreams: dict[str, UpstreamConfig], entries: tuple[RouteEntry, ...], routes: Routes
) -> tuple[dict[str, UpstreamConfig], tuple[RouteEntry, ...]]:
    """The upstreams as their routes need them, with those that stand for others; and the routes that the config does
    not name."""
    metadata_routes: tuple[RouteEntry, ...] = ()
    if any(entry.listed is not None for entry in entries):
        for kind in routes.kinds.values():
            upstreams = kind.complete_upstreams(upstreams, entries, context.mapping("upstreams"))
            metadata_routes += kind.make_metadata_routes(entries, upstreams)
    return upstreams, metadata_routes


def _check_workers(context: Context, config: Config) -> None:
    if (why := find_unshared(config)) is not None:
        context.mistake(("workers",), *why, key=True)
    local = [one.name for one in config.upstreams.values() if one.added is not None and one.added.holds_sessions]
    if config.workers > 1 and local:
        message = f"{config.workers} workers do not share the sessions of upstream {local[0]!r}"
        context.mistake(("workers",), message, "take one worker", key=True)
    if config.workers > 1 and config.listen.unix:
        hint = "listen at host:port, or take one worker"
        context.mistake(("workers",), "several workers cannot share a unix socket", hint, key=True)


def find_unshared(config: Config) -> tuple[str, str] | None:
    """(message, hint) where several workers would count in memory, each for itself; None where they need not share
    counts.

    The calls of a conversation reach any worker, so all must know its attempts, caps and expanded containers.
    """
    if config.workers == 1 or config.state.backend != "memory":
        return None
    for route in config.routes:
        learns = route.listed is not None and route.policy.mode is Mode.ENFORCE
        if learns or any(_is_counted(tool) for tool in route.tools.values()):
            message = f"{config.workers} workers do not share `state: {{backend: memory}}`"
            return message, f"route {route.name!r} counts attempts or calls: take one worker, or a shared backend"
    return None


def _is_counted(tool: ToolConfig) -> bool:
    """Whether calls of a tool are counted: attempts, or calls against a cap or a rate."""
    judged = tool.policy.mode is Mode.ENFORCE and (tool.schema is not None or tool.container is not None)
    has_rates = tool.policy.limits is not None and bool(tool.policy.limits.rates)
    return judged or has_rates or tool.policy.caps.of(tool.name).limit is not None


def _note_findings(context: Context, routes: Routes, catalogue: ToolReader, entries: tuple[RouteEntry, ...]) -> None:
    """Adds notes about the config as a whole."""
    routes.used_upstreams.update(context.used_upstreams)
    _note_unused(context, routes, catalogue)
    _note_routes(context, entries)


def _note_unused(context: Context, routes: Routes, catalogue: ToolReader) -> None:
    for name in context.names("upstreams"):
        if name not in routes.used_upstreams:
            context.notes.append(f"upstream {name!r} is used by no route")
    for name in catalogue.names:
        if name not in catalogue.used:
            context.notes.append(f"tool {name!r} can be called by no route")


def _note_routes(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    _note_lookalikes(context, routes)
    for route in routes:
        for step in route.path.split("/"):
            if (named := _FOREIGN_TEMPLATE.fullmatch(step)) is not None:
                name = re.sub(r"\W", "_", named["name"] or "")
                meant = "{" + (name or "rest") + "...}" if step.startswith("*") else "{" + (name or "id") + "}"
                context.notes.append(f"route {route.name!r}: {step!r} stands for itself  (did you mean {meant!r}?)")
        if route.listed is not None:
            context.notes.extend(route.listed.list_notes())
        for tool in route.tools.values():
            if tool.schema is not None:
                context.notes.extend(f"tool {tool.name!r}: {note}" for note in tool.schema.notes)
                context.notes.extend(_list_too_large(tool.name, tool.schema, tool.policy.max_body))
            elif tool.container is None:
                context.notes.append(
                    f"route {route.name!r}: calls of tool {tool.name!r} are not judged (validation: off)"
                )
            if tool.policy.mode == "report":
                context.notes.append(
                    f"route {route.name!r}: report only, invalid calls of tool {tool.name!r} go through"
                )
            context.notes.extend(_describe_address_effects(route.name, tool.name, tool.policy))


def _list_too_large(tool: str, schema: ToolSchema, body: int) -> Iterator[str]:
    """The limits of a schema that no body can reach: a character takes a byte at least, an item of a list two."""
    for node in schema.check.schemas.nodes():
        for keyword, least in (("maxLength", 1), ("maxItems", 2)):
            limit = node.get(keyword)
            if isinstance(limit, int) and limit * least >= body:
                yield (
                    f"tool {tool!r}: `{format_pointer((*node.path, keyword))}`: {limit} does not fit into a body of "
                    f"`limits.body` ({body} bytes), which is refused first"
                )


def _describe_address_effects(route: str, tool: str, policy: Policy) -> Iterator[str]:
    """The settings that have no effect for clients without a conversation id, which are known by their address
    alone."""
    unnamed = f"route {route!r}: for clients that send no conversation id ({_describe_ladder(policy)})"
    if policy.attempts.block is Block.HARD and policy.attempts.address is not ByAddress.COUNT:
        yield f"{unnamed}, `block: hard` of tool {tool!r} refuses nothing (attempts.address: count changes that)"
    if policy.caps.of(tool).limit is not None and not policy.caps.by_address:
        yield f"{unnamed}, the cap of tool {tool!r} does nothing (caps.by_address: on changes that)"


def _describe_ladder(policy: Policy) -> str:
    """The places where an id is looked for, in words."""
    named = [source.name or source.kind for source in policy.ladder if source.kind != "address"]
    return "looked for in " + ", ".join(named) if named else "none is looked for"


def _note_lookalikes(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Notes passthrough templates that other spellings of a judged path fall into."""
    judged = JudgedPaths(routes)
    for route in routes:
        if route.kind != "passthrough" or "{" not in route.path:
            continue
        reach = judged.list_reached(
            route.path.split("/"), route.upstream, route.upstream_path, frozenset(route.methods)
        )
        if reach:
            told = "such requests are refused" if route.lookalikes == "refuse" else "they go on unjudged"
            context.notes.append(
                f"route {route.name!r}: other spellings of {', '.join(map(repr, reach))} (case, ';', '%20', a dot or "
                f"a slash at the end) fall into it, and some servers read them as that path: {told}"
            )
