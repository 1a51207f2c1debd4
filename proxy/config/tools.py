"""Reads tools as routes serve them, with merged policies, schemas and containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from proxy.config.context import Context, list_mappings
from proxy.config.files.secrets import reveal
from proxy.config.keys.repair_keys import read_formats
from proxy.config.keys.route_keys import CONTAINER
from proxy.config.mistakes import suggest_word
from proxy.config.model import Policy, ToolConfig, ToolSchema
from proxy.config.policies import Written, list_tool_keys, merge_layers, name_scope, read_policy
from proxy.config.schemas import SchemaLoader, SchemaPlace
from proxy.config.sections.units import read_switch
from proxy.core.contract.request_rules import RequestForm
from proxy.core.contract.toolname import list_alias_mistakes, list_root_properties
from proxy.core.model.values import Container, ContainerFunction, JsonValue, Pointer
from proxy.core.schema.dialects import bundle_schema
from proxy.plugins import find_requests

# The keys that define a tool; a route's own wins over the catalogue's.
_DEFINING: Final = ("schema", "container", "description", "validation")

NO_SCHEMA: Final = "add `schema:`, or say `validation: off` to let its calls through unjudged"


class ToolReader:
    """Reads the tools of the config, and combines a tool with the keys of a route. `names` are all tools of the config,
    `known_to_caps` those of routes too; `used` collects the names of served tools."""

    def __init__(self, context: Context, schemas: SchemaLoader, defaults: Written) -> None:
        self.context, self.schemas, self.defaults = context, schemas, defaults
        self.used: set[str] = set()
        self._written: dict[str, dict[str, JsonValue]] = {}
        self._policies: dict[int, Policy] = {}
        self.names = context.names("tools")
        fixed = [entry.get("tool") for entry in list_mappings(context.structure.value.get("routes"))]
        self.known_to_caps = frozenset([reveal(name) for name in fixed if isinstance(name, str)]) | {*self.names}

    def check(self) -> None:
        """Reports mistakes of tools, whether or not a route serves them."""
        for name, entry in self.context.entries("tools"):
            path = ("tools", name)
            self.check_contradictions(entry, path)
            if not is_tool_defined(entry) and not self.context.structure.has_mistake(path, *_DEFINING):
                self.context.mistake(path, f"the tool {name!r} has no schema", NO_SCHEMA, key=True)
            if "schema" in entry:
                schema = self.schema(entry["schema"], path, merge_layers(self.defaults, entry))
                self.check_aliases(path, entry, schema)
            self.answer(name, {}, path, merge_layers(self.defaults, entry))
            check_policy(self.context, path, entry, self.known_to_caps)

    def check_contradictions(self, entry: Written, path: Pointer) -> None:
        """Reports keys of one entry that contradict each other."""
        off = "validation" in entry and not read_switch(entry["validation"])
        if off and "schema" in entry:
            hint = "drop one of them; `mode: report` judges without refusing"
            message = "`validation: off` beside a schema, which it would never use"
            self.context.mistake((*path, "validation"), message, hint, key=True)
        if "container" in entry and "schema" in entry:
            message = "a container takes no parameters, so it has no schema"
            self.context.mistake((*path, "schema"), message, "drop one of them", key=True)

    # --- one tool on one route ----------------------------------------------------------------------------------------
    def tool(self, name: str, route: Written, route_path: Pointer, provided: frozenset[str]) -> ToolConfig | None:
        """A tool as a route serves it; None, with the mistake reported, where it cannot be served."""
        self.used.add(name)
        entry = self.entry(name)
        written = self.merge_policy(name, route, route_path)
        path = route_path if "schema" in route else ("tools", name)
        made = route.get("schema", entry.get("schema"))
        holder = route_path if "container" in route else ("tools", name)
        container = self.container(name, holder, route.get("container", entry.get("container")))
        schema: ToolSchema | None = None
        judges = container is None and read_switch(written.get("validation", True))
        if judges and (made is None or (schema := self.schema(made, path, written, provided)) is None):
            return None
        before = len(self.context.mistakes)
        for holder_at, layer in ((("tools", name), entry), (route_path, route)):
            self.check_aliases(holder_at, layer, schema)
        answer = self.answer(name, route, route_path, written)
        if len(self.context.mistakes) > before:
            return None
        if any(self.context.structure.has_mistake(where) for where in (("defaults",), ("tools", name), route_path)):
            return None
        described = reveal(route.get("description", entry.get("description", "")))
        for key in sorted(list_tool_keys() & entry.keys() & route.keys()):
            if entry[key] != route[key]:
                where = self.context.where(route_path)
                self.context.notes.append(f"{where}: its `{key}` overrides that of tool {name!r}")
        return ToolConfig(
            name, described or (schema.description if schema else ""), schema, container, self.read_policy(written),
            written, answer, self.request(name, made, path, provided),
        )  # fmt: skip

    def check_aliases(self, path: Pointer, entry: Written, schema: ToolSchema | None) -> None:
        """Reports aliases of an entry that the schema leaves no use for."""
        aliases = {alias: str(reveal(name)) for alias, name in entry.get("aliases", {}).items()}
        declared = list_root_properties(schema.check) if schema is not None else None
        for alias, message, hint in list_alias_mistakes(aliases, declared):
            self.context.mistake((*path, "aliases", alias), message, hint, key=True)

    def merge_policy(self, name: str, route: Written, route_path: Pointer) -> dict[str, JsonValue]:
        """Returns the policy of a tool on a route as it is written, or of only the route if no tool has the name. Equal
        policies are one object."""
        named = str(reveal(route.get("name", route.get("path", route_path[-1]))))
        tool = name_scope(self.entry(name), f"tool {name}")
        written = merge_layers(self.defaults, tool, name_scope(route, f"route {named}"))
        return self._written.setdefault(repr(written), written)  # of a secret the reference

    def read_policy(self, written: dict[str, JsonValue]) -> Policy:
        """Returns the policy that `merge_policy` returned as it is written. It has no mistake."""
        if id(written) not in self._policies:
            self._policies[id(written)] = read_policy(written)
        return self._policies[id(written)]

    def request(self, name: str, schema: JsonValue, path: Pointer, provided: frozenset[str]) -> RequestForm | None:
        """Returns how the arguments of a tool become an HTTP request: its key `request`, or what its operation says."""
        written = self.entry(name).get("request")
        if written is None:
            return self.schemas.request(schema, self.place(path, "schema"), provided)
        plugin = find_requests()
        return None if plugin is None else plugin.read_request(self.context, ("tools", name, "request"), written)

    def answer(self, name: str, route: Written, route_path: Pointer, written: Written) -> ToolSchema | None:
        """The compiled schema of a tool's answers; the route's own wins over the tool's."""
        path, entry = (route_path, route) if "response_schema" in route else (("tools", name), self.entry(name))
        if "response_schema" not in entry:
            return None
        formats = read_formats(written.get("formats", True))
        return self.schemas.load(entry["response_schema"], self.place(path, "response_schema"), formats=formats)

    def entry(self, name: str) -> Written:
        """The tool's entry in the config."""
        return self.context.mapping("tools", name)

    def schema(
        self, made: JsonValue, path: Pointer, written: Written, provided: frozenset[str] = frozenset()
    ) -> ToolSchema | None:
        """The compiled schema of an entry."""
        formats = read_formats(written.get("formats", True))
        return self.schemas.load(made, self.place(path, "schema"), formats=formats, provided=provided)

    def place(self, path: Pointer, key: str) -> SchemaPlace:
        """Returns the place of a schema of an entry."""
        return SchemaPlace(self.context.source, (*path, key), self.context.where(path))

    def container(self, name: str, holder: Pointer, value: JsonValue) -> Container | None:
        """The container that an entry (at `holder`) describes, with its functions as the config defines them."""
        if not isinstance(value, dict):
            return None
        functions = tuple(self._read_functions((*holder, "container", "functions"), value.get("functions", ())))
        return Container(**{"name": name, "functions": functions, **CONTAINER.read(value)})

    def _read_functions(self, at: Pointer, values: JsonValue) -> Iterator[ContainerFunction]:
        for index, value in enumerate(values):
            written: Written = {"name": value} if isinstance(value, str) else value
            name = reveal(written.get("name", ""))  # a missing name is reported already
            entry = self.entry(name)
            own = "schema" in written
            schema = self.schema(
                written["schema"] if own else entry["schema"],
                (*at, index) if own else ("tools", name),
                merge_layers(self.defaults, entry),
            ) if own or "schema" in entry else None  # fmt: skip
            described = reveal(written.get("description", entry.get("description", "")))
            known = show_schema(schema) if schema is not None else None
            yield ContainerFunction(name, described or (schema.description if schema else ""), known)


