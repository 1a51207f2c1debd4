"""Reads the section `access` of the config, and the keys `jwt` and `allow` of `defaults` and of a route."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.config.context import Context
from proxy.config.files.source import Files
from proxy.config.model import RouteEntry, UpstreamConfig
from proxy.core.model.values import JsonValue
from proxy.extensions.access.core.settings import AccessSettings, JwtSettings
from proxy.extensions.access.rates.limit_keys import check_limits


def read_access(_context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> AccessSettings:
    """What the section says."""
    return AccessSettings()


def read_jwt(_written: JsonValue) -> JwtSettings | None:
    """Which issuers' tokens a route takes; None where it takes none."""
    return None


def read_allow(_written: JsonValue) -> tuple[()] | None:
    """The rules of a route; None where anybody who is admitted may call anything."""
    return None


def check_access(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Checks what the keys say together."""
    check_limits(context, routes)
