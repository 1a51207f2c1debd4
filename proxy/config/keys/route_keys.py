"""The keys of tools and routes: their own, and those of a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from proxy.adapters.base import CallShape
from proxy.config.files.secrets import reveal
from proxy.config.keys.kinds import (
    A_PATH,
    PATH,
    POINTER,
    SOME_TEXT,
    SWITCH,
    TOOL_NAME,
    ConfigKey,
    Kind,
    choice,
    either,
    list_of,
    mapping,
    name_kind,
    text,
)
from proxy.config.keys.policy_keys import POLICY_KEYS
from proxy.core.contract.request_rules import QueryPolicy
from proxy.core.json.jsontext import parse_pointer
from proxy.core.model.values import Container


def list_policy_keys(place: Literal["defaults", "tool", "route"]) -> tuple[ConfigKey, ...]:
    """The keys of a policy in one place."""
    return tuple(key.move_to(place) for key in POLICY_KEYS if place in key.places)


_NAMED: Final = text(minLength=1, x_expects="the path of a schema file")
_SCHEMA: Final = name_kind(
    "schema",
    "Schema",
    either(
        _NAMED,
        mapping(
            None,
            ConfigKey("openapi", text(), "The OpenAPI or Swagger description (YAML or JSON)."),
            ConfigKey("operation", text(), "Its operationId, or `POST /path`."),
            required=["openapi", "operation"],
            x_expects="openapi and operation",
        ),
        Kind({"type": "object", "not": {"required": ["openapi"], "properties": {"openapi": {"type": "string"}}}}),
        Kind({"type": "boolean"}),
        list_of(Kind({"type": "object"}), minItems=1, x_expects="a list of parameters, each with name and type"),
        x_expects="a file path, a JSON Schema, or {openapi: FILE, operation: ID}",
    ),
    "The tool's arguments as a JSON Schema: a file path (`file.yaml`, `file.json#/pointer`), a schema written in "
    "place, a flat list of parameters, or an operation of an OpenAPI description.",
)
_RESPONSE_SCHEMA: Final = name_kind(
    "response_schema",
    "Response schema",
    either(_NAMED, Kind({"type": "object"}), Kind({"type": "boolean"}), x_expects="a file path or a JSON Schema"),
    "The JSON Schema of the tool's answer: a file path (`file.yaml`, `file.json#/pointer`) or in place. Default: not "
    "checked.",
)
_FUNCTION: Final = either(
    text(minLength=1, x_expects="a function's name"),
    mapping(
        None,
        ConfigKey("name", SOME_TEXT, "The function's name."),
        ConfigKey("description", text(), "Its description for the model.", default=""),
        ConfigKey(
            "schema",
            _SCHEMA,
            "The function's arguments for the model, if it is not in the catalogue. Its calls are "
            "validated if a route serves them.",
        ),
        description="One function.",
        required=["name"],
    ),
    x_expects="a function's name, or a mapping of name, description and schema",
)
CONTAINER: Final = name_kind(
    "container",
    "Container",
    mapping(
        Container,
        ConfigKey("name", SOME_TEXT, "The name shown to the model. Default: the tool's name."),
        ConfigKey("source", choice("plugin", "mcp", "frontend", "skill"), "A label of where the container came from."),
        ConfigKey(
            "functions",
            list_of(_FUNCTION),
            "Names, or mappings with description and schema. A name of the catalogue brings its own.",
            default=[],
            is_read=False,
        ),
        ConfigKey(
            "expand",
            choice("upstream", "proxy"),
            "The answer to a call without parameters: from the upstream, or from the proxy with the list of functions.",
        ),
        ConfigKey(
            "auto_expand",
            choice("off", "expand", "dispatch"),
            "A call with parameters: is rejected (`off`), expands the container the first time "
            "(`expand`), or goes to the function that it names (`dispatch`).",
        ),
        ConfigKey(
            "require_expansion", SWITCH, "Its functions may be called only after it was expanded in the conversation."
        ),
        make=dict,
    ),
    "The tool is a container: it groups functions and takes no parameters.",
)
_CONTAINER_KEY: Final = ConfigKey("container", CONTAINER, "Makes the tool a container.")

TOOL: Final = name_kind(
    "tool",
    "Tool",
    mapping(
        None,
        ConfigKey("schema", _SCHEMA, "The tool's arguments."),
        ConfigKey("response_schema", _RESPONSE_SCHEMA),
        ConfigKey("description", text(), "The description of the tool, for guidance and containers.", default=""),
        _CONTAINER_KEY,
        *list_policy_keys("tool"),
    ),
    "One tool: its schema and what differs from the defaults for it.",
)

UPSTREAM_PATH: Final = text(pattern=PATH.facts["pattern"], x_expects=f"{A_PATH}, which belongs to the upstream's url")
_METHOD: Final = choice("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_PLACE: Final = replace(POINTER, read=lambda at: parse_pointer(reveal(at)))
_CALL_ID: Final = "The place of the call's id. Default: the header X-Tool-Call-Id, or a new id."
DISPATCH: Final = mapping(
    CallShape,
    ConfigKey("tool", _PLACE, "The place of the tool's name.", field="tool_pointer"),
    ConfigKey("arguments", _PLACE, "The place of the arguments.", field="arguments_pointer"),
    ConfigKey("call_id", _PLACE, _CALL_ID, field="call_id_pointer"),
    ConfigKey(
        "arguments_encoding",
        choice("json", "json_string"),
        "`json`: arguments are JSON in the body; `json_string`: JSON text in a string, as OpenAI clients send them.",
    ),
    make=dict,
    required=["tool", "arguments"],
)
_YES: Final = Kind({"type": "boolean"})

ROUTE: Final = name_kind(
    "route",
    "Route",
    mapping(
        None,
        ConfigKey("name", SOME_TEXT, "The route's name in logs and metrics. Default: its path."),
        ConfigKey("path", PATH, "The path, exact or with whole segments in braces: `/tools/weather`, `/tools/{tool}`."),
        ConfigKey(
            "methods",
            list_of(_METHOD, minItems=1, uniqueItems=True),
            "Methods it takes; others get 405.",
            default=["POST"],
        ),
        ConfigKey("upstream", SOME_TEXT, "An upstream's name, or `none`: answers the checked arguments."),
        ConfigKey(
            "upstream_path",
            UPSTREAM_PATH,
            "The path sent upstream, which may hold `{tool}` and the path's parameters. Default: the route's path.",
        ),
        ConfigKey("tool", TOOL_NAME, "The one tool called here."),
        ConfigKey(
            "tools",
            list_of(TOOL_NAME, minItems=1, uniqueItems=True),
            "The catalogue's tools that may be called here. Default: all.",
        ),
        ConfigKey(
            "dispatch", DISPATCH, "The body names the tool: the places of the name, the arguments and the call's id."
        ),
        ConfigKey("passthrough", _YES, "Relays everything without validation.", default=False),
        ConfigKey("relay", _YES, "The same as `passthrough`.", default=False),
        ConfigKey(
            "refuse",
            SOME_TEXT,
            "Why these requests are refused, as the answer says: an operation neither judged nor relayed.",
        ),
        ConfigKey("protocol", choice("http"), "Plain HTTP calls.", default="http"),
        ConfigKey("schema", _SCHEMA, "The tool's arguments, if it is not in the catalogue."),
        ConfigKey(
            "response_schema", _RESPONSE_SCHEMA, "The schema of the tool's answers on this route. Replaces the tool's."
        ),
        ConfigKey("description", text(), "The description of the tool, if it is not in the catalogue.", default=""),
        _CONTAINER_KEY,
        *list_policy_keys("route"),
        ConfigKey(
            "query",
            choice(*(each.value for each in QueryPolicy)),
            "Query strings: declared parameters are validated and others reported (`judge`) or "
            "rejected (`strict`); all is forwarded without validation (`forward`), or none is "
            "accepted (`refuse`). Default: `judge` if `request`, an OpenAPI operation or `parameters` "
            "declares some; `refuse` if tools with a `request` are called by name; otherwise "
            "`forward`.",
            default="forward",
        ),
        ConfigKey(
            "lookalikes",
            choice("refuse", "pass"),
            "On a passthrough route, other spellings of a path whose calls are validated: rejected, "
            "or forwarded without validation (`pass`). Such spellings are case, `;`, `::`, `%3f`, a "
            "format such as `.json`, and a blank, dot or slash at the end.",
            default="refuse",
        ),
        ConfigKey("websocket", SWITCH, "Accepts WebSockets on a passthrough route.", default="on"),
    ),
    "One path and what happens there.",
)
