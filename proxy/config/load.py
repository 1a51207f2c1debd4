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
from proxy.config.files.secrets import Substitution, Unresolved, restore_written
from proxy.config.files.source import ConfigSource, Files, describe_failure
from proxy.config.files.structure import check_structure, describe_section
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import Config, Policy, RouteEntry, ToolConfig, ToolSchema
from proxy.config.policies import check_auth, merge_layers, name_scope
from proxy.config.routes import Routes
from proxy.config.schemas import SchemaLoader
from proxy.config.sections.network import read_listen, read_trusted
from proxy.config.sections.top_level import (
    check_addresses,
    read_admin,
    read_headers,
    read_single_keys,
    read_state,
    read_upstreams,
    widen_pools,
)
from proxy.config.tools import ToolReader, check_policy
from proxy.core.contract.policy import Block, ByAddress, Mode
from proxy.core.contract.spellings import JudgedPaths
from proxy.core.json.jsontext import format_pointer
from proxy.core.model.value_class import value_class
from proxy.core.rules.facts import read_facts
from proxy.plugin import AddsKeys
from proxy.plugins import PluginError, find_plugins, list_askers, load_named

# A variable as a shell writes it, which this config does not replace.
_SHELL_REFERENCE: Final = re.compile(r"(?<!\$)\$[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER: Final = re.compile(r"\{(\w+)(?:\.\.\.)?\}")
# A segment of a path as other routers write templates: `:id`, `*`, `*rest`, `<id>`, `<int:id>`.
_FOREIGN_TEMPLATE: Final = re.compile(r"(?::|\*\*?|<(?:\w+:)?)(?P<name>[^:>]*)>?")


@value_class
class Loaded:
    """A valid config, every file it was made of (the config file first), and a hash over their contents.

    `seen` has the hash of each file ('' if it could not be read), to find out later whether it has changed.
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

    Takes the path (YAML, or JSON if it ends in .json) and the environment in which `${NAME}` is looked up. Raises
    ConfigError with every mistake, each with its line and column. With `config_only` secrets, variables and files
    outside the config's folder may be missing; such a config can be checked, but must not be served.
    """
    path, files = Path(path), Files()
    try:
        context = _read_file(path, environ, files, config_only)
        config = _read_config(context, files)
        if context.mistakes:
            raise ConfigError(context.mistakes, hooks=config.hooks)
    except ConfigError as error:
        error.seen = files.seen
        raise
    digests = files.digest(), files.digest(path.parent)
    return Loaded(config, files.read, *digests, files.seen, frozenset(files.secrets))


def _read_file(path: Path, environ: Mapping[str, str], files: Files, config_only: bool) -> Context:
    """The file with its references resolved, compared with the published schema."""
    try:
        source = files.source(path, str(path))
    except (OSError, ValueError) as error:
        message = f"cannot read the config: {describe_failure(error)}"
        raise ConfigError([Mistake(str(path), 1, 1, "", message)]) from None
    unloaded = [*_load_plugins(source)]
    problems: list[Unresolved] = []
    substitution = Substitution(environ, files.secret, path.parent, is_schema_place, may_hold_secret)
    value = substitution.apply(source.value, problems)
    structure, mistakes = check_structure(source, value, frozenset(problem.path for problem in problems))
    for problem in problems:
        if not (problem.missing and config_only):
            where = describe_section(source.value, problem.path)
            mistakes.append(source.mistake(problem.path, where, problem.message, problem.hint))
    return Context(source, structure, path.parent, [*unloaded, *mistakes], config_only=config_only)


def _load_plugins(source: ConfigSource) -> Iterator[Mistake]:
    """Loads the plugins that the config names, whose keys the rest of it may use; yields those that do not load."""
    names = source.value.get("plugins") if isinstance(source.value, dict) else None
    for index, name in enumerate(names if isinstance(names, list) else ()):
        try:
            load_named([str(name)])
        except PluginError as error:
            yield source.mistake(("plugins", index), "plugins", str(error), "install the package, or drop the name")


def _read_config(context: Context, files: Files) -> Config:
    listen = read_listen(context, files)
    admin = read_admin(context, listen)
    check_addresses(context, listen.address, admin)
    upstreams = read_upstreams(context, files)
    defaults = context.mapping("defaults")
    read_headers(context, ("defaults", "headers"), defaults.get("headers", {}))
    check_auth(context, ("defaults", "auth"), defaults.get("auth"))
    catalogue = ToolReader(context, SchemaLoader(context, files), merge_layers(name_scope(defaults, "defaults")))
    check_policy(context, ("defaults",), defaults, catalogue.known_to_caps)
    catalogue.check()
    routes = Routes(context, catalogue)
    entries = routes.read()
    relayed = {entry.upstream for entry in entries if entry.relayed_by is not None}
    upstreams = widen_pools(upstreams, relayed, context.mapping("upstreams"))
    sections = read_sections(context, files, upstreams)
    check_added_keys(context, entries)
    metadata_routes: tuple[RouteEntry, ...] = ()
    for kind in routes.kinds.values() if any(entry.listed is not None for entry in entries) else ():
        upstreams = kind.complete_upstreams(upstreams, entries, context.mapping("upstreams"))
        metadata_routes += kind.make_metadata_routes(entries, upstreams)
    context.notes.extend(_list_notes(context, catalogue, entries))
    config = Config(
        routes=entries,
        left_out=routes.left_out,
        metadata_routes=metadata_routes,
        upstreams=upstreams,
        listen=listen,
        admin=admin,
        trusted=read_trusted(context),
        state=read_state(context, files),
        notes=tuple(dict.fromkeys(context.notes)),
        written=redact_config(context.structure.value),
        sections=sections,
        **read_single_keys(context),
    )
    _check_workers(context, config)
    for entry in config.routes:  # the second of two plugins would replace the first, and skip its rules
        if len(askers := list_askers(config, entry)) > 1:
            message = f"route {entry.name!r}: the plugins {' and '.join(askers)} both admit its requests"
            context.mistake(("routes",), message, "let one of them ask who calls, and take the keys of the other away")
    return config


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
    """(message, hint) where several workers would count in memory, each for itself; None if they need not share
    counts.

    The calls of a conversation reach any worker, so all must know its attempts, caps and expanded containers.
    """
    if config.workers == 1 or config.state.backend != "memory":
        return None
    shared = {key for plugin in find_plugins(AddsKeys) for key in plugin.shared_limits}
    for route in config.routes:
        counts = route.listed is not None and route.policy.mode is Mode.ENFORCE
        for tool in route.tools.values():  # attempts are counted, or calls against a cap or a rate
            judged = tool.policy.mode is Mode.ENFORCE and (tool.schema is not None or tool.container is not None)
            is_counted = not shared.isdisjoint(tool.policy.limits or ())
            counts |= judged or is_counted or tool.policy.caps.of(tool.name).limit is not None
        if counts:
            message = f"{config.workers} workers do not share `state: {{backend: memory}}`"
            return message, f"route {route.name!r} counts attempts or calls: take one worker, or a shared backend"
    return None


def _list_notes(context: Context, catalogue: ToolReader, routes: tuple[RouteEntry, ...]) -> Iterator[str]:
    unused = (name for name in context.names("upstreams") if name not in context.used_upstreams)
    yield from (f"upstream {name!r} is used by no route" for name in unused)
    uncalled = (name for name in catalogue.names if name not in catalogue.used)
    yield from (f"tool {name!r} can be called by no route" for name in uncalled)
    for name, entry in context.entries("upstreams"):
        for found in _SHELL_REFERENCE.findall(str(restore_written(entry.get("url", "")))):
            yield f"upstream {name!r}: `{found}` is not replaced in the url  (did you mean `${{{found[1:]}}}`?)"
    yield from _list_lookalikes(routes)
    for route in routes:
        for step in route.path.split("/"):
            if (named := _FOREIGN_TEMPLATE.fullmatch(step)) is not None:
                name = re.sub(r"\W", "_", named["name"] or "")
                template = "{" + (name or "rest") + "...}" if step.startswith("*") else "{" + (name or "id") + "}"
                yield f"route {route.name!r}: {step!r} is literal text  (did you mean {template!r}?)"
        if route.listed is not None:
            yield from route.listed.list_notes()
        for tool in route.tools.values():
            if tool.schema is not None:
                yield from _list_path_arguments(route, tool)
                if (
                    route.kind == "call"
                    and (types := read_facts(tool.schema.check.root).site.types)
                    and "object" not in types
                ):
                    yield (
                        f"tool {tool.name!r}: its schema takes {' or '.join(sorted(types))}, and models send an object "
                        "of arguments  (write `type: object` with `properties`)"
                    )
                yield from (f"tool {tool.name!r}: {note}" for note in tool.schema.notes)
                yield from _list_too_large(tool.name, tool.schema, tool.policy.max_body)
            elif tool.container is None:
                yield f"route {route.name!r}: calls of tool {tool.name!r} are not judged (validation: off)"
            if tool.policy.mode == "report":
                yield f"route {route.name!r}: report only, invalid calls of tool {tool.name!r} go through"
            yield from _describe_address_effects(route.name, tool.name, tool.policy)


def _list_lookalikes(routes: tuple[RouteEntry, ...]) -> Iterator[str]:
    """The paths of calls of which other spellings fall into a relaying route."""
    judged = JudgedPaths(routes)
    for route in routes:
        if route.kind != "passthrough" or "{" not in route.path:
            continue
        path, methods = route.path.split("/"), frozenset(route.methods)
        if reach := judged.list_reached(path, route.upstream, route.upstream_path, methods):
            consequence = "such requests are refused" if route.lookalikes == "refuse" else "they are not validated"
            yield (
                f"route {route.name!r}: other spellings of {', '.join(map(repr, reach))} (case, ';', '%20', '.json', "
                f"a dot or a slash at the end) fall into it, and some servers read them as that path: {consequence}"
            )


def _list_path_arguments(route: RouteEntry, tool: ToolConfig) -> Iterator[str]:
    """The required arguments that look as if a parameter of the path gave them."""
    required = tool.schema.check.root.required if tool.schema is not None and tool.request is None else ()
    for name in sorted(set(_PARAMETER.findall(route.path)) & set(required) - {"tool"}):
        yield (
            f"route {route.name!r}: {{{name}}} of the path is no argument without `request`, so the body must hold "
            f"{name!r}  (write `request` at the tool under `tools`)"
        )


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
    """Yields the settings that have no effect for clients without a conversation id, known only by their address."""
    unnamed = f"route {route!r}: without a conversation id"
    if policy.attempts.block is Block.HARD and policy.attempts.address is not ByAddress.COUNT:
        yield f"{unnamed}, `block: hard` of tool {tool!r} refuses nothing (attempts.address: count changes that)"
    if policy.caps.of(tool).limit is not None and not policy.caps.by_address:
        yield f"{unnamed}, the cap of tool {tool!r} does nothing (caps.by_address: on changes that)"
