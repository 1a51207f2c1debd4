"""Tools as each vendor's API takes them: name, description, and the schema in that vendor's dialect. Pure.

Sources: OpenAI "Function calling" and "Structured Outputs", Anthropic "Tool use" (`input_schema`), Gemini API "Function
calling" (`Schema`, an OpenAPI 3.0 subset: `vendorschema.py`), MCP 2025-06-18 "Tools". Parts that a dialect cannot
express are listed as losses. A loss only loosens: the proxy still judges by the whole schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Final

from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.rules.facts import read_facts
from proxy.core.schema.dialects import bundle_schema
from proxy.core.schema.nodes import Schemas
from proxy.extensions.guidance.core.vendorschema import make_gemini_schema, make_strict_schema


@value_class
class Exported:
    """Tool definitions for one vendor. `losses` read `tool: the loss`; `left_out` names tools that cannot be exported,
    `names` the exported ones."""

    tools: tuple[JsonValue, ...] = field(repr=False)
    losses: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@value_class
class _Part:
    """The parts of one exported tool: a name the vendor accepts, a description, the adapted schema, the policy."""

    name: str
    description: str
    schema: dict[str, JsonValue]
    policy: ToolPolicy
    strict: bool = False


class Strictness(Enum):
    """When a vendor enforces the schema of a final output; the value: bounds that it does not know."""

    NONE = None
    SWITCHED = frozenset[str]()
    ALWAYS = frozenset(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"]
    )


@value_class
class _Vendor:
    """One vendor. `names` describes the allowed tool names. `adapt` gives the schema in the dialect, and its losses;
    `make_output` makes the form of its structured outputs, None if it has none."""

    names: re.Pattern[str]
    longest_name: int
    adapt: Callable[[dict[str, JsonValue]], tuple[dict[str, JsonValue], list[str]]]
    make: Callable[[_Part], JsonValue]
    make_output: Callable[[_Part], JsonValue] | None = None
    strictness: Strictness = Strictness.NONE


def export(policies: Mapping[str, ToolPolicy], vendor: str) -> Exported:
    """The tools in the format of a vendor in `VENDORS`."""
    chosen = VENDORS[vendor]
    made: list[JsonValue] = []
    losses: list[str] = []
    left_out: list[str] = []
    names: list[str] = []
    taken: set[str] = set()
    for tool, policy in policies.items():
        if policy.finalising and chosen.make_output is not None:
            losses.append(f"{tool}: is a final output and no tool: `--final` gives it for structured outputs")
            continue
        schema = _arguments(policy)
        if schema is None:
            left_out.append(tool)
            losses.append(f"{tool}: left out, because its arguments are not a JSON object")
            continue
        adapted, lost = chosen.adapt(schema)
        if policy.check is None and policy.container is None:
            lost.insert(0, "its schema is not known: any object is taken")
        name = _name(tool, chosen, taken)
        if name != tool:
            lost.insert(0, f"called {name!r} here, a name this proxy does not know: rename the tool, or map it back")
        names.append(tool)
        made.append(chosen.make(_Part(name, policy.description, adapted, policy)))
        losses += [f"{tool}: {loss}" for loss in lost]
    return Exported(tuple(made), tuple(losses), tuple(left_out), tuple(names))


def export_outputs(policies: Mapping[str, ToolPolicy], vendor: str) -> Exported:
    """Returns the final outputs among the tools, in the form of the vendor's structured outputs."""
    chosen, made = VENDORS[vendor], list[JsonValue]()
    losses: list[str] = []
    left_out: list[str] = []
    names: list[str] = []
    for tool, policy in policies.items():
        if not policy.finalising:
            continue
        part, lost = _output_part(tool, policy, chosen)
        losses += [f"{tool}: {loss}" for loss in lost]
        if part is None or chosen.make_output is None:
            left_out.append(tool)
        else:
            names.append(tool)
            made.append(chosen.make_output(part))
    return Exported(tuple(made), tuple(losses), tuple(left_out), tuple(names))


def _output_part(tool: str, policy: ToolPolicy, vendor: _Vendor) -> tuple[_Part | None, list[str]]:
    schema = _arguments(policy)
    if vendor.make_output is None or schema is None or policy.check is None:
        why = "this vendor has no structured outputs" if vendor.make_output is None else "it is not a JSON object"
        return None, [f"left out, because {why}"]
    if vendor.strictness is Strictness.NONE:
        adapted, lost = vendor.adapt(schema)
        return _Part(_name(tool, vendor, set()), policy.description, adapted, policy), lost
    strict, lost = make_strict_schema(schema, vendor.strictness.value)
    if strict is None and vendor.strictness is Strictness.ALWAYS:
        return None, [f"left out: {loss}" for loss in lost]
    adapted, more = (strict, []) if strict is not None else vendor.adapt(schema)
    return _Part(_name(tool, vendor, set()), policy.description, adapted, policy, strict is not None), lost + more


