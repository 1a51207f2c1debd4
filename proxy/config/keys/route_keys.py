"""The keys of tools and routes: their own, and those of a policy."""

from __future__ import annotations

from typing import Final, Literal

from proxy.config.keys.kinds import (
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
    either(
        _NAMED,
        Kind({"type": "object"}),
        Kind({"type": "boolean"}),
        x_expects="a file path or a JSON Schema",
    ),
    "The JSON Schema of the tool's answer: a file path (`file.yaml`, `file.json#/pointer`) or in place. Default: not "
    "checked.",
)
_FUNCTION: Final = either(
    text(minLength=1, x_expects="a function's name"),
    mapping(
        None,
        ConfigKey("name", SOME_TEXT, "The function's name."),
        ConfigKey("description", text(), "What it does, for the model.", default=""),
        ConfigKey(
            "schema",
            _SCHEMA,
            "The function's arguments, for the model, where it is not in the catalogue. Its calls are judged where a "
            "route serves them.",
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
            "Who answers a call without parameters: the upstream, or the proxy with the list of functions.",
        ),
        ConfigKey(
            "auto_expand",
            choice("off", "expand", "dispatch"),
            "What a call with parameters does: is refused (`off`), expands the container the first time (`expand`), or "
            "goes to the function it names (`dispatch`).",
        ),
        ConfigKey(
            "require_expansion",
            SWITCH,
            "Its functions may be called only after it was expanded in the conversation.",
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
        ConfigKey(
            "overlay",
            Kind({"type": "object", "x-expects": "a mapping: the parts of the schema that are to differ"}),
            "On an MCP route (`mcp.tools.NAME`): a JSON Merge Patch (RFC 7396) laid over the schema that the server "
            "lists.",
        ),
        ConfigKey(
            "as",
            TOOL_NAME,
            "On an MCP route (`mcp.tools.NAME`): the name that clients see and call. NAME is the one its server lists, "
            "here and everywhere else in the config.",
        ),
        ConfigKey("response_schema", _RESPONSE_SCHEMA),
        ConfigKey("description", text(), "What the tool does, for guidance and containers.", default=""),
        _CONTAINER_KEY,
        *list_policy_keys("tool"),
    ),
    "One tool: its schema and what differs from the defaults for it.",
)

_PATH: Final = r"^/[^?#\s]*$"
A_PATH: Final = "a path that starts with / and has no query"
_METHOD: Final = choice("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_DISPATCH: Final = mapping(
    None,
    ConfigKey("tool", POINTER, "Where the tool's name stands."),
    ConfigKey("arguments", POINTER, "Where the arguments stand."),
    ConfigKey("call_id", POINTER, "Where the call's id stands. Default: the header X-Tool-Call-Id, else one is made."),
    ConfigKey(
        "arguments_encoding",
        choice("json", "json_string"),
        "`json`: arguments are JSON in the body; `json_string`: JSON text in a string, as OpenAI clients send them.",
        default="json",
    ),
    required=["tool", "arguments"],
)
_YES: Final = Kind({"type": "boolean"})

ROUTE: Final = name_kind(
    "route",
    "Route",
    mapping(
        None,
        ConfigKey("name", SOME_TEXT, "The route's name in logs and metrics. Default: its path."),
        ConfigKey(
            "path",
            text(pattern=_PATH, x_expects=A_PATH),
            "The path, exact or with whole segments in braces: `/tools/weather`, `/tools/{tool}`.",
        ),
        ConfigKey(
            "methods",
            list_of(_METHOD, minItems=1, uniqueItems=True),
            "Methods it takes; others get 405.",
            default=["POST"],
        ),
        ConfigKey("upstream", SOME_TEXT, "An upstream's name, or `none`: answers the checked arguments."),
        ConfigKey(
            "upstream_path",
            text(pattern=_PATH, x_expects=f"{A_PATH}, which belongs to the upstream's url"),
            "The path sent upstream, which may hold `{tool}` and the path's parameters. Default: the route's path.",
        ),
        ConfigKey("tool", TOOL_NAME, "The one tool called here."),
        ConfigKey(
            "tools",
            list_of(TOOL_NAME, minItems=1, uniqueItems=True),
            "The catalogue's tools that may be called here. Default: all.",
        ),
        ConfigKey(
            "dispatch",
            _DISPATCH,
            "The body names the tool: where the name, the arguments and the call's id stand.",
        ),
        ConfigKey("passthrough", _YES, "Whether everything is relayed and nothing judged.", default=False),
        ConfigKey("relay", _YES, "The same as `passthrough`.", default=False),
        ConfigKey(
            "refuse",
            SOME_TEXT,
            "Why these requests are refused, as the answer says: an operation neither judged nor relayed.",
        ),
        ConfigKey(
            "protocol",
            choice("http", "mcp"),
            "Plain HTTP calls, or the Model Context Protocol (Streamable HTTP, every revision).",
            default="http",
        ),
        ConfigKey("schema", _SCHEMA, "The tool's arguments, where it is not in the catalogue."),
        ConfigKey("response_schema", _RESPONSE_SCHEMA, "What the tool answers here, in place of the tool's own."),
        ConfigKey("description", text(), "What the tool does, where it is not in the catalogue.", default=""),
        _CONTAINER_KEY,
        *list_policy_keys("route"),
        ConfigKey(
            "query",
            choice(*(each.value for each in QueryPolicy)),
            "Query strings: declared parameters are judged and others reported (`judge`) or refused (`strict`); all "
            "goes on unjudged (`forward`), or none is taken (`refuse`). Default: `judge` where `request`, an OpenAPI "
            "operation or `parameters` declares some, `refuse` where tools with a `request` are called by name, else "
            "`forward`.",
            default="forward",
        ),
        ConfigKey(
            "lookalikes",
            choice("refuse", "pass"),
            "On a passthrough route, other spellings of a path whose calls are validated (case, `;`, `::`, `%3f`, a "
            "format such as `.json`, a blank, dot or slash at the end): refused, or forwarded without validation "
            "(`pass`).",
            default="refuse",
        ),
        ConfigKey("websocket", SWITCH, "Whether a passthrough route takes WebSockets.", default="on"),
    ),
    "One path and what happens there.",
)
