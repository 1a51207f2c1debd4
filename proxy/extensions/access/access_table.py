"""The table of `check`: callers and the tools they may call, route by route."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.config.model import Config, RouteEntry
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.extensions.access.access_section import find_access
from proxy.extensions.access.core.settings import AccessRule, AccessSettings, JwtSettings

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
    """The callers that a route admits."""
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
    """The tools of a rule."""
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
