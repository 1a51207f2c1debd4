"""Metadata by which a client finds the issuers of a route's tokens (RFC 9728)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
    """The path of the metadata of each route that takes signed tokens, where the config says how clients reach it."""
    settings = find_access(config)
    return {
        f"{WELL_KNOWN}{route.path}": partial(_answer, dumps(describe_resource(settings, route, jwt)))
        for route in config.routes
        if settings.url and "{" not in route.path and isinstance(jwt := route.policy.added.get("jwt"), JwtSettings)
    }


def name_metadata(settings: AccessSettings, route: RouteEntry) -> str:
    """The URL of a route's metadata; '' for a route that has none."""
    takes = settings.url and "{" not in route.path and "jwt" in route.policy.added
    return f"{settings.url}{WELL_KNOWN}{route.path}" if takes else ""


def describe_resource(settings: AccessSettings, route: RouteEntry, jwt: JwtSettings) -> JsonValue:
    """The metadata of one route."""
    issuers = [settings.issuers[name].issuer for name in jwt.issuers or settings.issuers if name in settings.issuers]
    scopes = sorted({scope for rule in route.policy.added.get("allow", ()) for scope in rule.scopes})
    return {
        "resource": f"{settings.url}{route.path}",
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
