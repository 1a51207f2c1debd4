"""Reads the section `access` of the config, and the keys `jwt` and `allow` of `defaults` and of a route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.config.context import Context
from proxy.config.files.secrets import reveal, reveal_all
from proxy.config.files.source import Files
from proxy.config.model import Config, UpstreamConfig
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.model.values import JsonValue
from proxy.extensions.access.core.settings import AccessRule, AccessSettings, IssuerSettings, JwtSettings

_TIMES: Final = ("leeway", "refresh", "max_age")
_LISTS: Final = ("audience", "algorithms", "required")
# A keyword -> the type of the values that it judges (JSON Schema: others pass).
_TYPES: Final = {
    "pattern": "string", "minLength": "string", "maxLength": "string", "format": "string",
    "minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
    "multipleOf": "number", "items": "array", "prefixItems": "array", "contains": "array", "minItems": "array",
    "maxItems": "array", "properties": "object", "patternProperties": "object", "additionalProperties": "object",
    "required": "object", "propertyNames": "object",
}  # fmt: skip


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
    """The rules of a route; None where an admitted caller may call anything. A schema that cannot be compiled accepts
    nothing here; `check_access` reports it."""
    if not isinstance(written, list):
        return None
    return tuple(_read_rule(f"rule-{number}", rule) for number, rule in enumerate(written, 1))


def _read_rule(name: str, written: Mapping[str, JsonValue]) -> AccessRule:
    when = written.get("when", {})
    claims = {reveal(key): _read_values(value) for key, value in when.get("claims", {}).items()}
    made: dict[str, Any] = {"tools": read_texts(written["tools"])} if "tools" in written else {}
    if "arguments" in written:
        made["arguments"] = _compile(written["arguments"])
        made["named"] = frozenset(name.casefold() for name in _list_names(reveal_all(written["arguments"])))
    if "annotations" in written:
        made["hints"] = {reveal(name): read_switch(value) for name, value in written["annotations"].items()}
    return AccessRule(
        reveal(written.get("name", name)),
        scopes=read_texts(when.get("scope", [])),
        claims=claims,
        tokens=read_texts(when.get("token", [])),
        issuers=read_texts(when.get("issuer", [])),
        certificates=read_texts(when.get("certificate", [])),
        **made,
    )


def _read_values(value: JsonValue) -> tuple[JsonValue, ...]:
    return tuple(reveal_all(value)) if isinstance(value, list) else (reveal_all(value),)


def _compile(written: JsonValue) -> Check:
    try:
        return compile_arguments(written)
    except SchemaError:
        return compile_check(False)


def compile_arguments(written: JsonValue) -> Check:
    """The check of a rule's arguments: the schema as written, which also requires each key that it names, with a value
    of the type that its keywords judge. Raises SchemaError."""
    return compile_check(close_schema({"type": "object", **reveal_all(written)}))


def close_schema(schema: JsonValue) -> JsonValue:
    """A schema that requires the keys and types that it names: JSON Schema itself accepts a missing key, and a list
    where a keyword is about texts."""
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    properties = made.get("properties")
    if isinstance(properties, dict):
        made["properties"] = {key: close_schema(value) for key, value in properties.items()}
        required = made.get("required", [])
        made["required"] = list(dict.fromkeys([*(required if isinstance(required, list) else []), *properties]))
    for key in ("items", "additionalProperties", "contains"):
        if key in made:
            made[key] = close_schema(made[key])
    for key in ("$defs", "definitions", "patternProperties"):
        if isinstance(made.get(key), dict):
            made[key] = {name: close_schema(value) for name, value in made[key].items()}
    for key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        if isinstance(made.get(key), list):
            made[key] = [close_schema(each) for each in made[key]]
    types = list(dict.fromkeys(kind for key, kind in _TYPES.items() if key in made))
    if types and "type" not in made:
        made["type"] = types
    return made


def _list_names(schema: JsonValue) -> Iterator[str]:
    """The keys that a schema and its parts name."""
    if isinstance(schema, dict):
        named = (schema.get("properties"), schema.get("required"))
        yield from (
            name for names in named if isinstance(names, dict | list) for name in names if isinstance(name, str)
        )
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for each in inner:
        yield from _list_names(each)


def list_rules(written: JsonValue) -> Iterator[tuple[int, Mapping[str, JsonValue]]]:
    """The rules of an `allow` as written, each with its index."""
    yield from (
        (at, rule) for at, rule in enumerate(written if isinstance(written, list) else ()) if isinstance(rule, dict)
    )
