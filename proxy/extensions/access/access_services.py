"""Adds access checks to the services of calls. Keys of issuers outlive a reload that does not change them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.call_record import AccessNote
from proxy.config.model import Config
from proxy.core.contract.listed_tool import Hints
from proxy.core.json.jsontext import dumps
from proxy.core.model import codes
from proxy.core.model.fields import NoBearer, read_bearer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, Headers, JsonValue, ToolCall, UpstreamFault
from proxy.extensions.access.access_section import find_access, name_metadata
from proxy.extensions.access.core.access_rules import (
    Identity,
    find_arguments,
    find_sent,
    fits_arguments,
    fits_caller,
    lacks_scope,
    may_fit_caller,
    may_name_tool,
    names_tool,
)
from proxy.extensions.access.core.settings import (
    AccessRule,
    AccessSettings,
    IssuerSettings,
    Judgement,
    JwtSettings,
    KeysUnavailable,
    TokenAccepted,
    TokenRefused,
)
from proxy.extensions.access.pins_section import ApprovedCalls, WithheldTools, find_withheld
from proxy.interfaces import AccessDenied, Admission, Admitted, Certificate, RouteAccess, Services, UpstreamRequest
from proxy.plugin import Log, Metrics, OutgoingClient, split_url
from proxy.routing import name_routes
from proxy.upstream import UpstreamSettings

if TYPE_CHECKING:
    from proxy.extensions.access.signed_tokens import IssuerKeys, SignedTokens

# --- admits callers to a route before their bodies are read -----------------------------------------------------------
# The rule of a route without `allow`.
_ANYTHING: Final = AccessRule("")
# The longest subject in the audit, in characters.
_LONGEST: Final = 200
_NOT_ITS: Final = "the issuer is not one of this route"


@value_class
class RouteAdmission:
    """Implements `RouteAccess`. `tokens` None: the route accepts no signed token. `allow` None: an admitted caller may
    call anything that no rule of `deny` denies. `metadata`: the address of the route's metadata (RFC 9728), '' if it
    has none. `withheld`: operations whose definitions are not approved."""

    jwt: JwtSettings | None
    allow: tuple[AccessRule, ...] | None
    tokens: SignedTokens | None
    metadata: str = ""
    passes: bool = False
    withheld: WithheldTools | None = None
    deny: tuple[AccessRule, ...] = ()

    def admit(self, headers: Headers, token: str | AccessDenied, certificate: Certificate) -> Admission:
        """Returns whether a request may go on: by a static token, else by a signed one, else by its certificate."""
        shown = certificate() if self._asks_certificate else frozenset[str]()
        if isinstance(token, str) and token:
            return self._admit(Identity(token=token, certificate=shown))
        if self.jwt is None or self.tokens is None:
            return self._admit(Identity(certificate=shown)) if isinstance(token, str) else token
        signed = read_bearer(headers)
        if isinstance(signed, NoBearer):
            return self._ask(signed.value, "" if signed is NoBearer.ABSENT else "invalid_request")
        judged = self.tokens.judge(signed)
        return self._conclude_later(judged, shown) if isinstance(judged, Awaitable) else self._conclude(judged, shown)

    @property
    def _asks_certificate(self) -> bool:
        return any(rule.certificates for rule in (*(self.allow or ()), *self.deny))

    async def _conclude_later(
        self, judging: Awaitable[Judgement], certificate: frozenset[str]
    ) -> Admitted | AccessDenied:
        return self._conclude(await judging, certificate)

    def _conclude(self, judged: Judgement, certificate: frozenset[str]) -> Admitted | AccessDenied:
        if isinstance(judged, TokenAccepted) and not (
            self.jwt and (not self.jwt.issuers or judged.issuer in self.jwt.issuers)
        ):
            judged = TokenRefused(_NOT_ITS)
        match judged:
            case TokenAccepted(issuer, claims):
                return self._admit(Identity(issuer=issuer, claims=claims, certificate=certificate))
            case TokenRefused(reason):
                message = f"The bearer token does not count here: {reason}."
                return self._ask(message, "invalid_token", reason)
            case KeysUnavailable(seconds):
                wait = (("Retry-After", str(math.ceil(seconds))),)
                return AccessDenied(codes.TOKEN_UNCHECKED, codes.TOKEN_UNCHECKED.meaning, wait)

    def _ask(self, message: str, error: str = "", reason: str = "") -> AccessDenied:
        """The challenge of RFC 6750 section 3, with the place of the metadata (RFC 9728 section 5.1)."""
        fields = [("realm", "toolcall-proxy"), ("error", error), ("error_description", reason)]
        fields.append(("scope", " ".join(next((rule.scopes for rule in self.allow or () if rule.scopes), ()))))
        fields.append(("resource_metadata", self.metadata))
        return AccessDenied(codes.TOKEN_REQUIRED, message, write_challenge(fields))

    def _admit(self, caller: Identity) -> Admitted | AccessDenied:
        found = self._judge(caller)
        if self.withheld is None or isinstance(found, AccessDenied):
            return found
        return replace(found, calls=ApprovedCalls(self.withheld, found.calls))

    def _judge(self, caller: Identity) -> Admitted | AccessDenied:
        note = AccessNote(_describe_caller(caller))
        if self.allow is None and not self.deny:
            return Admitted(caller.token, caller=caller.key, note=note)
        allow = (_ANYTHING,) if self.allow is None else self.allow
        rules = tuple(rule for rule in allow if fits_caller(rule, caller))
        denying = tuple(rule for rule in self.deny if may_fit_caller(rule, caller))
        raisable = () if denying and self.passes else tuple(rule for rule in allow if lacks_scope(rule, caller))
        if self.passes and (denying or not rules):
            why = "A rule of this route denies this caller everything."
            why = why if denying else "No rule of this route allows this caller anything."
            note.rule = denying[0].name if denying else ""
            wanted = next((rule.scopes for rule in raisable), ())
            return AccessDenied(codes.CALL_NOT_ALLOWED, why, write_scope_challenge(wanted, self.metadata), note)
        note.rule = rules[0].name if self.passes else ""
        calls = AllowedCalls(caller, rules, note, raisable, self.metadata, denying)
        return Admitted(caller.token, calls=calls, caller=caller.key, note=note)


@value_class
class AllowedCalls:
    """Implements `CallAccess`: the calls that the `rules` for a caller allow, but for those that a rule of `denying`
    may be about. `note` gets the rule that decides. `raisable`: rules for which the token lacks only a scope."""

    caller: Identity
    rules: tuple[AccessRule, ...]
    note: AccessNote
    raisable: tuple[AccessRule, ...] = ()
    metadata: str = ""
    denying: tuple[AccessRule, ...] = ()

    @property
    def scope(self) -> str:
        """The rules that decide which tools the caller sees."""
        whole = [rule for rule in self.denying if not rule.arguments]
        parts = [
            sorted({dumps([list(rule.tools), dict(rule.hints)]) for rule in rules}) for rules in (self.rules, whole)
        ]
        return b"-".join(map(b"".join, parts)).decode()

    def may_see(self, tool: str, hints: Hints | None = None) -> bool:
        """Returns whether some call of a tool may be allowed."""
        denied = self._find_denying(tool, hints) is not None
        return not denied and any(names_tool(rule, tool, hints) for rule in self.rules)

    def _find_denying(self, tool: str, hints: Hints | None) -> AccessRule | None:
        """The rule that denies every call of a tool."""
        named = (rule for rule in self.denying if may_name_tool(rule, tool, hints))
        return next((rule for rule in named if not rule.arguments), None)

    def refuse_tool(self, tool: str, hints: Hints | None = None) -> Failure | None:
        """Returns the failure if no call of a tool is allowed, whatever its arguments."""
        if (denying := self._find_denying(tool, hints)) is not None:
            return self._deny(denying, f"A rule of the operator denies this caller every call of '{tool}'.")
        if self.may_see(tool, hints):
            return None
        why = f"No rule of the operator allows this caller to call '{tool}'."
        return self._refuse(why, (rule for rule in self.raisable if names_tool(rule, tool, hints)))

    def refuse_call(self, checked: CheckedCall, hints: Hints | None = None) -> Failure | None:
        """The failure of a call that is not allowed."""
        return self._judge(checked.call.tool, hints, find_sent(checked))

    def refuse_answer(self, call: ToolCall, hints: Hints | None = None) -> Failure | None:
        """The failure where a hook may not answer in place of the tool."""
        return self._judge(call.tool, hints, find_arguments(call))

    def _judge(self, tool: str, hints: Hints | None, arguments: JsonValue) -> Failure | None:
        if (refused := self.refuse_tool(tool, hints)) is not None:
            return refused
        for rule in self.denying:
            if may_name_tool(rule, tool, hints) and not fits_arguments(rule, arguments):
                why = f"A rule of the operator denies this caller to call '{tool}' with these arguments."
                return self._deny(rule, why)
        claims = self.caller.claims
        for rule in self.rules:
            if names_tool(rule, tool, hints) and fits_arguments(rule, arguments, claims):
                self.note.rule = rule.name
                return None
        why = f"No rule of the operator allows this caller to call '{tool}' with these arguments."
        named = (rule for rule in self.raisable if names_tool(rule, tool, hints))
        return self._refuse(why, (rule for rule in named if fits_arguments(rule, arguments, claims)))

    def _deny(self, rule: AccessRule, message: str) -> Failure:
        self.note.rule = rule.name
        return Failure(codes.CALL_NOT_ALLOWED, message, retryable=False)

    def _refuse(self, message: str, raisable: Iterator[AccessRule]) -> Failure:
        wanted = next((rule.scopes for rule in raisable), ())
        headers = write_scope_challenge(wanted, self.metadata)
        return Failure(codes.CALL_NOT_ALLOWED, message, retryable=False, headers=headers)


def _describe_caller(caller: Identity) -> dict[str, str]:
    """The fields that name a caller in the audit, '' for those that it has not. The only claim in it is `sub`."""
    subject = caller.claims.get("sub")
    return {
        "token": caller.token,
        "issuer": caller.issuer,
        "subject": subject[:_LONGEST] if isinstance(subject, str) else "",
        "certificate": next(iter(sorted(caller.certificate)), "")[:_LONGEST],
    }


def write_challenge(fields: Sequence[tuple[str, str]]) -> Headers:
    """The header of a challenge (RFC 6750 section 3) with those of its fields that have a value."""
    challenge = ", ".join(f'{name}="{value.replace(chr(34), chr(39))}"' for name, value in fields if value)
    return (("WWW-Authenticate", f"Bearer {challenge}"),)


def write_scope_challenge(scopes: tuple[str, ...], metadata: str) -> Headers:
    """The challenge for a token with more scopes (MCP 2025-11-25, "Scope Challenge Handling"); none without scopes."""
    fields = (("error", "insufficient_scope"), ("scope", " ".join(scopes)), ("resource_metadata", metadata))
    return write_challenge(fields) if scopes else ()


# --- adds access checks to the services of calls ----------------------------------------------------------------------
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
        from proxy.extensions.access.signed_tokens import SignedTokens

        keys: Mapping[str, IssuerKeys] = {name: self._find_keys(issuer) for name, issuer in settings.issuers.items()}
        return SignedTokens(settings.issuers, keys, self._base.clock)

    def _find_keys(self, issuer: IssuerSettings) -> IssuerKeys:
        from proxy.extensions.access.signed_tokens import IssuerKeys

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
