"""The quick repair of the commonest mistakes: an object of declared keys whose refused members are scalars. Each has
one reading that its schema accepts, or none has any. Other values are left to `engine.py`, which gives the same for
the same work.

Worth: a call with four numbers and booleans in quotes takes 23 % of a clean call less (callgrind). One with four
wrong values takes 28 % less (bytecodes). If `ON` is False, `engine.py` repairs all: tests/core/test_repair.py.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.json.jsontext import LosslessFloat
from proxy.core.model.values import ABSENT, JsonValue, Repair
from proxy.core.model.work import CHARACTERS, SINGLE, Work
from proxy.core.rules.branches import Fit
from proxy.core.rules.facts import list_applicable_rules, read_facts
from proxy.core.rules.keys import FILLING, KEY_RULES
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import Read
from proxy.core.rules.vocabulary import BESIDE_KEYS

ON = True
# The cost of fitting one value to one node, apart from the judge.
FIT: Final = 5
# Characters of JSON text that one unit of work reads; a text that has to be repaired is read character by character.
READ: Final = 5
# Words of an enum that one unit of work looks through.
CHOICES: Final = 10
OF_KEYS: Final = KEY_RULES | {"drop_unknown"}
# The reading of scalars of one type at a key: the place, the notations and their repairs, the work of trying all, the
# number of those that read whole texts. None: the engine has to look at it.
_Reader = tuple[Site, tuple[tuple[Repair, Read], ...], int, int] | None


class _Plan(dict[tuple[str, type], _Reader]):
    """The members of a root object under some rules: how a scalar of each type is read at each key. `cost` is the work
    next to them, `idle` that of a value in which nothing can be read; None: the engine has to look at it. A value of
    more than `few` members cannot be a whole call."""

    def __init__(self, check: Check, rules: frozenset[str]) -> None:
        self.rules, self.nodes = rules, check.root.properties
        self.judges = {key: check.judges.get(node) or partial(check.accepts_at, node)
                       for key, node in self.nodes.items()}  # fmt: skip
        of_keys = not rules.isdisjoint(OF_KEYS)
        self.each = 3 if of_keys else 2
        self.cost = FIT + len(check.root.always) + (len(self.nodes) if of_keys else 0) - 1
        whole = list_applicable_rules(check.root, dict, rules, False)
        fills = not rules.isdisjoint(FILLING) and any(node.has("default") for node in self.nodes.values())
        may_change = fills or len(self.nodes) < 2 or (whole is not None and whole[2] != ())
        self.few = 2 + len(BESIDE_KEYS & self.nodes.keys())
        self.idle = None if may_change else FIT if whole is not None else 0

    def __missing__(self, place: tuple[str, type]) -> _Reader:
        (key, kind), made = place, None
        found = list_applicable_rules(self.nodes[key], kind, self.rules, True)
        if found is not None and (kind in SINGLE or kind is str):
            _, site, notations = found
            repairs = tuple((Repair(rule.name, (key,)), read) for rule, read in notations)
            cost = 2 * FIT + len(site.choices or ()) // CHOICES * len(notations)
            made = site, repairs, cost, sum(rule.nests for rule, _ in notations) if kind is str else 0
        self[place] = made
        return made


def repair_plainly(check: Check, value: JsonValue, rules: frozenset[str], tool: str, work: Work) -> Fit | None:
    """Repairs a refused value. Returns None, at no cost, if it is left to the engine."""
    plans: dict[frozenset[str], _Plan | None] = check.schemas.memos.setdefault("plain repairs", {})
    if rules not in plans:
        root = check.root
        is_plain = check.linear and root.always == (root,) and not (root.is_conditional or root.pattern_properties)
        plans[rules] = _Plan(check, rules) if is_plain and read_facts(root).allowed is None else None
    if not ON or (plan := plans[rules]) is None or type(value) is not dict or not value.keys() <= plan.judges.keys():
        return None
    if len(value) <= plan.few and tool and "call_envelope" in rules:
        return None  # it may be a whole call
    changed: dict[str, JsonValue] = {}
    repairs: list[Repair] = []
    reading: JsonValue = ABSENT
    judges, cost, size, idle = plan.judges, plan.cost + plan.each * len(value), work.size(value), 0
    for key, item in value.items():
        if judges[key](item):
            continue
        kind = type(item)
        reader = plan[key, kind]
        if reader is None or (kind is str and len(item) >= CHARACTERS):
            return None
        site, notations, needed, nests = reader
        cost += needed + nests * (len(item) // READ) if nests else needed
        made = None
        for repair, read in notations:
            if (result := read(item, site)) is not None:
                if made is not None:
                    return None
                made, reading = repair, result[0]
        if made is None:
            idle += 1
            if changed or item is None:
                return None
            continue
        kind = type(reading)
        is_scalar = kind in SINGLE or kind is LosslessFloat or (kind is str and len(reading) < CHARACTERS)
        if idle or not is_scalar or not judges[key](reading):
            return None
        changed[key] = reading
        repairs.append(made)
    if not changed:
        if plan.idle is None or cost + size + plan.idle > work.left:
            return None
        work.left -= cost + size + plan.idle
        return Fit(value, (), False)
    cost, whole = cost + len(repairs) + 2 * size, {**value, **changed}
    if cost > work.left or not check.accepts(whole):
        return None
    work.left -= cost
    return Fit(whole, tuple(repairs), True)
