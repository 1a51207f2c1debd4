"""Unions: which branch of `anyOf` or `oneOf` a value means (repair.md, "Unions").

A branch that takes the value as it is wins, so nothing here is asked then. Otherwise a discriminating property (a
`const` or `enum` every branch declares) chooses first; of the branches left, exactly one result may remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from proxy.core.jsontext import equal
from proxy.core.members import required
from proxy.core.model import JsonValue, Repair
from proxy.core.noun import noun
from proxy.core.schema import Node
from proxy.core.sites import applies_always, facts


@noun
class Fit:
    """What became of a value at one node: changed or not, the repairs made, whether the node accepts it."""

    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...]
    accepted: bool

    @property
    def rules(self) -> str:
        """The names of the rules used, in order."""
        return "+".join(made.rule for made in self.repairs)


def distinct(fits: Sequence[Fit]) -> list[Fit]:
    """One of each different value, in the order given."""
    kept: list[Fit] = []
    for fitted in fits:
        if not any(equal(fitted.value, other.value) for other in kept):
            kept.append(fitted)
    return kept


def discriminated(branches: tuple[Node, ...], value: JsonValue) -> tuple[Node, ...]:
    """The branches a const or enum property of the value names exactly, or all where none is named."""
    for key, listed in discriminators(branches, value):
        named = tuple(branch for branch, choices in zip(branches, listed, strict=True) if value[key] in choices)
        if named:
            return named
    return branches


def discriminators(branches: tuple[Node, ...], value: JsonValue) -> list[tuple[str, list[tuple[JsonValue, ...]]]]:
    """The text properties of a value for which every branch lists the values it takes, with those lists."""
    if not isinstance(value, dict) or len(branches) < 2:
        return []
    first = {key for part in applies_always(branches[0]) for key in part.properties}
    found = []
    for key, item in value.items():
        if not isinstance(item, str) or key not in first:
            continue
        listed = [choices for branch in branches if (choices := _choices_of(branch, key))]
        if len(listed) == len(branches):
            found.append((key, listed))
    return found


def shared_choices(branches: tuple[Node, ...]) -> list[tuple[str, tuple[JsonValue, ...]]]:
    """The properties every branch requires and lists texts for, with all those texts: what tells branches apart."""
    if len(branches) < 2:
        return []
    found = []
    for key in {key: None for part in applies_always(branches[0]) for key in part.required}:
        listed = [
            choices
            for branch in branches
            if key in required(applies_always(branch)) and (choices := _choices_of(branch, key))
        ]
        texts = [choice for choices in listed for choice in choices]
        if len(listed) == len(branches) and all(isinstance(choice, str) for choice in texts):
            found.append((key, tuple(dict.fromkeys(texts))))
    return found


def _choices_of(branch: Node, key: str) -> tuple[JsonValue, ...] | None:
    """The values that a branch lists for a property, by `const` or `enum`; None where it lists none."""
    for part in applies_always(branch):
        if key in part.properties:
            return facts(part.properties[key]).site.choices
    return None
