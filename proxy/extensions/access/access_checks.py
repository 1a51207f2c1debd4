"""Mistakes among the keys of access: rules that can never fit, issuers that the config does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from proxy.config.model import Config, RouteEntry
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.access.access_section import find_access, list_rules, read_access, read_texts
from proxy.extensions.access.audit import find_fault
from proxy.extensions.access.core.rule_schemas import compile_arguments, list_open_places, negate_arguments
from proxy.extensions.access.core.settings import AccessRule, AccessSettings, JwtSettings
from proxy.extensions.access.limiter import check_limits
from proxy.plugin import Context, SchemaError, join_words, reveal, reveal_all, split_url, suggest_word

# --- the table of `check` ---------------------------------------------------------------------------------------------
_HEAD = ("route", "rule", "who", "may call", "with")
Row = tuple[str, str, str, str, str]


def write_table(config: Config) -> list[str]:
    """The table in lines; empty where no route checks its callers."""
    settings = find_access(config)
    if not any({"jwt", "allow", "deny"}.intersection(route.policy.added) for route in config.routes):
        return []
    rows = [_HEAD, *(row for route in config.routes for row in _list_rows(settings, route))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return ["who may call what:", *map(str.rstrip, lines)]


def _list_rows(settings: AccessSettings, route: RouteEntry) -> Iterator[Row]:
    allow, admitted = route.policy.added.get("allow"), _describe_admitted(settings, route)
    every = "whatever it sends" if route.kind == "passthrough" else "every tool"
    for rule in route.policy.added.get("deny") or ():
        tools, arguments = f"NOT {_describe_tools(rule, every)}", _describe_arguments(rule, route, denies=True)
        yield route.name, rule.name, _describe_caller(rule) or admitted, tools, arguments
    if allow is None:
        yield route.name, "-", admitted, every, "any arguments" if route.kind != "passthrough" else "-"
        return
    for rule in allow:
        tools = _describe_tools(rule, every)
        yield route.name, rule.name, _describe_caller(rule) or admitted, tools, _describe_arguments(rule, route)


def _describe_admitted(settings: AccessSettings, route: RouteEntry) -> str:
    found = []
    if route.policy.auth is not None:
        found.append("token " + " or ".join(name for name, _ in route.policy.auth.tokens))
    if isinstance(jwt := route.policy.added.get("jwt"), JwtSettings):
        found.append("signed by " + " or ".join(jwt.issuers or settings.issuers))
    return ", ".join(found) or "anybody"


def _describe_caller(rule: AccessRule) -> str:
    """The conditions of a rule, all of which hold; '' without any."""
    found = [f"token {' or '.join(rule.tokens)}"] if rule.tokens else []
    found += [f"signed by {' or '.join(rule.issuers)}"] if rule.issuers else []
    found += [f"scope {' and '.join(rule.scopes)}"] if rule.scopes else []
    found += [
        f"claim {name}={' or '.join(value if isinstance(value, str) else dumps(value).decode() for value in values)}"
        for name, values in rule.claims.items()
    ]
    found += [f"certificate {' or '.join(rule.certificates)}"] if rule.certificates else []
    return ", ".join(found)


def _describe_tools(rule: AccessRule, every: str) -> str:
    tools = every if rule.tools == ("*",) else ", ".join(rule.tools)
    hints = " and ".join(f"{name}={str(value).lower()}" for name, value in rule.hints.items())
    return f"{tools} listed with {hints}" if hints else tools


def _describe_arguments(rule: AccessRule, route: RouteEntry, *, denies: bool = False) -> str:
    if route.kind == "passthrough":
        return "-"
    if not rule.arguments and not rule.equals:
        return "any arguments"
    own = [f"{format_pointer(place)[1:]} = its claim {claim}" for place, claim in rule.equals]
    if not rule.arguments:
        return ", ".join(own)
    schema = rule.arguments[-1].root.raw
    schema = schema["not"] if denies and isinstance(schema, dict) else schema
    names = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return ", ".join([f"arguments that fit: {', '.join(names)}" if names else "arguments that fit", *own])


# --- mistakes among the keys of access --------------------------------------------------------------------------------
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_OF_TOKENS: Final = ("scope", "claims", "issuer")
_RULES: Final = ("allow", "deny")
# The place of an argument in `equals`: a name, or a JSON Pointer (RFC 6901).
_PLACE: Final = re.compile(r"[^/].*|(/([^~/]|~[01])*)+", re.DOTALL)


def check_access(context: Context, routes: tuple[RouteEntry, ...]) -> None:
    """Reports keys of access that do not mean what they seem to."""
    check_limits(context, routes)
    settings = read_access(context)
    _check_audit(context, settings.audit)
    _check_issuers(context, settings)
    by_name = {route.name: route for route in routes}
    for at, written in ((("defaults",), context.mapping("defaults")), *_list_routes(context)):
        for key in _RULES:
            _check_schemas(context, at, key, written.get(key))
    for at, written in _list_routes(context):
        route = by_name.get(reveal(written.get("name", written.get("path", at[-1] if isinstance(at[-1], str) else ""))))
        if route is not None:
            _check_jwt(context, settings, at, written, route)
            for key in _RULES:
                _check_rules(context, at, written, route, key)


def _list_routes(context: Context) -> Iterator[tuple[Pointer, Mapping[str, JsonValue]]]:
    """The routes as written, each with its place."""
    written = context.structure.value.get("routes")
    steps = list(written) if isinstance(written, dict) else range(len(written)) if isinstance(written, list) else ()
    for step in steps:
        entry = context.structure.entry("routes", step)
        if isinstance(entry, dict):
            yield ("routes", step), entry


def _check_audit(context: Context, audit: str) -> None:
    at = ("access", "audit")
    if audit == "log" and context.mapping("telemetry", "log").get("level") in ("warning", "error"):
        context.notes.append("`access.audit: log` writes at the level `info`, which `telemetry.log.level` leaves out")
    if audit in ("", "log") or context.may_lack(Path(audit)):
        return
    if (fault := find_fault(Path(audit))) is not None:
        context.mistake(at, f"decisions cannot be written there: {fault[0]}", fault[1])


def _check_issuers(context: Context, settings: AccessSettings) -> None:
    at = ("access", "issuers")
    if settings.issuers and not (find_spec("jwt") and find_spec("cryptography")):
        hint = "install the extra: pip install '.[jwt]' in a clone"
        context.mistake(at, "signed tokens need PyJWT and cryptography, which are not installed", hint, key=True)
    taken: dict[str, str] = {}
    for name, issuer in settings.issuers.items():
        for key, url in (("issuer", issuer.issuer), ("jwks", issuer.jwks)):
            parts = split_url(url)
            if url and not parts.hostname and (key == "jwks" or not issuer.jwks):
                hint = "such as https://login.example.org: the keys are fetched there"
                context.mistake((*at, name, key), "no http or https URL", hint)
            elif url and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
                hint = "use https: anyone on the network path could insert other keys"
                context.mistake((*at, name, key), "keys are fetched without TLS", hint)
        if issuer.issuer and taken.setdefault(issuer.issuer, name) != name:
            hint = "list all audiences at one of them"
            context.mistake((*at, name, "issuer"), f"the issuer {taken[issuer.issuer]!r} has this address", hint)
        if issuer.max_age < issuer.refresh:
            hint = "let `max_age` be longer than `refresh`"
            context.mistake((*at, name), "keys would expire before they are fetched again", hint, key=True)


def _check_schemas(context: Context, at: Pointer, key: str, rules: JsonValue) -> None:
    for index, rule in list_rules(rules):
        if key == "deny" and rule.keys() <= {"name"}:
            context.notes.append(
                f"{context.where(at)}: rule {index + 1} of `deny` has no condition: it denies every call"
            )
        for name in rule.get("equals", {}):
            if not _PLACE.fullmatch(name):
                hint = "write the name of an argument, or a JSON Pointer such as /filter/tenant"
                context.mistake(
                    (*at, key, index, "equals", name), f"{name!r} is no place of an argument", hint, key=True
                )
        if "arguments" not in rule:
            continue
        place, schema = (*at, key, index, "arguments"), reveal_all(rule["arguments"])
        try:
            written = compile_arguments(negate_arguments(schema) if key == "deny" else schema)[-1]
        except SchemaError as error:
            context.mistake(place, f"no usable schema: {error}")
            continue
        for found in list_open_places(written, denies=key == "deny"):
            context.mistake((*place, *found.path), found.message, found.hint, key=True)


def _check_jwt(
    context: Context, settings: AccessSettings, at: Pointer, written: Mapping[str, JsonValue], route: RouteEntry
) -> None:
    jwt = route.policy.added.get("jwt")
    if not isinstance(jwt, JwtSettings):
        return
    place, known = (*at, "jwt") if "jwt" in written else ("defaults", "jwt"), tuple(settings.issuers)
    if not known:
        hint = "add `access: {issuers: {NAME: {issuer: URL, audience: NAME}}}`"
        context.mistake(place, f"route {route.name!r} takes signed tokens, and no issuer is known", hint, key=True)
    for index, name in enumerate(jwt.issuers if known else ()):
        if name not in known:
            hint = suggest_word(name, known) or f"known: {join_words(known)}"
            context.mistake((*place, "issuers", index), f"unknown issuer {name!r}", hint)
    if route.policy.auth is not None and route.policy.auth.forward != jwt.forward:
        hint = "say `forward` at `auth` as at `jwt`"
        context.mistake(place, "`auth` and `jwt` disagree on whether the upstream gets the token", hint, key=True)
    if route.listed is not None and not settings.url:
        hint = (
            "add `access: {url: https://HOST}`, where clients reach the proxy: they read there whom to ask for a token"
        )
        context.mistake(place, "clients of an MCP route cannot find the issuer of its tokens", hint, key=True)


def _list_rules_in_force(
    context: Context, at: Pointer, written: Mapping[str, JsonValue], key: str
) -> Iterator[tuple[Pointer, Mapping[str, JsonValue]]]:
    """The rules that apply to a route, each with its place. A route's `deny` is added to that of `defaults`."""
    outer = context.mapping("defaults").get(key)
    if key not in written or (key == "deny" and isinstance(written[key], list)):
        yield from ((("defaults", key, index), rule) for index, rule in list_rules(outer))
    yield from (((*at, key, index), rule) for index, rule in list_rules(written.get(key)))


