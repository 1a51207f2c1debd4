"""Which value rules have a say at a place: of most places nearly none, so that most refused values are left at once.

What a rule makes of a value it says itself (`proposals.py`); here stands what it needs to find before it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from proxy.core.jsontext import FRACTIONS, JSON_TYPES
from proxy.core.proposals import Site
from proxy.core.rules import TEXT_RULES, Rule, value_rules
from proxy.core.schema import Node
from proxy.core.sites import facts

_TEXT_RULES: Final = frozenset(TEXT_RULES)
# Stands for the types where a rule asks for a list of values instead.
_LISTED: Final[frozenset[str]] = frozenset()
_ALL: Final = frozenset(JSON_TYPES)
_CONTAINERS: Final = frozenset({"array", "object"})

# rule -> the Python types of the values it may change, and the JSON types of which one has to be legal there
# (_ALL: whatever is).
_REACH: Final[Mapping[str, tuple[tuple[type, ...], frozenset[str]]]] = {
    "string_to_integer": ((str,), frozenset({"integer"})),
    "string_to_number": ((str,), frozenset({"number"})),
    "string_to_boolean": ((str,), frozenset({"boolean"})),
    "integral_float": (FRACTIONS, frozenset({"integer"})),
    "number_to_string": ((int, *FRACTIONS), frozenset({"string"})),
    "yes_no": ((str,), frozenset({"boolean"})),
    "zero_one": ((int,), frozenset({"boolean"})),
    "null_text": ((str,), frozenset({"null"})),
    "parse_json_string": ((str,), _CONTAINERS),
    "python_literal": ((str,), _CONTAINERS),
    "enum_case": ((str,), _LISTED),
    "enum_fold": ((str,), _LISTED),
    "wrap_single": ((object,), frozenset({"array"})),
    "split_commas": ((str,), frozenset({"array"})),
    "join_chunks": ((list,), frozenset({"string"})),
    "first_of_one": ((list,), _ALL),
    "schema_shaped": ((dict,), _ALL),
    "object_to_json_string": ((dict,), frozenset({"string"})),
}

# What the rules see of a place, and those that are asked there, tier by tier.
Asked = tuple[Site, tuple[tuple[Rule, ...], ...]]

_tiers = lru_cache(maxsize=256)(value_rules)


def may_change(rule: str, kind: type, site: Site) -> bool:
    """Whether a rule can propose anything for a value of this Python type at this place. Where this is False its
    function gives `NONE` (tests/core/test_rules.py holds the two together)."""
    values, types = _REACH[rule]
    if types is _ALL:  # also where no type is legal at all
        return issubclass(kind, values)
    legal = not types.isdisjoint(site.types) if types else site.choices is not None
    return legal and issubclass(kind, values)


def asked(node: Node, kind: type, rules: frozenset[str]) -> Asked:
    """Whom to ask about a refused value of this Python type at a node; worked out once for each."""
    memo: dict[tuple[int, type, frozenset[str]], Asked] = node.schemas.memos.setdefault("asked", {})
    known = memo.get((id(node), kind, rules))
    if known is None:
        site = facts(node).site
        if classes := rules & _TEXT_RULES:
            site = replace(site, classes=classes)
        tiers = [tuple(rule for rule in tier if may_change(rule.name, kind, site)) for tier in _tiers(rules)]
        known = memo[id(node), kind, rules] = site, tuple(tier for tier in tiers if tier)
    return known
