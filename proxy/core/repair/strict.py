"""Renames keys in another spelling where the operator refuses unknown keys (`unknown_keys: refuse`).

Such a tool refuses undeclared keys that its schema accepts. The rule `key_case` may then rename a key to the one
declared, absent key with the same folded name, as it does for a key that the schema refuses (`rules/keys.py`).
"""

from __future__ import annotations

from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.explain.misplaced import find_child, list_alternatives, list_declared_keys
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import RESPELLING, TooMuchWorkError, Work, borrow_work
from proxy.core.rules.facts import applies_always, read_facts
from proxy.core.rules.keys import find_targets, rename_keys
from proxy.core.rules.members import list_declared
from proxy.core.schema.nodes import Node

_RULE: Final = "key_case"
_MAX_PATH: Final = 64


def respell_keys(check: Check, value: JsonValue, policy: RepairPolicy) -> tuple[JsonValue, tuple[Repair, ...]]:
    """The value with undeclared keys renamed to the declared keys they mean, and the repairs made; the same object
    where nothing changes. The result still has to be judged. Never raises."""
    if _RULE not in policy.rules:
        return value, ()
    repairs: list[Repair] = []
    try:
        with borrow_work(RESPELLING) as work:
            made = _respelt(check, (check.root,), value, (), repairs, work)
    except (TooMuchWorkError, RecursionError):
        return value, ()
    return (made, tuple(repairs)) if repairs else (value, ())


def _respelt(
    check: Check, nodes: tuple[Node, ...], value: JsonValue, path: Pointer, repairs: list[Repair], work: Work
) -> JsonValue:
    if not isinstance(value, dict | list) or len(path) >= _MAX_PATH or any(map(_switched_off, nodes)):
        return value
    parts = list_alternatives(check, nodes, value, work)
    if isinstance(value, dict):
        value, made = rename_keys(value, path, _names(parts, value))
        repairs.extend(made)
    items = value.items() if isinstance(value, dict) else enumerate(value)
    members: dict[str | int, JsonValue] = {}
    for step, item in items:
        work.spend(1 + len(parts))
        below = {id(child): child for part in parts if (child := find_child(part, step)) is not None}
        members[step] = _respelt(check, tuple(below.values()), item, (*path, step), repairs, work) if below else item
    return members if isinstance(value, dict) else list(members.values())


def _names(parts: list[Node], value: dict[str, JsonValue]) -> dict[str, tuple[str, str | None]]:
    """New names of an object's undeclared keys. A key that some branch of a union declares gets none."""
    known = list_declared_keys(parts)
    elsewhere = {
        key
        for part in parts
        for branch in (*part.any_of, *part.one_of)
        for key in list_declared(applies_always(branch))
    }
    named = known | elsewhere
    meant = find_targets([key for key in value if key not in named], known) if known else {}
    return {key: (_RULE, name) for key, name in meant.items() if name not in value}


def _switched_off(node: Node) -> bool:
    allowed = read_facts(node).allowed
    return allowed is not None and _RULE not in allowed
