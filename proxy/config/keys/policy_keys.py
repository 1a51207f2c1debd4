"""The keys of a policy, which `defaults`, a tool and a route may have: a further key is one entry of `POLICY_KEYS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from proxy.adapters.base import ConversationSource
from proxy.config.files.secrets import reveal
from proxy.config.keys.access_keys import AUTH, CORS
from proxy.config.keys.kinds import (
    A_HEADER,
    A_TOOL,
    DURATION,
    HEADER_NAME,
    HEADER_PATTERN,
    LENGTH,
    POINTER,
    SIZE,
    SOME_TEXT,
    SWITCH,
    TIME_LIMIT,
    TOOL_PATTERN,
    WORD,
    ConfigKey,
    Kind,
    choice,
    either,
    hide,
    list_of,
    map_of,
    mapping,
    member,
    name_kind,
    number,
    table_of,
    text,
)
from proxy.config.keys.repair_keys import FORMATS, REPAIR, spread_level
from proxy.config.model import Caps, HeaderChanges, Policy, RepairSettings
from proxy.core.contract.policy import (
    AttemptsPolicy,
    Block,
    ByAddress,
    LeakedMarkup,
    Mode,
    NullOptional,
    ResendPolicy,
    ToolErrors,
    UnknownKeys,
    UpstreamErrors,
)
from proxy.core.envelope import AUTO
from proxy.core.envelope import FORMATS as ENVELOPES
from proxy.core.json.jsontext import TextLimits
from proxy.core.model.value_class import value_class
from proxy.core.model.values import FeedbackLimits, JsonValue


@value_class
class PolicyKey(ConfigKey):
    """One key of a policy, in `places`.

    `of_tool`: it applies to one tool; another key is decided before the tool is known. `on_relay`: it has an effect on
    a passthrough route. `is_whole`: the value of an inner layer replaces that of an outer one and is not merged with
    it. `spread` gives the form in which it is merged. `of_answers`: it has no effect if the protocol defines the form
    of answers. `tool_kind`: what a tool takes, if that is something else.
    """

    places: tuple[str, ...] = ("defaults", "tool", "route")
    of_tool: bool = True
    on_relay: bool = False
    is_whole: bool = False
    spread: Callable[[JsonValue], JsonValue] | None = None
    of_answers: bool = False
    tool_kind: Kind | None = None

    def move_to(self, place: str) -> ConfigKey:
        """The key in one of `places`."""
        if place == "tool" and self.tool_kind is not None:
            return ConfigKey(self.name, self.tool_kind)
        return ConfigKey(self.name, self.kind, self.text, self.write_default(Policy))


_OF_ROUTES: Final[dict[str, Any]] = {"places": ("defaults", "route"), "of_tool": False, "on_relay": True}


# --- how often, and how much ------------------------------------------------------------------------------------------
_ATTEMPTS: Final = name_kind(
    "attempts",
    "Attempts",
    mapping(
        AttemptsPolicy,
        ConfigKey("max", number(minimum=1), "The failed attempt answered with the escalation.", field="max_attempts"),
        ConfigKey("ttl", DURATION, "How long failed attempts are remembered after the last."),
        ConfigKey("address_ttl", DURATION, "The same where only the client's address identifies a conversation."),
        ConfigKey(
            "address",
            member(ByAddress, "digest", "count", "off", False),
            "Counting for clients without an id, because users may share an address. `digest`: only "
            "identical arguments; `count`: as with an id (for a sidecar with one agent); `off`: "
            "nothing.",
        ),
        ConfigKey(
            "tool_errors",
            mapping(
                ToolErrors,
                ConfigKey(
                    "max", number(minimum=1), "After so many, calls are answered with TOOL_ERROR_BUDGET.", field="limit"
                ),
                ConfigKey("window", DURATION, "The count ends after this time without an error."),
                title="Tool errors",
                description="Errors of the tool itself that a conversation with an id may have. Default: any number.",
            ),
        ),
        ConfigKey(
            "block", member(Block), "After the escalation `soft` still forwards valid calls, `hard` refuses all."
        ),
    ),
    "How often a model may call a tool wrongly in one conversation.",
)
_CAPS: Final = name_kind(
    "caps",
    "Caps",
    mapping(
        Caps,
        ConfigKey("by_address", SWITCH, "Applies caps also if only the client's address identifies a conversation."),
        ConfigKey("default", number(minimum=1), "The cap of tools without an override. Default: none."),
        ConfigKey("overrides", table_of(TOOL_PATTERN, A_TOOL, number(minimum=1)), "Tool -> cap."),
        ConfigKey(
            "per", choice("conversation"), "The key by which calls are counted.", default="conversation", is_read=False
        ),
        ConfigKey("ttl", DURATION, "How long counts last after the last call."),
    ),
    "How often a conversation may call a tool successfully. Without default and overrides: any number.",
)
_FEEDBACK: Final = name_kind(
    "feedback",
    "Feedback",
    mapping(
        FeedbackLimits,
        ConfigKey("max_errors", number(minimum=1), "Errors listed; the rest are counted."),
        ConfigKey(
            "max_chars",
            number(minimum=200),
            "Maximum length of the whole feedback in characters, also for tools with many properties.",
        ),
        ConfigKey("max_preview", number(minimum=10), "Length of a shown value in characters."),
        ConfigKey("path_roots", list_of(WORD), "Folders from which file paths in values are shown relative."),
        ConfigKey("marks", SWITCH, "Shows the sent arguments with a mark at each error."),
    ),
    "Bounds of the feedback a model reads.",
)
# Plugins read the keys that they add to these.
LIMITS: Final = name_kind(
    "limits",
    "Limits",
    mapping(
        TextLimits,
        ConfigKey("body", SIZE, "The largest body.", default=SIZE.write(Policy().max_body), is_read=False),
        ConfigKey("depth", number(minimum=1, maximum=256), "The deepest nesting of the JSON."),
        ConfigKey("nodes", number(minimum=1), "The number of values in the JSON."),
    ),
    "Bounds of what is read.",
)
_TOOL_LIMITS: Final = name_kind("tool_limits", "ToolLimits", mapping(None), "Bounds of the tool's calls.")


# --- sending again ----------------------------------------------------------------------------------------------------
RESEND: Final = name_kind(
    "resend",
    "Resend",
    mapping(
        ResendPolicy,
        ConfigKey(
            "max", number(minimum=0, maximum=10), "The most resends of one call; 0 for none.", field="max_resends"
        ),
        ConfigKey("backoff", DURATION, "The first resend waits a random part of this, which doubles each time."),
        ConfigKey("max_backoff", DURATION, "The longest wait."),
        ConfigKey("deadline", LENGTH, "For all sends of one call and the waits between them. Default: `timeout`."),
        ConfigKey("on_retry_after", SWITCH, "Waits as long as a 429 or 503 says, within the deadline."),
        make=dict,
    ),
    "How often, and when, the same call is sent again.",
)
IDEMPOTENCY: Final = name_kind(
    "idempotency",
    "Idempotency",
    mapping(
        ResendPolicy,
        ConfigKey(
            "header",
            HEADER_NAME,
            "The header that names a call. Default: `Idempotency-Key` where `mint` is on, else none.",
            default=None,
            field="key_header",
        ),
        ConfigKey(
            "mint",
            SWITCH,
            "Names calls that the client has not named: a new value for each call, the same for all its sends.",
            field="mint_key",
        ),
        make=dict,
    ),
    "How the upstream recognises a call it has seen. Calls with the header are sent again after 5xx, timeouts and "
    "resets.",
)


# --- requests ---------------------------------------------------------------------------------------------------------
def _read_source(value: JsonValue) -> ConversationSource:
    if isinstance(value, str):
        return ConversationSource("trace" if value == "trace" else "address")
    (kind, name), *_ = value.items()
    return ConversationSource(kind, reveal(name) if kind in ("body", "meta") else reveal(name).lower())


_SOURCE: Final = name_kind(
    "conversation_source",
    "Conversation source",
    either(
        choice("trace", "address", x_expects="trace or address"),
        mapping(
            None,
            ConfigKey("header", HEADER_NAME, "The name of a header."),
            ConfigKey("session", HEADER_NAME, "A header that holds a session id."),
            ConfigKey("body", POINTER, "A place in the body."),
            ConfigKey("meta", SOME_TEXT, "A key of `_meta` from MCP clients."),
            description="A place in the request.",
            minProperties=1,
            maxProperties=1,
            x_expects="one of header, session, body and meta",
        ),
        read=_read_source,
        x_expects="trace, address, or one of {header: NAME}, {session: NAME}, {body: /pointer}, {meta: KEY}",
    ),
    "One way to tell conversations apart.",
)
_CONVERSATION: Final = name_kind(
    "conversation",
    "Conversation",
    replace(list_of(_SOURCE, minItems=1), write=hide),
    "How a call's conversation is found: the first of these in the request. Default: the header X-Conversation-Id, on "
    "MCP routes the `_meta` keys of known clients, the W3C trace id, the header Mcp-Session-Id, the client's address.",
)


def _spread_names(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict) or "set" not in value:
        return value
    return {**value, "set": {name.lower(): item for name, item in value["set"].items()}}


# Values stay secrets until a request is built.
_SET: Final = replace(
    table_of(HEADER_PATTERN, A_HEADER, replace(text(), is_secret=True)),
    read=lambda found: tuple((name.lower(), value) for name, value in found.items()),
    write=dict,
)
_REMOVE: Final = list_of(HEADER_NAME, lambda names: frozenset(name.lower() for name in names))
HEADERS: Final = name_kind(
    "headers",
    "Headers",
    mapping(
        HeaderChanges,
        ConfigKey("set", _SET, "Header -> value; replaces the client's own."),
        ConfigKey("remove", _REMOVE, "Names of headers that are left out."),
    ),
    "Headers set or removed on the way to the upstream. Values may hold `${ENV}` and `${file:/path}`.",
)

POLICY_KEYS: Final = (
    PolicyKey(
        "mode",
        member(Mode),
        "`enforce` refuses invalid calls; `report` forwards the client's bytes and only counts what would have "
        "happened.",
    ),
    PolicyKey("repair", REPAIR, "The repairs that are on.", default=RepairSettings().level, spread=spread_level),
    PolicyKey(
        "null_optional",
        member(NullOptional),
        "When to leave out a null at an optional key that refuses it: always (`drop`), never "
        "(`refuse`), or if the tool's annotations or HTTP method allow it (`stated`). `reading` "
        "also accepts ten verbs that begin a name. `x-null` in a property's schema wins.",
    ),
    PolicyKey(
        "aliases",
        map_of(WORD),
        "Further names of arguments, each with the declared one: `{latitude: lat}` takes an undeclared `latitude` as "
        "`lat`.",
        places=("tool", "route"),
    ),
    PolicyKey(
        "unknown_keys",
        member(UnknownKeys),
        "Keys the schema does not name: as it says (`schema`), forwarded with a warning (`warn`), refused (`refuse`), "
        "or forwarded even against the schema, for the tool to judge (`forward`).",
    ),
    PolicyKey(
        "leaked_markup",
        member(LeakedMarkup),
        "Text with markup of the tool call itself: refused where certain (`refuse`), forwarded with a warning "
        "(`warn`), or not looked for (`off`).",
    ),
    PolicyKey(
        "envelope",
        choice(AUTO, *ENVELOPES),
        "The format of answers to failed calls; `auto`: by protocol and Accept header.",
        **_OF_ROUTES,
        of_answers=True,
    ),
    PolicyKey(
        "error_status",
        choice("category", "ok"),
        "The status of failed calls: by category (400, 404, 503 ...), or always 200 (`ok`) for clients that drop an "
        "error's body.",
        **_OF_ROUTES,
        of_answers=True,
    ),
    PolicyKey(
        "detail",
        choice("compact", "full"),
        "The part for machines in answers to failed calls: each error in short (`compact`), or all of the text's words "
        "(`full`).",
        **_OF_ROUTES,
    ),
    PolicyKey("attempts", _ATTEMPTS),
    PolicyKey("caps", _CAPS),
    PolicyKey("feedback", _FEEDBACK),
    PolicyKey("limits", LIMITS, is_read=False, of_tool=False, on_relay=True, tool_kind=_TOOL_LIMITS),
    PolicyKey(
        "timeout",
        TIME_LIMIT,
        "How long the upstream may take to answer, or `off`. Default: its `timeouts.response`; for MCP 5m, and `off` "
        "where each session has its own process.",
        on_relay=True,
    ),
    PolicyKey("formats", FORMATS),
    PolicyKey(
        "validation",
        SWITCH,
        "Must be `off` if a tool has no schema. Its calls are then forwarded without validation.",
        default="on",
        is_read=False,
        places=("tool", "route"),
    ),
    PolicyKey("conversation", _CONVERSATION, field="ladder", **_OF_ROUTES),
    PolicyKey("headers", HEADERS, spread=_spread_names, **_OF_ROUTES),
    PolicyKey("auth", AUTH, is_whole=True, **_OF_ROUTES),
    PolicyKey("cors", CORS, default="off", is_whole=True, **_OF_ROUTES),
    PolicyKey(
        "idempotent",
        SWITCH,
        "Calling the tool twice does no more than once: its calls are sent again after 5xx, timeouts and resets.",
        default="off",
        is_read=False,
    ),
    PolicyKey("idempotency", IDEMPOTENCY, is_read=False),
    PolicyKey("resend", RESEND, is_read=False),
    PolicyKey(
        "upstream_errors",
        member(UpstreamErrors),
        "A tool's error: explained to the model (`explain`), forwarded unchanged (`passthrough`), "
        "or explained only for 429 and 5xx (`outages`, the default on MCP routes).",
    ),
    PolicyKey(
        "wrap_success", SWITCH, 'A tool\'s JSON answer goes out as `{"success": true, "data": ...}`.', of_answers=True
    ),
    PolicyKey(
        "response_mode",
        member(Mode, "report", "enforce"),
        "Answers that break `response_schema`: counted and handed on (`report`), or refused (`enforce`) "
        "(docs/upstream.md).",
        of_answers=True,
    ),
    PolicyKey(
        "finalize_output_retries",
        number(minimum=0, maximum=99),
        "How often a model may correct an output refused by a route with `upstream: none`: one less than "
        "`attempts.max`, which it overrides. Default: 2, from `attempts.max`.",
    ),
)
