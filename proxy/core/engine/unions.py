"""Branches of `anyOf` and `oneOf` that exclude each other, proved from what each branch cannot do without.

A branch that demands an object, demands a key, and pins that key to certain texts accepts nothing else. Branches that
pin one common key to different texts exclude each other, so the text alone says which branch may accept; and branches
for different types exclude each other by type. Only what is necessary for acceptance is used, so the proof holds
whatever else the branches say.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.schema import Node

ALL_KINDS = frozenset(("object", "array", "string", "number", "boolean", "null"))


@dataclass(frozen=True, slots=True)
class Pin:
    """A branch's demand on the discriminating key: its name, which texts, by which keyword of
    which node, and whether that keyword says all there is to say about the key."""

    branch: Node
    key: str
    texts: tuple[str, ...]
    keyword: str
    node: Node
    alone: bool


@dataclass(frozen=True, slots=True)
class Discriminator:
    """The key that tells branches apart, with the demand of each."""

    key: str
    pins: tuple[Pin, ...]


def target(node: Node) -> Node:
    """The node itself, or what it stands for where it says nothing but `$ref`."""
    for _ in range(64):
        reference = node.reference
        if reference is None or not node.keywords.keys() <= _SILENT:
            return node
        node = reference
    return node


_SILENT = frozenset(
    ("$ref", "$recursiveRef", "$dynamicRef", "title", "description", "default", "examples", "$comment", "deprecated")
)


def kinds(node: Node) -> frozenset[str]:
    """The JSON types a value may have that the node accepts; more than it accepts, never less."""
    node = target(node)
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


def discriminator(branches: tuple[Node, ...]) -> Discriminator | None:
    """The key that tells all of these branches apart, or None."""
    if len(branches) < 2 or any(kinds(branch) != {"object"} for branch in branches):
        return None
    for key in target(branches[0]).required:
        pins = [_pin(branch, key) for branch in branches]
        found = [pin for pin in pins if pin is not None]
        texts = [text for pin in found for text in pin.texts]
        if len(found) == len(branches) and len(set(texts)) == len(texts):
            return Discriminator(key, tuple(found))
    return None


def _pin(branch: Node, key: str) -> Pin | None:
    node = target(branch)
    holder = node.properties.get(key)
    if key not in node.required or holder is None:
        return None
    holder = target(holder)
    choices = holder.choices
    if not choices or not all(type(item) is str for item in choices):
        return None
    keyword = "const" if "const" in holder.keywords else "enum"
    alone = holder.keywords.keys() <= _SILENT | {keyword, "type"} and holder.types in (None, frozenset({"string"}))
    return Pin(branch, key, tuple(dict.fromkeys(choices)), keyword, holder, alone)


def exclusive(branches: tuple[Node, ...]) -> bool:
    """Whether no value can satisfy two of the branches."""
    objects = tuple(branch for branch in branches if kinds(branch) == {"object"})
    told_apart = discriminator(objects) is not None
    for index, left in enumerate(branches):
        for right in branches[index + 1 :]:
            if not (kinds(left) & kinds(right)) or (told_apart and left in objects and right in objects):
                continue
            return False
    return True