def _check_rules(context: Context, at: Pointer, written: Mapping[str, JsonValue], route: RouteEntry, key: str) -> None:
    for spot, rule in _list_rules_in_force(context, at, written, key):
        when = rule.get("when", {})
        _check_signed(context, spot, rule, route, key)
        _check_tokens(context, (*spot, "when", "token"), when, route)
        if "certificate" in when and not context.mapping("listen", "tls").get("client_ca"):
            hint = "add `listen: {tls: {client_ca: FILE}}`"
            context.mistake((*spot, "when", "certificate"), "no client needs a certificate", hint, key=True)
        for name in ("tools", "arguments", "annotations", "equals"):
            if name in rule and route.kind == "passthrough":
                message = f"`{name}` means nothing on route {route.name!r}: no call is read there"
                hint = (
                    "give the route separate rules, without it" if key == "allow" else "write `deny: off` on the route"
                )
                hint = hint if spot[0] == "defaults" else "drop it"
                context.mistake((*spot, name), message, hint, key=True)
        if "annotations" in rule and route.kind != "passthrough":
            _check_annotations(context, (*spot, "annotations"), route, key)
        if route.kind != "passthrough" and route.listed is None:
            _note_unnamed(context, rule, route, key)


def _check_signed(context: Context, spot: Pointer, rule: Mapping[str, JsonValue], route: RouteEntry, key: str) -> None:
    """Reports what a rule says of signed tokens if its callers have none."""
    when = rule.get("when", {})
    signed: list[Pointer] = [("when", name) for name in _OF_TOKENS if name in when]
    if "equals" in rule and key == "deny":
        hint = "write a rule of `allow` with it: a call whose argument differs is then refused"
        context.mistake((*spot, "equals"), "`equals` means nothing in `deny`", hint, key=True)
    elif "equals" in rule and route.kind != "passthrough":
        signed.append(("equals",))
    if signed and "jwt" not in route.policy.added:
        holds = "never holds" if key == "allow" else "means nothing"
        message = f"`{signed[0][-1]}` {holds} on route {route.name!r}, which takes no signed tokens"
        context.mistake((*spot, *signed[0]), message, "add `jwt: {}` to the route", key=True)
    elif signed and "token" in when:
        lacks = f"has no `{signed[0][-1]}`" if signed[0] != ("equals",) else "has no claims for `equals`"
        holds = "the rule never holds" if key == "allow" else "the rule contradicts itself"
        message = f"{holds}: a token of `auth.bearer` {lacks}"
        context.mistake((*spot, *signed[0]), message, "make two rules of it", key=True)


