"""Branches of `anyOf` and `oneOf` that exclude each other, proved from the requirements of each branch.

A branch that requires an object with a key, and pins that key to certain texts, accepts nothing else. Branches that
pin one common key to different texts exclude each other, so the text alone says which branch may accept; and branches
for different types exclude each other by type. The proof uses only what is necessary for acceptance, so it holds
whatever else the branches say.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.schema.nodes import Node

ALL_KINDS = frozenset(("object", "array", "string", "number", "boolean", "null"))


@dataclass(frozen=True, slots=True)
class Pin:
    """A branch's requirement on the discriminating key: its name, its texts, the keyword and the node that require
    them, and whether that keyword alone decides about the key."""

    branch: Node
    key: str
    texts: tuple[str, ...]
    keyword: str
    node: Node
    alone: bool


@dataclass(frozen=True, slots=True)
class Discriminator:
    """The key that distinguishes branches, with the requirement of each branch."""

    key: str
    pins: tuple[Pin, ...]


def follow_reference(node: Node) -> Node:
    """The node itself, or its target where the node holds nothing but `$ref`."""
    for _ in range(64):
        if len(node.references) != 1 or not node.keywords.keys() <= _SILENT:
            return node
        node = node.references[0]
    return node


_SILENT = frozenset(
    ("$ref", "$recursiveRef", "$dynamicRef", "title", "description", "default", "examples", "$comment", "deprecated")
)


def list_types(node: Node) -> frozenset[str]:
    """The JSON types of values that the node may accept; possibly too many, never too few."""
    node = follow_reference(node)
    if node.never:
        return frozenset()
    if node.choices is not None:
        return frozenset(map(_kind, node.choices))
    if node.types is not None:
        return frozenset("number" if name == "integer" else name for name in node.types)
    return ALL_KINDS


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", dict: "object", list: "array"}
    return names.get(type(value), "number")


def find_discriminator(branches: tuple[Node, ...]) -> Discriminator | None:
    """The key that distinguishes all of these branches, or None."""
    if len(branches) < 2 or any(list_types(branch) != {"object"} for branch in branches):
        return None
    for key in follow_reference(branches[0]).required:
        pins = [_pin(branch, key) for branch in branches]
        found = [pin for pin in pins if pin is not None]
        texts = [text for pin in found for text in pin.texts]
        if len(found) == len(branches) and len(set(texts)) == len(texts):
            return Discriminator(key, tuple(found))
    return None


def _pin(branch: Node, key: str) -> Pin | None:
    node = follow_reference(branch)
    holder = node.properties.get(key)
    if key not in node.required or holder is None:
        return None
    holder = follow_reference(holder)
    choices = holder.choices
    if not choices or not all(type(item) is str for item in choices):
        return None
    keyword = "const" if "const" in holder.keywords else "enum"
    alone = holder.keywords.keys() <= _SILENT | {keyword, "type"} and holder.types in (None, frozenset({"string"}))
    return Pin(branch, key, tuple(dict.fromkeys(choices)), keyword, holder, alone)


def are_exclusive(branches: tuple[Node, ...]) -> bool:
    """Whether no value can satisfy two of the branches."""
    objects = tuple(branch for branch in branches if list_types(branch) == {"object"})
    told_apart = find_discriminator(objects) is not None
    for index, left in enumerate(branches):
        for right in branches[index + 1 :]:
            if not (list_types(left) & list_types(right)) or (told_apart and left in objects and right in objects):
                continue
            return False
    return True
