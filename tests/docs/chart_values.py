"""Makes helm/values.schema.json out of helm/values.yaml and its comments.

python -m tests.docs.chart_values    writes it (`make docs`)

The comment above a key describes it. A line `# @schema {...}` in it is laid over what follows from the default: text,
number, switch and list have its type, a mapping is closed and has the default's keys. `$free: true` leaves a mapping
open (Kubernetes itself defines it). `$config: true` takes the proxy's own config: its published schema is embedded
whole, so that `helm install` rejects a mistake in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
VALUES: Final = ROOT / "helm" / "values.yaml"
SCHEMA: Final = ROOT / "helm" / "values.schema.json"
CONFIG_SCHEMA: Final = ROOT / "schemas" / "config.schema.json"

_SCHEMA_LINE: Final = "@schema "
_REFERENCE: Final = "[$][{]"
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}


@dataclass(frozen=True)
class Value:
    """One key of values.yaml: its dotted name, default, description and what its `@schema` line says."""

    key: str
    default: Any
    text: str
    laid_over: dict[str, Any]
    inner: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rsplit(".", 1)[-1]

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the values that it allows."""
        own = dict(self.laid_over)
        free, config = own.pop("$free", False), own.pop("$config", False)
        made: dict[str, Any] = {"description": self.text}
        if self.default is not None and "enum" not in own:
            made["type"] = _TYPES[type(self.default)]
        if config:
            made |= {"properties": config_schema()["properties"], "additionalProperties": False}
        elif self.inner and not free:
            made |= {"properties": {value.name: value.schema() for value in self.inner}, "additionalProperties": False}
        return made | own


def values() -> tuple[Value, ...]:
    """The keys of values.yaml, nested."""
    text = VALUES.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return tuple(_read(node, text.splitlines(), ""))


def _read(node: Any, lines: list[str], prefix: str) -> Iterator[Value]:
    for key, value in node.value:
        comment = list(_comment(lines, key.start_mark.line))
        own = [line.removeprefix(_SCHEMA_LINE) for line in comment if line.startswith(_SCHEMA_LINE)]
        laid_over = yaml.safe_load(own[0]) if own else {}
        nested = isinstance(value, yaml.MappingNode) and not laid_over.get("$free")
        yield Value(
            prefix + key.value,
            yaml.safe_load(yaml.serialize(value)),
            " ".join(line for line in comment if not line.startswith(_SCHEMA_LINE)),
            laid_over,
            tuple(_read(value, lines, f"{prefix}{key.value}.")) if nested else (),
        )


def _comment(lines: list[str], line: int) -> Iterator[str]:
    """The comment right above a line, from its first line on."""
    first = line
    while lines[first - 1].lstrip().startswith("#"):
        first -= 1
    for text in lines[first:line]:
        yield text.lstrip().removeprefix("#").strip()


def flat(some: tuple[Value, ...]) -> Iterator[Value]:
    """Every key, the outer before the inner."""
    for value in some:
        yield value
        yield from flat(value.inner)


def config_schema() -> dict[str, Any]:
    """schemas/config.schema.json in the form that validates a values file. It has a draft that every Helm knows, and
    allows values that the chart itself corrects (`off` read as false) or cannot know yet (references)."""
    written = json.loads(CONFIG_SCHEMA.read_text(encoding="utf-8"))
    return {key: _part_as_value(key, written[key]) for key in ("properties", "$defs")}


def _as_value(schema: Any) -> Any:
    """One schema, and all inside it."""
    if isinstance(schema, list):
        return [_as_value(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _part_as_value(key, value) for key, value in schema.items() if not key.startswith("x-")}
    if "$ref" in made and "required" in made:  # draft 7 reads nothing beside `$ref`
        made["allOf"] = [{"$ref": made.pop("$ref")}, {"required": made.pop("required")}]
    if isinstance(made.get("enum"), list) and "off" in made["enum"] and False not in made["enum"]:
        made["enum"] = [*made["enum"], False]
    return _or_reference(made)


def _part_as_value(keyword: str, value: Any) -> Any:
    """Returns the value of one keyword of a schema."""
    if keyword in ("default", "enum", "const"):
        return value
    if keyword in ("properties", "patternProperties", "$defs"):  # their keys are names
        return {name: _as_value(inner) for name, inner in value.items()}
    return _as_value(value)


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value that may also be text with a reference, `${NAME}`, whose value is not known yet."""
    if isinstance(schema.get("pattern"), str):
        return schema | {"pattern": f"{schema['pattern']}|{_REFERENCE}"}
    short = schema.get("type") in ("integer", "number", "boolean") or schema.get("minLength", 0) > 1
    if not short and not isinstance(schema.get("enum"), list):
        return schema
    about = {key: schema.pop(key) for key in ("title", "description", "default") if key in schema}
    return about | {"anyOf": [schema, {"type": "string", "pattern": _REFERENCE}]}


def schema_text() -> str:
    """The whole of values.schema.json."""
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart toolcall-proxy. Made from values.yaml: do not edit.",
        "type": "object",
        "additionalProperties": False,
        "properties": {value.name: value.schema() for value in values()},
        "$defs": config_schema()["$defs"],
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