def _check_annotations(context: Context, at: Pointer, route: RouteEntry, key: str) -> None:
    """Reports a rule about annotations that cannot be decided."""
    hold = "never hold" if key == "allow" else "are unknown"
    if route.listed is None:
        message = f"`annotations` {hold} on route {route.name!r}: no server lists its tools"
        context.mistake(at, message, "name the tools with `tools`, or give the route separate rules", key=True)
    elif not route.listed.trusts_annotations:
        message = f"`annotations` {hold} on route {route.name!r}: it does not trust those of its server"
        hint = "add `mcp: {trust_annotations: on}` to the route if what its server says of its tools is true"
        context.mistake(at, message, hint, key=True)


def _check_tokens(context: Context, at: Pointer, when: Mapping[str, JsonValue], route: RouteEntry) -> None:
    auth = route.policy.auth
    known = () if auth is None else tuple(name for name, _ in auth.tokens)
    for name in read_texts(when.get("token", [])):
        if name not in known:
            hint = suggest_word(name, known) or (f"known: {join_words(known)}" if known else "add it to `auth.bearer`")
            context.mistake(at, f"route {route.name!r} knows no token {name!r}", hint, key=True)


def _note_unnamed(context: Context, rule: Mapping[str, JsonValue], route: RouteEntry, key: str) -> None:
    """Notes names in a rule that no tool of the route has; a pattern may be for future tools."""
    for name in read_texts(rule.get("tools", [])):
        if name not in route.tools and not set("*?[").intersection(name):
            context.notes.append(
                f"route {route.name!r}: a rule of `{key}` names the tool {name!r}, which the route does not have"
            )
