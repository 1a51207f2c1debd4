"""Keys under another spelling where the operator refuses unknown keys (`unknown_keys: refuse`).

There an undeclared key is refused although the schema lets it pass, so the rule `key_case` may give it the name of the
one declared, absent key it folds to, as it does where the schema itself refuses the key (`keys.py`).
"""

from __future__ import annotations

from typing import Final

from proxy.core.keys import rename, targets
from proxy.core.members import declared
from proxy.core.misplaced import alternatives, child_at, declared_keys
from proxy.core.model import JsonValue, Pointer, Repair
from proxy.core.policy import RepairPolicy
from proxy.core.schema import Node
from proxy.core.sites import applies_always, facts
from proxy.core.validation import Check
from proxy.core.work import TooMuchWorkError, Work

_RULE: Final = "key_case"
_MAX_WORK: Final = 500_000
_MAX_PATH: Final = 64


def respell_keys(check: Check, value: JsonValue, policy: RepairPolicy) -> tuple[JsonValue, tuple[Repair, ...]]:
    """The value with undeclared keys under the declared names they mean, and the repairs made; the same object where
    there is nothing to do. The result still has to be judged. Never raises."""
    if _RULE not in policy.rules:
        return value, ()
    repairs: list[Repair] = []
    try:
        made = _respelt(check, (check.root,), value, (), repairs, Work(_MAX_WORK))
    except (TooMuchWorkError, RecursionError):
        return value, ()
    return (made, tuple(repairs)) if repairs else (value, ())


def _respelt(
    check: Check, nodes: tuple[Node, ...], value: JsonValue, path: Pointer, repairs: list[Repair], work: Work
) -> JsonValue:
    if not isinstance(value, dict | list) or len(path) >= _MAX_PATH or any(map(_switched_off, nodes)):
        return value
    parts = alternatives(check, nodes, value, work)
    if isinstance(value, dict):
        value, made = rename(value, path, _names(parts, value))
        repairs.extend(made)
    items = value.items() if isinstance(value, dict) else enumerate(value)
    members: dict[str | int, JsonValue] = {}
    for step, item in items:
        work.spend(1 + len(parts))
        below = {id(child): child for part in parts if (child := child_at(part, step)) is not None}
        members[step] = _respelt(check, tuple(below.values()), item, (*path, step), repairs, work) if below else item
    return members if isinstance(value, dict) else list(members.values())


def _names(parts: list[Node], value: dict[str, JsonValue]) -> dict[str, str | None]:
    """New names of an object's undeclared keys. A key that some branch of a union declares is none of them."""
    known = declared_keys(parts)
    elsewhere = {
        key for part in parts for branch in (*part.any_of, *part.one_of) for key in declared(applies_always(branch))
    }
    named = known | elsewhere
    meant = targets([key for key in value if key not in named], known) if known else {}
    return {key: name for key, name in meant.items() if name not in value}


def _switched_off(node: Node) -> bool:
    allowed = facts(node).allowed
    return allowed is not None and _RULE not in allowed