def _arguments(policy: ToolPolicy) -> dict[str, JsonValue] | None:
    """Returns the bundled schema of a tool's arguments, with an object as root; None if it cannot have one."""
    if policy.container is not None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {"type": "object"} if policy.check is None else _object(policy.check.schemas)


def _object(schemas: Schemas) -> dict[str, JsonValue] | None:
    if "object" not in read_facts(schemas.root).site.types:
        return None
    whole = bundle_schema(schemas)
    return {"type": "object"} if not isinstance(whole, dict) else {**whole, "type": "object"}


def _name(tool: str, vendor: _Vendor, taken: set[str]) -> str:
    base = re.sub(vendor.names, "_", tool)[: vendor.longest_name]
    name, number = base, 2
    while name in taken:
        name, number = f"{base[: vendor.longest_name - 4]}_{number}", number + 1
    taken.add(name)
    return name


# --- JSON Schema with a plain object at the top: OpenAI and Anthropic -------------------------------------------------
# Keywords not allowed beside the top `type: object`, by OpenAI's error message and Anthropic's documentation.
_NOT_AT_TOP: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else")


def _plain_top(schema: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    """The schema with its top level reduced to `properties` and `required` as far as necessary, and the losses."""
    found = [keyword for keyword in _NOT_AT_TOP if keyword in schema]
    losses = [
        f"{keyword} is not allowed at the top: alternatives become optional fields"
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
    """All properties that some value of the schema can have, and those that every value has."""
    if not isinstance(schema, dict):
        return {}, set()
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", ()))
    always = list(schema.get("allOf", ()))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in above:
        above |= {name}
        always.append(definitions[name])
    for part in always:
        found, needed = _members(part, definitions, above)
        properties, required = _join_properties(properties, found), required | needed
    sides = [schema.get(keyword, ()) for keyword in ("anyOf", "oneOf")]
    if "if" in schema:
        sides.append([schema.get("then", {}), schema.get("else", {})])
    for branches in filter(None, sides):
        each = [_members(branch, definitions, above) for branch in branches]
        for found, _ in each:
            properties = _join_properties(properties, found)
        required |= set.intersection(*(needed for _, needed in each))
    return properties, required


def _join_properties(known: dict[str, JsonValue], more: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The properties of two parts; one that they declare differently may match either declaration."""
    joined = dict(known)
    for key, schema in more.items():
        other = joined.get(key, schema)
        joined[key] = schema if other == schema else {"anyOf": [other, schema]}
    return joined


def _give_items(schema: JsonValue) -> None:
    """Adds `items: {}` to arrays without `items`, which OpenAI refuses. The meaning stays. Changes the copy."""
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
def _describe_part(part: _Part) -> dict[str, JsonValue]:
    return {"name": part.name, **({"description": part.description} if part.description else {})}


def _openai(part: _Part) -> JsonValue:
    return {"type": "function", "function": {**_describe_part(part), "parameters": part.schema}}


def _anthropic(part: _Part) -> JsonValue:
    return {**_describe_part(part), "input_schema": part.schema}


def _gemini(part: _Part) -> JsonValue:
    """A function without parameters gets no `parameters`: Gemini refuses an object without properties."""
    return {**_describe_part(part), **({"parameters": part.schema} if part.schema.get("properties") else {})}


def _mcp(part: _Part) -> JsonValue:
    made = {**_describe_part(part), "inputSchema": part.schema}
    answer = None if part.policy.answer is None else _object(part.policy.answer.check.schemas)
    if answer is not None:
        made["outputSchema"] = answer
    if part.policy.resend.idempotent:
        made["annotations"] = {"idempotentHint": True}
    return made


def _openai_output(part: _Part) -> JsonValue:
    form = {**_describe_part(part), "schema": part.schema, "strict": part.strict}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _anthropic_output(part: _Part) -> JsonValue:
    """Anthropic always holds its model to the schema, so it has no switch for it."""
    return {"output_format": {"type": "json_schema", "schema": part.schema}}


def _gemini_output(part: _Part) -> JsonValue:
    return {"response_mime_type": "application/json", "response_schema": part.schema}


def _as_it_is(schema: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
    return schema, []


# Characters that a name must not have, and its greatest length.
VENDORS: Final[Mapping[str, _Vendor]] = {
    "openai": _Vendor(re.compile(r"[^A-Za-z0-9_-]"), 64, _plain_top, _openai, _openai_output, Strictness.SWITCHED),
    "anthropic": _Vendor(
        re.compile(r"[^A-Za-z0-9_-]"), 128, _plain_top, _anthropic, _anthropic_output, Strictness.ALWAYS
    ),
    "gemini": _Vendor(re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_.:-]"), 64, make_gemini_schema, _gemini, _gemini_output),
    "mcp": _Vendor(re.compile(r"[^A-Za-z0-9_.-]"), 128, _as_it_is, _mcp),
}
