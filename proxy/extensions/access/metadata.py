"""Metadata by which a client finds the issuers of a route's tokens (RFC 9728)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from proxy.config.model import Config, RouteEntry
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Fields, HttpReply, JsonValue, RawRequest
from proxy.extensions.access.access_section import find_access
from proxy.extensions.access.core.settings import AccessSettings, JwtSettings
from proxy.interfaces import StateStore
from proxy.server.handler import AnswerPath, Usable

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
    body: bytes,
    _request: RawRequest,
    _fields: Fields,
    _usable: Callable[[], Awaitable[Usable]],
    _store: StateStore,
) -> HttpReply:
    return HttpReply(200, _FIELDS, body)
