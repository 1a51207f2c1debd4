"""Tools as each vendor's API takes them: name, description, and the schema in that vendor's dialect. Pure.

Sources: OpenAI "Function calling" and "Structured Outputs", Anthropic "Tool use" (`input_schema`), Gemini API
"Function calling" (`Schema`, an OpenAPI 3.0 subset: `geminischema.py`), MCP 2025-06-18 "Tools". What a dialect cannot
say is listed as a loss, never dropped in silence. A loss only loosens: the proxy still judges by the whole schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.core.bundling import bundled
from proxy.core.geminischema import gemini_schema
from proxy.core.model import JsonValue
from proxy.core.policy import ToolPolicy
from proxy.core.schema import Schemas
from proxy.core.sites import facts


@dataclass(frozen=True, slots=True)
class Exported:
    """Tool definitions of one vendor. `losses` as `tool: what is lost`; `left_out` names tools that no vendor takes."""

    tools: tuple[JsonValue, ...] = field(repr=False)
    losses: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """What one tool is made of: a name the vendor takes, a description, the adapted schema, the policy."""

    name: str
    description: str
    schema: dict[str, JsonValue]
    policy: ToolPolicy


@dataclass(frozen=True, slots=True)
class _Vendor:
    """`names` is what a tool may be called. `adapt` gives the schema in the dialect, and its losses."""

    names: re.Pattern[str]
    longest_name: int
    adapt: Callable[[dict[str, JsonValue]], tuple[dict[str, JsonValue], list[str]]]
    make: Callable[[_Part], JsonValue]


def export(policies: Mapping[str, ToolPolicy], vendor: str) -> Exported:
    """The tools in the format of a vendor, one of `VENDORS`."""
    chosen = VENDORS[vendor]
    made: list[JsonValue] = []
    losses: list[str] = []
    left_out: list[str] = []
    taken: set[str] = set()
    for tool, policy in policies.items():
        schema = _arguments(policy)
        if schema is None:
            left_out.append(tool)
            losses.append(f"{tool}: left out, because its arguments are no JSON object")
            continue
        adapted, lost = chosen.adapt(schema)
        if policy.check is None and policy.container is None:
            lost.insert(0, "its schema is not known: any object is taken")
        name = _name(tool, chosen, taken)
        if name != tool:
            lost.insert(0, f"called {name!r} here, a name this proxy does not know: rename the tool, or map it back")
        made.append(chosen.make(_Part(name, policy.description, adapted, policy)))
        losses += [f"{tool}: {loss}" for loss in lost]
    return Exported(tuple(made), tuple(losses), tuple(left_out))


def _arguments(policy: ToolPolicy) -> dict[str, JsonValue] | None:
    """The bundled schema of a tool's arguments, with the root an object; None where it cannot be one."""
    if policy.container is not None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {"type": "object"} if policy.check is None else _object(policy.check.schemas)


def _object(schemas: Schemas) -> dict[str, JsonValue] | None:
    if "object" not in facts(schemas.root).site.types:
        return None
    whole = bundled(schemas)
    return {"type": "object"} if not isinstance(whole, dict) else {**whole, "type": "object"}


def _name(tool: str, vendor: _Vendor, taken: set[str]) -> str:
    wanted = re.sub(vendor.names, "_", tool)[: vendor.longest_name]
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted[: vendor.longest_name - 4]}_{number}", number + 1
    taken.add(name)
    return name


# --- JSON Schema with a plain object at the top: OpenAI and Anthropic -------------------------------------------------
# What may not stand beside the top `type: object`; OpenAI says so in its error, Anthropic in its documentation.
_NOT_AT_TOP: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else")


def _plain_top(schema: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    """The schema with its top flattened to `properties` and `required`, as far as it has to be."""
    found = [keyword for keyword in _NOT_AT_TOP if keyword in schema]
    losses = [
        f"{keyword} cannot stand at the top: alternatives are told as optional fields"
        for keyword in found
        if keyword not in ("$ref", "allOf", "then", "else")
    ]
    made = {key: value for key, value in schema.items() if key not in _NOT_AT_TOP}
    if found:
        properties, required = _members(schema, schema.get("$defs", {}), frozenset())
        made |= {"properties": properties, **({"required": sorted(required)} if required else {})}
    made.setdefault("properties", {})
    _give_items(made)
    return made, losses


def _members(
    schema: JsonValue, definitions: Mapping[str, JsonValue], above: frozenset[str]
) -> tuple[dict[str, JsonValue], set[str]]:
    """All properties that some value of the schema can have, and those that every one has."""
    if not isinstance(schema, dict):
        return {}, set()
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", ()))
    always = list(schema.get("allOf", ()))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in above:
        above |= {name}
        always.append(definitions[name])
    for part in always:
        found, wanted = _members(part, definitions, above)
        properties, required = _joined(properties, found), required | wanted
    sides = [schema.get(keyword, ()) for keyword in ("anyOf", "oneOf")]
    if "if" in schema:
        sides.append([schema.get("then", {}), schema.get("else", {})])
    for branches in filter(None, sides):
        each = [_members(branch, definitions, above) for branch in branches]
        for found, _ in each:
            properties = _joined(properties, found)
        required |= set.intersection(*(wanted for _, wanted in each))
    return properties, required


def _joined(known: dict[str, JsonValue], more: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Properties of two parts; one that they tell differently may be as either has it."""
    joined = dict(known)
    for key, schema in more.items():
        other = joined.get(key, schema)
        joined[key] = schema if other == schema else {"anyOf": [other, schema]}
    return joined


def _give_items(schema: JsonValue) -> None:
    """OpenAI refuses an array without `items`; `{}` says the same. Changes the copy in place."""
    if isinstance(schema, list):
        for item in schema:
            _give_items(item)
    if isinstance(schema, dict):
        types = schema.get("type")
        if (types == "array" or (isinstance(types, list) and "array" in types)) and "items" not in schema:
            schema["items"] = {}
        for key, value in schema.items():
            if key not in ("enum", "const", "default", "examples"):
                _give_items(value)


# --- the vendors ------------------------------------------------------------------------------------------------------
def _described(part: _Part) -> dict[str, JsonValue]:
    return {"name": part.name, **({"description": part.description} if part.description else {})}


def _openai(part: _Part) -> JsonValue:
    return {"type": "function", "function": {**_described(part), "parameters": part.schema}}


def _anthropic(part: _Part) -> JsonValue:
    return {**_described(part), "input_schema": part.schema}


def _gemini(part: _Part) -> JsonValue:
    """A function without parameters has none: Gemini refuses an object without properties."""
    return {**_described(part), **({"parameters": part.schema} if part.schema.get("properties") else {})}


def _mcp(part: _Part) -> JsonValue:
    made = {**_described(part), "inputSchema": part.schema}
    answer = None if part.policy.answer is None else _object(part.policy.answer.check.schemas)
    if answer is not None:
        made["outputSchema"] = answer
    if part.policy.resend.idempotent:
        made["annotations"] = {"idempotentHint": True}
    return made


def _as_it_is(schema: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    return schema, []


# Characters that a name may not have, and its greatest length.
VENDORS: Final[Mapping[str, _Vendor]] = {
    "openai": _Vendor(re.compile(r"[^A-Za-z0-9_-]"), 64, _plain_top, _openai),
    "anthropic": _Vendor(re.compile(r"[^A-Za-z0-9_-]"), 128, _plain_top, _anthropic),
    "gemini": _Vendor(re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_.:-]"), 64, gemini_schema, _gemini),
    "mcp": _Vendor(re.compile(r"[^A-Za-z0-9_.-]"), 128, _as_it_is, _mcp),
}
