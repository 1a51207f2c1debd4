"""Removes wrappers around a call's arguments, such as `{"arguments": {...}}`, where that is the only meaning.

Only the arguments as a whole are examined. A wrapper's name is undeclared and stands alone; its content holds a
declared key and validates, if need be after repair.
"""

from __future__ import annotations

from typing import Final, Protocol

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import Work
from proxy.core.rules.branches import Fit
from proxy.core.rules.facts import applies_always, list_declared
from proxy.core.rules.proposals import Site, read_inside
from proxy.core.rules.rules import LAST_RESORTS, TEXT_RULES, WRAPPER_KEYS
from proxy.core.schema.nodes import Node

WRAPPER_RULES: Final = frozenset({"unwrap_arguments", "unwrap_any", "unwrap_scalar"})
# The most wrappers that are removed.
_MAX_WRAPPERS: Final = 3
# Characters of JSON text that one unit of work reads.
_READ: Final = 5
_OBJECT: Final = frozenset({"object"})
_TEXT_RULES: Final = frozenset(TEXT_RULES)


class Run(Protocol):
    """The part of the engine's run that this file uses."""

    check: Check
    policy: RepairPolicy
    work: Work

    def accepts(self, node: Node, value: JsonValue) -> bool:
        """The judge's verdict on a value at a node."""

    def fit(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit:
        """The value as the node accepts it."""


def unwrap_arguments(run: Run, value: dict[str, JsonValue], path: Pointer) -> Fit | None:
    """The inner object of `{"arguments": {...}}`, if it is the call's only meaning. `path` holds the wrappers that were
    removed before."""
    known = list_declared(applies_always(run.check.root))
    others = [key for key in value if key not in run.policy.drop_keys]
    if len(path) >= _MAX_WRAPPERS or len(others) != 1 or (len(value) == 1 and others[0] in known):
        return None
    key, rules = others[0], run.policy.rules
    inner, alone = value[key], len(value) == 1 and key in WRAPPER_KEYS
    rule = "unwrap_arguments" if alone and "unwrap_arguments" in rules else "unwrap_any"
    path = (*path, key)
    taken: tuple[Repair, ...] = (Repair(rule, path),)
    if alone and isinstance(inner, str) and "parse_json_string" in rules:
        run.work.spend(len(inner) // _READ)
        read = read_inside(inner, Site(_OBJECT, False, None, classes=rules & _TEXT_RULES))
        if read is not None:
            inner = read[0]
            taken += tuple(Repair(name, path) for name in ("parse_json_string", *read[1]))
    if not isinstance(inner, dict):
        return _given_to_the_one_key(run, inner, known, path) if alone else None
    if rule not in rules:
        return None
    fitted = run.fit(run.check.root, inner, (), rules - LAST_RESORTS) if known & inner.keys() else None
    if fitted is None or not fitted.accepted:
        fitted = unwrap_arguments(run, inner, path)
    return None if fitted is None else Fit(fitted.value, (*taken, *fitted.repairs), True)


def _given_to_the_one_key(run: Run, inner: JsonValue, known: set[str], path: Pointer) -> Fit | None:
    """One value under a wrapper's name, taken as the value of the only key that the tool declares."""
    if "unwrap_scalar" not in run.policy.rules or len(known) != 1 or inner is None:
        return None
    if isinstance(inner, str) and inner.lstrip()[:1] in ("{", "["):
        return None
    whole: dict[str, JsonValue] = {min(known): inner}
    accepted = run.accepts(run.check.root, whole)
    return Fit(whole, (Repair("unwrap_scalar", path),), True) if accepted else None
