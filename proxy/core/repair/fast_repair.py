"""The quick repair of the commonest mistake: an object of declared keys whose refused members are scalars, each with
one reading that its schema accepts. Any other value is left to `engine.py`, which gives the same for the same work.

Worth: a call with four numbers and booleans in quotes takes 23 % of a clean call less (callgrind). `ON = False` sends
everything the plain way; tests/core/test_repair.py compares the two.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.json.jsontext import LosslessFloat
from proxy.core.model.values import JsonValue, Repair
from proxy.core.model.work import CHARACTERS, SINGLE, Work
from proxy.core.rules.facts import list_applicable_rules, read_facts
from proxy.core.rules.keys import KEY_RULES
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import Read
from proxy.core.rules.vocabulary import BESIDE_KEYS

ON = True
_SCALARS: Final = SINGLE | {str, LosslessFloat}
# The cost of fitting one value to one node, apart from the judge.
FIT: Final = 5
# Characters of JSON text that one unit of work reads; a text that has to be repaired is read character by character.
READ: Final = 5
# Words of an enum that one unit of work looks through.
CHOICES: Final = 10
OF_KEYS: Final = KEY_RULES | {"drop_unknown"}
# The reading of scalars of one type at a key: the place, the notations by name, the work of trying all, the number of
# those that read whole texts. None: the engine has to look at it.
_Reader = tuple[Site, tuple[tuple[str, Read], ...], int, int] | None


class _Plan:
    """The members of a root object under some rules. `cost`: the work beside them."""

    def __init__(self, check: Check, rules: frozenset[str]) -> None:
        self.rules, self.nodes = rules, check.root.properties
        self.judges = {key: check.judges.get(node) or partial(check.accepts_at, node)
                       for key, node in self.nodes.items()}  # fmt: skip
        self.readers: dict[tuple[str, type], _Reader] = {}
        self.of_keys = not rules.isdisjoint(OF_KEYS)
        self.cost = FIT + len(check.root.always) + (len(self.nodes) if self.of_keys else 0)

    def add_reader(self, key: str, kind: type) -> _Reader:
        """Works out how a scalar of this type is read at a key."""
        found, made = list_applicable_rules(self.nodes[key], kind, self.rules, True), None
        if found is not None and (kind in SINGLE or kind is str):
            _, site, notations = found
            named = tuple((rule.name, read) for rule, read in notations)
            cost = 2 * FIT + len(site.choices or ()) // CHOICES * len(notations)
            made = site, named, cost, sum(rule.nests for rule, _ in notations)
        self.readers[key, kind] = made
        return made


def repair_plainly(
    check: Check, value: JsonValue, rules: frozenset[str], tool: str, work: Work
) -> tuple[JsonValue, tuple[Repair, ...]] | None:
    """A refused value as its schema accepts it, and the repairs; None, at no cost, if it is left to the engine."""
    plans: dict[frozenset[str], _Plan | None] = check.schemas.memos.setdefault("plain repairs", {})
    if rules not in plans:
        root = check.root
        is_plain = check.linear and root.always == (root,) and not (root.is_conditional or root.pattern_properties)
        plans[rules] = _Plan(check, rules) if is_plain and read_facts(root).allowed is None else None
    if not ON or (plan := plans[rules]) is None or type(value) is not dict or not value.keys() <= plan.judges.keys():
        return None
    if "call_envelope" in rules and tool and len(value.keys() - BESIDE_KEYS) <= 2:
        return None  # it may be a whole call
    judges, readers, changed, repairs = plan.judges, plan.readers, dict[str, JsonValue](), list[Repair]()
    cost = plan.cost + (3 if plan.of_keys else 2) * len(value) - 1 + 2 * work.size(value)
    for key, item in value.items():
        if judges[key](item):
            continue
        place = key, type(item)
        if place[1] is str and len(item) >= CHARACTERS:
            return None
        reader = readers[place] if place in readers else plan.add_reader(key, place[1])
        if reader is None:
            return None
        site, notations, needed, nests = reader
        name, reading = "", item
        for rule, read in notations:
            if (result := read(item, site)) is not None:
                if name:
                    return None
                name, (reading, _) = rule, result
        if nests and place[1] is str:
            needed += nests * (len(item) // READ)
        is_scalar = type(reading) in _SCALARS and (type(reading) is not str or len(reading) < CHARACTERS)
        if not name or not is_scalar or not judges[key](reading):
            return None
        cost += needed + 1
        changed[key] = reading
        repairs.append(Repair(name, (key,)))
    made = {**value, **changed}
    if not changed or cost > work.left or not check.accepts(made):
        return None
    work.left -= cost
    return made, tuple(repairs)