def show_schema(schema: ToolSchema) -> dict[str, JsonValue] | None:
    """A schema as a model sees it: complete, because a model cannot follow a reference to a file."""
    shown = bundle_schema(schema.check.schemas) if schema.check.schemas.has_references else schema.value
    return shown if isinstance(shown, dict) else None


def is_tool_defined(entry: Mapping[str, JsonValue]) -> bool:
    """Returns whether an entry has a schema or a container, or switches validation off."""
    return "schema" in entry or "container" in entry or not read_switch(entry.get("validation", True))


def check_policy(context: Context, path: Pointer, written: Written, tools: frozenset[str]) -> None:
    """Reports policy keys that contradict each other or name unknown things."""
    overrides = written.get("caps", {}).get("overrides", {})
    for name in overrides:
        if name not in tools:
            hint = suggest_word(name, tools) or "caps are for tools of the catalogue or of a route"
            message = f"a call cap for the unknown tool {name!r}"
            context.mistake((*path, "caps", "overrides", name), message, hint, key=True)
    ladder = written.get("conversation")
    if written.get("attempts", {}).get("block") == "hard" and ladder == ["address"]:
        hint = "add a header or trace to `conversation`, or say `block: soft`"
        message = "`block: hard` has no effect where only the address tells conversations apart"
        context.mistake((*path, "attempts", "block"), message, hint)
    repair = written.get("repair")
    if isinstance(repair, dict) and repair.get("drop_keys"):
        on = repair.get("rules", {}).get("drop_unknown")
        if not (read_switch(on) if on is not None else repair.get("level") == "lenient"):
            hint = "switch it on: `rules: {drop_unknown: on}`"
            context.mistake((*path, "repair", "drop_keys"), "`drop_keys` without the rule drop_unknown", hint, key=True)
