"""Adds access checks to the services of calls. Keys of issuers outlive a reload that does not change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.config.mistakes import split_url
from proxy.config.model import Config
from proxy.core.model.values import UpstreamFault
from proxy.extensions.access.access_section import find_access
from proxy.extensions.access.admission import RouteAdmission
from proxy.extensions.access.core.settings import AccessSettings, IssuerSettings, JwtSettings
from proxy.extensions.access.metadata import name_metadata
from proxy.extensions.access.pins.pins_section import find_withheld
from proxy.interfaces import RouteAccess, Services, UpstreamRequest
from proxy.routing import name_routes
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics
from proxy.upstream import UpstreamSettings
from proxy.upstream.outgoing_client import OutgoingClient

if TYPE_CHECKING:  # needs the extra `jwt`
    from proxy.extensions.access.tokens.issuer_keys import IssuerKeys
    from proxy.extensions.access.tokens.signed_tokens import SignedTokens

# Seconds for one document of an issuer.
_TIMEOUT: Final = 5.0
# The longest answer of an issuer, in bytes.
_MAX_ANSWER: Final = 256 * 1024
_HEADERS: Final = (("accept", "application/json"), ("accept-encoding", "identity"), ("user-agent", "toolcall-proxy"))


class AccessServices:
    """Implements `ServiceExtender`. Its memory outlives a reload."""

    def __init__(self, base: Services, log: Log, _metrics: Metrics) -> None:
        self._base = base
        self._log = log
        self._keys: dict[IssuerSettings, IssuerKeys] = {}
        self._failing: dict[str, str] = {}

    def extend(self, config: Config, services: Services) -> Services:
        """The services with the access checks of the config's routes."""
        settings = find_access(config)
        tokens = self._make_tokens(settings) if settings.issuers else None
        access: dict[str, RouteAccess] = {}
        for key, entry in name_routes(config):
            jwt, allow, deny = (entry.policy.added.get(key) for key in ("jwt", "allow", "deny"))
            withheld = find_withheld(config, entry.name)
            if jwt is None and allow is None and deny is None and withheld is None:
                continue
            taken = jwt if isinstance(jwt, JwtSettings) else None
            if not (entry.listed is not None and entry.listed.trusts_annotations):
                # Hints of a server that is not trusted allow nothing, and save no tool from `deny`.
                allow = None if allow is None else tuple(rule for rule in allow if not rule.hints)
                deny = None if deny is None else tuple(replace(rule, hints={}) for rule in deny)
            metadata = name_metadata(settings, entry)
            passes = entry.kind == "passthrough"
            access[key] = RouteAdmission(taken, allow, tokens, metadata, passes, withheld, deny or ())
        return replace(services, access={**services.access, **access})

    def _make_tokens(self, settings: AccessSettings) -> SignedTokens:
        from proxy.extensions.access.tokens.signed_tokens import SignedTokens

        keys: Mapping[str, IssuerKeys] = {name: self._find_keys(issuer) for name, issuer in settings.issuers.items()}
        return SignedTokens(settings.issuers, keys, self._base.clock)

    def _find_keys(self, issuer: IssuerSettings) -> IssuerKeys:
        from proxy.extensions.access.tokens.issuer_keys import IssuerKeys

        if issuer not in self._keys:
            self._keys[issuer] = IssuerKeys(issuer, fetch, self._base.clock, self._report)
        return self._keys[issuer]

    def _report(self, issuer: str, why: str) -> None:
        """Logs once that keys cannot be fetched, and once that they can again."""
        before = self._failing.get(issuer, "")
        if why == before:
            return
        self._failing[issuer] = why
        if why:
            self._log.event("Keys of an issuer cannot be fetched", "error", issuer=issuer, reason=why)
        else:
            self._log.event("Keys of an issuer can be fetched again", issuer=issuer)

    async def close(self) -> None:
        """Does nothing: nothing is queued."""


async def fetch(url: str) -> bytes | str:
    """The document at a URL, or the reason of the failure. Redirects are not followed."""
    parts = split_url(url)
    try:
        client = OutgoingClient(UpstreamSettings("issuer", f"{parts.scheme}://{parts.netloc}", idle_timeout=_TIMEOUT))
    except ValueError:
        return "the address of its keys cannot be used"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    reply = await client.fetch(UpstreamRequest("issuer", "GET", target, _HEADERS, b"", _TIMEOUT), _MAX_ANSWER)
    if isinstance(reply, UpstreamFault):
        return f"{parts.netloc}: {reply.message}"
    return reply.body if reply.status == 200 else f"{parts.netloc} answered with status {reply.status}"
