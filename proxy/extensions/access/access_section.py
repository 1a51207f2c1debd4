"""Reads the section `access` of the config, and the keys `jwt`, `allow` and `deny` of `defaults` and of a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proxy.config.context import Context
from proxy.config.files.secrets import reveal, reveal_all
from proxy.config.files.source import Files
from proxy.config.model import Config, RouteEntry, UpstreamConfig
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.json.jsontext import dumps, parse_pointer
from proxy.core.model.values import Fields, HttpReply, JsonValue, Pointer, RawRequest
from proxy.extensions.access.core.rule_schemas import compile_arguments, list_names, negate_arguments
from proxy.extensions.access.core.settings import AccessRule, AccessSettings, IssuerSettings, JwtSettings
from proxy.interfaces import StateStore

if TYPE_CHECKING:
    from proxy.plugin import AnswerPath, Usable

_TIMES: Final = ("leeway", "refresh", "max_age")
_LISTS: Final = ("audience", "algorithms", "required")


def read_access(
    context: Context, _files: Files | None = None, _upstreams: Mapping[str, UpstreamConfig] | None = None
) -> AccessSettings:
    """Reads the section."""
    issuers = {name: _read_issuer(name, written) for name, written in context.entries("access", "issuers")}
    written = context.mapping("access")
    audit = reveal(written.get("audit", ""))
    if audit not in ("", "log"):
        audit = str(context.folder / audit)
    return AccessSettings(issuers, reveal(written.get("url", "")).rstrip("/"), audit)


def find_access(config: Config) -> AccessSettings:
    """The section of a config, or the defaults."""
    found: AccessSettings = config.sections.get("access", AccessSettings())
    return found


def _read_issuer(name: str, written: Mapping[str, JsonValue]) -> IssuerSettings:
    made: dict[str, Any] = {key: read_seconds(written[key]) for key in _TIMES if key in written}
    made |= {key: read_texts(written[key]) for key in _LISTS if key in written}
    made |= {key: reveal(written[key]) for key in ("jwks",) if key in written}
    return IssuerSettings(name, reveal(written.get("issuer", "")), **{"audience": (), **made})


def read_texts(value: JsonValue) -> tuple[str, ...]:
    """One text, or a list of texts."""
    return tuple(map(reveal, value)) if isinstance(value, list) else (reveal(value),)


def read_jwt(written: JsonValue) -> JwtSettings | None:
    """The issuers whose tokens a route accepts; None where it accepts none."""
    if not isinstance(written, dict):
        return None
    return JwtSettings(read_texts(written.get("issuers", [])), read_switch(written.get("forward", False)))


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
    when = written.get("when", {})
    listed = {key: value if isinstance(value, list) else [value] for key, value in when.get("claims", {}).items()}
    claims = {reveal(key): tuple(reveal_all(values)) for key, values in listed.items()}
    equals = tuple((read_place(place), reveal(claim)) for place, claim in written.get("equals", {}).items())
    names = [str(step) for place, _ in equals for step in place]
    made: dict[str, Any] = {"tools": read_texts(written["tools"])} if "tools" in written else {}
    if "arguments" in written:
        schema = reveal_all(written["arguments"])
        made["arguments"] = _compile(negate_arguments(schema) if denies else schema)
        names += list_names(schema)
    if "annotations" in written:
        made["hints"] = {reveal(name): read_switch(value) for name, value in written["annotations"].items()}
    return AccessRule(
        reveal(written.get("name", name)),
        scopes=read_texts(when.get("scope", [])),
        claims=claims,
        tokens=read_texts(when.get("token", [])),
        issuers=read_texts(when.get("issuer", [])),
        certificates=read_texts(when.get("certificate", [])),
        named=_group_names(names),
        equals=equals,
        **made,
    )


def read_place(written: str) -> Pointer:
    """The place of an argument: a JSON Pointer if it starts with a slash, otherwise a name."""
    return parse_pointer(reveal(written)) if written.startswith("/") else (reveal(written),)


def _compile(schema: JsonValue) -> tuple[Check, ...]:
    try:
        return compile_arguments(schema)
    except SchemaError:
        return (compile_check(False),)


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
