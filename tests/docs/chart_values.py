"""Makes helm/values.schema.json and the table of values in docs/kubernetes.md out of helm/values.yaml and its comments.

python -m tests.docs.chart_values    writes both (`make docs`)

The comment above a key describes it. A line `# @schema {...}` in it is laid over what follows from the default:
text, number, switch and list have its type, a mapping is closed and has the keys that stand there. `$free: true` leaves
a mapping open (what Kubernetes itself defines), `$config: true` takes the sections of the proxy's own config.
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
PAGE: Final = ROOT / "docs" / "kubernetes.md"
CONFIG_SCHEMA: Final = ROOT / "schemas" / "config.schema.json"

BEGIN: Final = "<!-- values: made by `make docs` -->\n"
END: Final = "<!-- end of values -->\n"
_SCHEMA_LINE: Final = "@schema "
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
        """The JSON Schema of what may stand there."""
        own = dict(self.laid_over)
        free, config = own.pop("$free", False), own.pop("$config", False)
        made: dict[str, Any] = {"description": self.text}
        if self.default is not None and "enum" not in own:
            made["type"] = _TYPES[type(self.default)]
        if config:
            sections = json.loads(CONFIG_SCHEMA.read_text(encoding="utf-8"))["properties"]
            made |= {"properties": {name: {} for name in sections}, "additionalProperties": False}
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


def schema_text() -> str:
    """The whole of values.schema.json."""
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart toolcall-proxy. Made from values.yaml: do not edit.",
        "type": "object",
        "additionalProperties": False,
        "properties": {value.name: value.schema() for value in values()},
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def table() -> str:
    """The table of values, a row for each key."""
    rows = [f"| `{value.key}` | {_shown(value)} | {value.text.replace('|', '&#124;')} |" for value in flat(values())]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _shown(value: Value) -> str:
    return "" if value.inner else f"`{json.dumps(value.default)}`"


def page() -> str:
    """docs/kubernetes.md with the table as it has to be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
