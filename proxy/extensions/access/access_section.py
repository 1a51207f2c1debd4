"""Reads the section `access` of the config, and the keys `jwt`, `allow` and `deny` of `defaults` and of a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.config.keys.kinds import (
    DURATION,
    SAME_OWNER,
    SWITCH,
    WORD,
    ConfigKey,
    Kind,
    choice,
    either,
    list_of,
    map_of,
    mapping,
    name_kind,
    off_or,
    table_of,
    text,
)
from proxy.config.model import Config, RouteEntry, UpstreamConfig
from proxy.core.json.jsontext import dumps, parse_pointer
from proxy.core.model.values import Fields, HttpReply, JsonValue, Pointer, RawRequest
from proxy.extensions.access.core.rule_schemas import compile_arguments, list_names, negate_arguments
from proxy.extensions.access.core.settings import ALGORITHMS, AccessRule, AccessSettings, IssuerSettings, JwtSettings
from proxy.extensions.access.limiter import LIMITS, TOOL_LIMITS
from proxy.extensions.access.pins_section import PINS
from proxy.interfaces import StateStore
from proxy.plugin import Context, Files, SchemaError, compile_check, read_switch, reveal, reveal_all

if TYPE_CHECKING:
    from proxy.plugin import AnswerPath, Usable


# --- the section ------------------------------------------------------------------------------------------------------
def read_texts(value: JsonValue) -> tuple[str, ...]:
    """Reads one text, or a list of texts."""
    return tuple(map(reveal, value)) if isinstance(value, list) else (reveal(value),)


_TEXTS: Final = either(WORD, list_of(WORD, minItems=1), read=read_texts, x_expects="text, or a list of texts")
_ISSUER: Final = name_kind(
    "issuer",
    "Issuer",
    mapping(
        IssuerSettings,
        ConfigKey(
            "issuer", text(pattern=r"^https?://[^\s?#]+$", x_expects="a URL"), "The `iss` of its tokens, exactly."
        ),
        ConfigKey("audience", _TEXTS, "The `aud` that tokens name, one of these."),
        ConfigKey(
            "jwks",
            text(pattern=r"^https?://\S+$", x_expects="a URL"),
            "The address of its keys. Default: found by OpenID discovery.",
            default=None,
        ),
        ConfigKey("algorithms", list_of(choice(*ALGORITHMS), minItems=1, uniqueItems=True), "How tokens are signed."),
        ConfigKey("required", _TEXTS, "Claims that have to be there, beside exp, iss and aud."),
        ConfigKey("leeway", DURATION, "How far the issuer's clock may differ."),
        ConfigKey("refresh", DURATION, "The age at which keys are fetched again, in the background."),
        ConfigKey("max_age", DURATION, "How long keys count when they cannot be fetched."),
        make=dict,
        required=["issuer", "audience"],
    ),
    "An issuer of tokens, and its audience.",
)
_ACCESS: Final = mapping(
    AccessSettings,
    ConfigKey(
        "issuers",
        table_of("^[A-Za-z0-9_.-]{1,64}$", "letters, digits, '.', '_' and '-'", _ISSUER, minProperties=1),
        "Name -> who signs tokens: `issuer`, `audience`, `jwks`, `algorithms`, `required`, `leeway`, `refresh`, "
        "`max_age` (docs/access.md).",
        default=None,
        is_read=False,
    ),
    ConfigKey(
        "url",
        replace(
            text(pattern=r"^https?://[^/?#\s]+/?$", x_expects="a URL without a path, as https://proxy.example"),
            read=lambda url: reveal(url).rstrip("/"),
        ),
        "The address at which clients reach the proxy, as `https://HOST`. They find there the issuer of tokens (RFC "
        "9728). Required by MCP routes with `jwt`.",
        default=None,
    ),
    ConfigKey(
        "audit",
        text(minLength=1, x_expects="a file, or log"),
        "Destination of one line for each call, written when it is over: a file, one JSON line each, or `log`. "
        "Default: nowhere.",
        default=None,
    ),
)


def read_access(
    context: Context, _files: Files | None = None, _upstreams: Mapping[str, UpstreamConfig] | None = None
) -> AccessSettings:
    """Reads the section."""
    entries = context.entries("access", "issuers")
    issuers = {
        name: IssuerSettings(name, **{"issuer": "", "audience": (), **_ISSUER.read(entry)}) for name, entry in entries
    }
    made: AccessSettings = _ACCESS.read(context.mapping("access"))
    audit = made.audit if made.audit in ("", "log") else str(context.folder / made.audit)
    return replace(made, issuers=issuers, audit=audit)


def find_access(config: Config) -> AccessSettings:
    """The section of a config, or the defaults."""
    found: AccessSettings = config.sections.get("access", AccessSettings())
    return found


# --- rules ------------------------------------------------------------------------------------------------------------
def read_allow(written: JsonValue) -> tuple[AccessRule, ...] | None:
    """The rules of a route; None if an admitted caller may call anything. A schema that cannot be compiled accepts
    nothing here; `check_access` reports it."""
    if not isinstance(written, list):
        return None
    return tuple(_read_rule(f"rule-{number}", rule) for number, rule in enumerate(written, 1))


def read_deny(written: JsonValue) -> tuple[AccessRule, ...] | None:
    """The rules of a route that deny calls; None if there are none. A schema that cannot be compiled denies every
    call of its tools here; `check_access` reports it."""
    if not isinstance(written, list):
        return None
    return tuple(_read_rule(f"deny-{number}", rule, denies=True) for number, rule in enumerate(written, 1))


def _read_rule(name: str, written: Mapping[str, JsonValue], *, denies: bool = False) -> AccessRule:
    made = {"name": name, **_RULE.read(written)}
    names = [str(step) for place, _ in made.get("equals", ()) for step in place]
    if "arguments" in written:
        schema = reveal_all(written["arguments"])
        try:
            made["arguments"] = compile_arguments(negate_arguments(schema) if denies else schema)
            names += list_names(schema)
        except SchemaError:
            made["arguments"] = (compile_check(False),)
    return AccessRule(**made, named=_group_names(names))


def read_place(written: str) -> Pointer:
    """The place of an argument: a JSON Pointer if it starts with a slash, otherwise a name."""
    return parse_pointer(reveal(written)) if written.startswith("/") else (reveal(written),)


def _group_names(names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The keys that a rule names, by their folded case."""
    grouped: dict[str, frozenset[str]] = {}
    for name in names:
        grouped[name.casefold()] = grouped.get(name.casefold(), frozenset()) | {name}
    return grouped


