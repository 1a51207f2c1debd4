"""Unions: which branch of `anyOf` or `oneOf` a value means (docs/repair.md, "Unions").

A value that some branch accepts is not repaired, so this file only sees other values. A discriminating property (a
`const` or `enum` that every branch declares) chooses first; of the branches left, exactly one result may remain.
"""

from __future__ import annotations

from dataclasses import field

from proxy.core.model.values import JsonValue, Pointer, Repair, value_class
from proxy.core.rules.facts import list_required, read_facts
from proxy.core.schema.nodes import Node


@value_class
class Ambiguity:
    """A place with two or more possible repairs: each with its rule's name and the value it would give."""

    path: Pointer
    options: tuple[tuple[str, JsonValue], ...] = field(repr=False)


@value_class
class Fit:
    """The result of fitting a value to a node: the value, the repairs made, whether the node accepts it."""

    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...]
    accepted: bool


def select_branches(branches: tuple[Node, ...], value: JsonValue) -> tuple[Node, ...]:
    """The branches whose const or enum property has exactly the value sent, or all branches if none has."""
    for key, listed in list_discriminators(branches, value):
        named = tuple(branch for branch, choices in zip(branches, listed, strict=True) if value[key] in choices)
        if named:
            return named
    return branches


def list_discriminators(branches: tuple[Node, ...], value: JsonValue) -> list[tuple[str, list[tuple[JsonValue, ...]]]]:
    """The text properties of a value for which every branch lists the allowed values, with those lists."""
    if not isinstance(value, dict) or len(branches) < 2:
        return []
    first = {key for part in branches[0].always for key in part.properties}
    found = []
    for key, item in value.items():
        if not isinstance(item, str) or key not in first:
            continue
        listed = [choices for branch in branches if (choices := _choices_of(branch, key))]
        if len(listed) == len(branches):
            found.append((key, listed))
    return found


def list_shared_choices(branches: tuple[Node, ...]) -> list[tuple[str, tuple[JsonValue, ...]]]:
    """The properties that distinguish branches, with their texts: every branch requires them and lists such texts."""
    if len(branches) < 2:
        return []
    found = []
    for key in {key: None for part in branches[0].always for key in part.required}:
        listed = [
            choices
            for branch in branches
            if key in list_required(branch.always) and (choices := _choices_of(branch, key))
        ]
        texts = [choice for choices in listed for choice in choices]
        if len(listed) == len(branches) and all(isinstance(choice, str) for choice in texts):
            found.append((key, tuple(dict.fromkeys(texts))))
    return found


def _choices_of(branch: Node, key: str) -> tuple[JsonValue, ...] | None:
    """The values that a branch lists for a property, by `const` or `enum`; None where it lists none."""
    for part in branch.always:
        if key in part.properties:
            return read_facts(part.properties[key]).site.choices
    return None
