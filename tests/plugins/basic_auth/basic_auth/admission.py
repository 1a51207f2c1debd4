"""Admits the requests of routes that have the key `basic`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace

from basic_auth.hashing import is_password
from proxy.config.model import Config
from proxy.core.model import codes
from proxy.core.model.values import Headers
from proxy.interfaces import AccessDenied, Admission, Admitted, Certificate, RouteAccess, Services
from proxy.routing import name_routes


class BasicServices:
    """Adds the admission of each such route to the services of calls."""

    def extend(self, config: Config, services: Services) -> Services:
        """The services with the admission of the config's routes."""
        users = config.sections.get("basic_users", {})
        access: dict[str, RouteAccess] = {
            key: BasicAdmission({name: users[name] for name in entry.policy.added["basic"]})
            for key, entry in name_routes(config)
            if "basic" in entry.policy.added
        }
        return replace(services, access={**services.access, **access})

    async def close(self) -> None:
        """Has nothing to end."""


class BasicAdmission:
    """Admits the users of one route by their passwords (RFC 7617)."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def admit(self, headers: Headers, token: str | AccessDenied, certificate: Certificate) -> Admission:  # noqa: ARG002
        """The user who shows a known password, or a challenge."""
        sent = [value for name, value in headers if name == "authorization"]
        if len(sent) == 1 and sent[0].lower().startswith("basic "):
            try:
                name, _, password = base64.b64decode(sent[0][6:], validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                name, password = "", ""
            if name in self._users and is_password(password, self._users[name]):
                return Admitted(caller=f"basic {name}")
        challenge = (("WWW-Authenticate", 'Basic realm="toolcall-proxy", charset="UTF-8"'),)
        return AccessDenied(codes.TOKEN_REQUIRED, "This route asks for a user and a password.", challenge)