def list_rules(written: JsonValue) -> Iterator[tuple[int, Mapping[str, JsonValue]]]:
    """The rules of an `allow` or a `deny` as written, each with its index."""
    yield from (
        (at, rule) for at, rule in enumerate(written if isinstance(written, list) else ()) if isinstance(rule, dict)
    )


_YES: Final = Kind({"type": "boolean"}, read_switch)
_CLAIM: Final = Kind({"type": ["string", "integer", "boolean"]})
_CLAIMS: Final = map_of(
    either(
        _CLAIM,
        list_of(_CLAIM, minItems=1),
        read=lambda value: tuple(reveal_all(value if isinstance(value, list) else [value])),
        x_expects="a value, or a list of values",
    ),
    minProperties=1,
)
_WHEN: Final = mapping(
    AccessRule,
    ConfigKey("scope", _TEXTS, "Scopes that the token has all of.", field="scopes"),
    ConfigKey(
        "claims",
        _CLAIMS,
        "Claim -> its value, or a list of values of which it is, or holds, one. A dot leads into a claim.",
        default=None,
    ),
    ConfigKey("token", _TEXTS, "Names of tokens of `auth.bearer`.", field="tokens"),
    ConfigKey("issuer", _TEXTS, "Names of issuers.", field="issuers"),
    ConfigKey(
        "certificate",
        _TEXTS,
        "Names in the client's certificate, with their kind and `*`: `CN:batch`, `DNS:*.svc`, "
        "`URI:spiffe://example/*`.",
        field="certificates",
    ),
    make=dict,
    minProperties=1,
)
_HINTS: Final = mapping(
    None,
    ConfigKey("readOnlyHint", _YES, "The tool only reads."),
    ConfigKey("destructiveHint", _YES, "The tool may destroy something."),
    ConfigKey("idempotentHint", _YES, "A second call with the same arguments changes nothing more."),
    ConfigKey("openWorldHint", _YES, "The tool reaches systems outside of its service."),
    minProperties=1,
)
_EQUALS: Final = replace(
    map_of(WORD, minProperties=1),
    read=lambda written: tuple((read_place(place), reveal(claim)) for place, claim in written.items()),
)
_RULE: Final = name_kind(
    "access_rule",
    "AccessRule",
    mapping(
        AccessRule,
        ConfigKey("name", WORD, "The rule's name in `check` and in the audit. Default: rule-N, or deny-N."),
        ConfigKey(
            "when",
            _WHEN,
            "The callers that the rule applies to; without it, everyone who is admitted.",
            field=SAME_OWNER,
        ),
        ConfigKey("tools", _TEXTS, "Names of tools, with `*`. Default: all. In `deny`, letter case does not count."),
        ConfigKey(
            "annotations",
            _HINTS,
            "Hints that the MCP server must give for the tool; the route needs `mcp: {trust_annotations: on}`.",
            field="hints",
        ),
        ConfigKey(
            "arguments",
            Kind({"type": "object"}),
            "A JSON Schema of the arguments as they will be sent; each key that it names has to be there. In `deny`, "
            "arguments are denied unless they certainly break it.",
            is_read=False,
        ),
        ConfigKey(
            "equals",
            _EQUALS,
            "Argument (its name, or a JSON Pointer) -> the claim of the caller's token that it equals; of a list, one "
            "item. A missing argument or claim fits no rule. In `allow` only.",
            default=None,
        ),
        make=dict,
    ),
    "Allows, or in `deny` denies, calls to the callers that fit all conditions.",
)
_RULES: Final = off_or(list_of(_RULE, minItems=1), "off, or a list of rules")
_JWT: Final = mapping(
    JwtSettings,
    ConfigKey(
        "issuers", list_of(WORD, minItems=1, uniqueItems=True), "Names of the issuers. Default: all.", default=None
    ),
    ConfigKey("forward", SWITCH, "Forwards the token to the upstream."),
)
_POLICY: Final = mapping(
    None,
    ConfigKey(
        "jwt",
        name_kind(
            "jwt",
            "Jwt",
            off_or(_JWT, "off, or a mapping of issuers and forward"),
            "Takes bearer tokens that an issuer of `access.issuers` has signed, beside those of `auth` "
            "(docs/access.md). The nearest `jwt` counts whole; `{}` takes those of all issuers.",
        ),
    ),
    ConfigKey(
        "allow",
        name_kind(
            "allow",
            "Allow",
            replace(_RULES, read=read_allow),
            "Rules: who may call which tool, with which arguments (docs/access.md). A call that no rule allows is "
            "refused. A tool that no rule allows is not listed. Default: an admitted caller may call anything that no "
            "rule of `deny` denies.",
        ),
    ),
    ConfigKey(
        "deny",
        name_kind(
            "deny",
            "Deny",
            replace(_RULES, read=read_deny),
            "Rules that apply before those of `allow` (docs/access.md). A call that may match one of them is refused. "
            "A tool that is denied for all arguments is not listed. A route's rules are added to those of `defaults`; "
            "`off` drops them. Default: none.",
        ),
    ),
)
KEYS: Final = {
    "": mapping(None, ConfigKey("access", _ACCESS, "Settings of access for all routes (docs/access.md)."), PINS),
    "defaults": _POLICY,
    "route": _POLICY,
    "limits": LIMITS,
    "tool_limits": TOOL_LIMITS,
}


