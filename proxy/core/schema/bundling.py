"""Writes a schema as one self-contained document in the spelling of draft 2020-12, for readers that cannot follow our
references, such as a model's vendor. The document judges the same values; the tests compare the two.

Every reference leads to `#/$defs/...` of the same document. Names of schemas, comments, and the keywords that only
this proxy reads (`x-...`) are left out. No other file translates the spellings of older drafts into the newest one.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import REFERENCES
from proxy.core.schema.nodes import Draft, Node, Schemas, list_subschemas

# Keywords that name a schema or say how to read it; the copy has one dialect and names of its own.
_LEFT_OUT: Final = frozenset(
    ["$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs",
     "definitions", *REFERENCES]
)  # fmt: skip
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def bundle_schema(schemas: Schemas) -> JsonValue:
    """The schema as a single document. Recursion stays: a definition may lead to itself. Raises SchemaError where a
    reference leads nowhere (a compiled check has no such reference)."""
    bundle = _Bundle()
    whole = bundle.copy(schemas.root)
    definitions: dict[str, JsonValue] = {}
    while len(definitions) < len(bundle.names):  # a definition may name further ones
        for node, name in list(bundle.names.values()):
            if name not in definitions:
                definitions[name] = bundle.copy(node)
    return {**whole, "$defs": definitions} if definitions and isinstance(whole, dict) else whole


class _Bundle:
    """Copies nodes; `names` collects the targets of references, by identity."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[Node, str]] = {}

    def copy(self, node: Node) -> JsonValue:
        """A copy of one schema, with references within the bundle."""
        if not isinstance(node.raw, dict):
            return node.raw
        made: dict[str, JsonValue] = {}
        for keyword, value in node.keywords.items():
            old_name = keyword == "id" and node.draft is Draft.D4
            if keyword not in _LEFT_OUT and not keyword.startswith("x-") and not old_name:
                made[keyword] = dict(value) if isinstance(value, dict) else list(value) if _is_list(value) else value
        for step, _ in list_subschemas(dict(node.keywords)):
            if step[0] in made:
                self._put(made, step, self.copy(node.descend(step)))
        if node.reference is not None:
            made["$ref"] = f"#/$defs/{self._name(node.reference)}"
        return _respelt(made, node)

    def _put(self, made: dict[str, JsonValue], step: tuple[str | int, ...], child: JsonValue) -> None:
        if len(step) == 1:
            made[str(step[0])] = child
        else:
            made[str(step[0])][step[1]] = child

    def _name(self, node: Node) -> str:
        if id(node) not in self.names:
            wanted = _NOT_IN_NAMES.sub("_", str(node.path[-1])) if node.path else "root"
            taken = {name for _, name in self.names.values()}
            name = next(name for name in _split_number(wanted or "_") if name not in taken)
            self.names[id(node)] = (node, name)
        return self.names[id(node)][1]


def _is_list(value: JsonValue) -> bool:
    return isinstance(value, list)


def _split_number(name: str) -> list[str]:
    return [name, *(f"{name}_{number}" for number in range(2, 10_000))]


def _respelt(made: dict[str, JsonValue], node: Node) -> dict[str, JsonValue]:
    """Respells what earlier drafts spell differently (JSON Schema 2020-12, "Changes")."""
    if node.draft < Draft.D2020 and _is_list(made.get("items")):
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made["additionalItems"]
    made.pop("additionalItems", None)
    for keyword, value in made.pop("dependencies", {}).items():
        place = "dependentRequired" if _is_list(value) else "dependentSchemas"
        made.setdefault(place, {})[keyword] = value
    for switch, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(switch), bool) and made.pop(switch) and limit in made:
            made[switch] = made.pop(limit)
    return made