# --- metadata by which a client finds the issuers of a route's tokens (RFC 9728) --------------------------------------
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
# A page in a browser may read it, because it holds no secret.
_FIELDS: Final = (
    ("Content-Type", "application/json"),
    ("Cache-Control", "no-store"),
    ("Access-Control-Allow-Origin", "*"),
)


def make_answers(config: Config) -> dict[str, AnswerPath]:
    """The path of the metadata of each route that takes signed tokens, if the config says how clients reach it. Routes
    whose paths begin with the same fixed part share one."""
    settings, grouped = find_access(config), dict[str, list[RouteEntry]]()
    for route in config.routes:
        if settings.url and isinstance(route.policy.added.get("jwt"), JwtSettings):
            grouped.setdefault(find_fixed_part(route.path), []).append(route)
    return {
        f"{WELL_KNOWN}{path}": partial(_answer, dumps(describe_resource(settings, path, routes)))
        for path, routes in grouped.items()
    }


def find_fixed_part(path: str) -> str:
    """The path of a route before its first parameter: `/files` for `/files/{tool}`."""
    return path if "{" not in path else path.partition("{")[0].rpartition("/")[0]


def name_metadata(settings: AccessSettings, route: RouteEntry) -> str:
    """The URL of a route's metadata; '' for a route that has none."""
    takes = settings.url and "jwt" in route.policy.added
    return f"{settings.url}{WELL_KNOWN}{find_fixed_part(route.path)}" if takes else ""


def describe_resource(settings: AccessSettings, path: str, routes: Sequence[RouteEntry]) -> JsonValue:
    """The metadata of the routes at or below a path."""
    taken: list[JwtSettings] = [route.policy.added["jwt"] for route in routes]
    names = dict.fromkeys(name for jwt in taken for name in jwt.issuers or settings.issuers)
    issuers = [settings.issuers[name].issuer for name in names if name in settings.issuers]
    rules = [rule for route in routes for rule in route.policy.added.get("allow") or ()]
    scopes = sorted({scope for rule in rules for scope in rule.scopes})
    return {
        "resource": f"{settings.url}{path}",
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
        **({"scopes_supported": scopes} if scopes else {}),
    }


async def _answer(
    body: bytes, _request: RawRequest, _fields: Fields, _usable: Callable[[], Awaitable[Usable]], _store: StateStore
) -> HttpReply:
    return HttpReply(200, _FIELDS, body)
