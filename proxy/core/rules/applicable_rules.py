"""Finds the value rules that may apply to a place. At most places none does, so most refused values are skipped early.

Each rule itself makes its proposal; the conditions under which it is tried stand in its row (`rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from proxy.core.rules.facts import applies_always, read_facts
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import ANY_TYPE, LISTED, TEXT_RULES, Rule, group_value_rules
from proxy.core.schema.nodes import Node

_TEXT_RULES: Final = frozenset(TEXT_RULES)

# The facts about a place that the rules see, and the rules that apply there, grouped by tier.
Asked = tuple[Site, tuple[tuple[Rule, ...], ...]]

_tiers = lru_cache(maxsize=256)(group_value_rules)


def may_change(rule: Rule, kind: type, site: Site) -> bool:
    """Whether a rule can propose anything for a value of this Python type at this place. Where this is False, the
    rule's function gives `NONE` (tests/core/test_rules.py compares the two)."""
    if rule.gives is LISTED:
        legal = site.choices is not None
    else:
        legal = rule.gives is ANY_TYPE or not rule.gives.isdisjoint(site.types)
    return legal and issubclass(kind, rule.takes)


def list_applicable_rules(node: Node, kind: type, rules: frozenset[str]) -> Asked:
    """The rules to try on a refused value of this Python type at a node; computed once for each combination."""
    memo: dict[tuple[int, type, frozenset[str]], Asked] = node.schemas.memos.setdefault("asked", {})
    known = memo.get((id(node), kind, rules))
    if known is None:
        site = _with_items(node)
        if classes := rules & _TEXT_RULES:
            site = replace(site, classes=classes)
        tiers = [tuple(rule for rule in tier if may_change(rule, kind, site)) for tier in _tiers(rules)]
        known = memo[id(node), kind, rules] = site, tuple(tier for tier in tiers if tier)
    return known


def _with_items(node: Node) -> Site:
    """The facts about a place that the rules see, including what the items of an array declare there."""
    site = read_facts(node).site
    if "array" not in site.types:
        return site
    items = [part.items for part in applies_always(node) if part.items is not None]
    keys = frozenset(key for item in items for key in _list_declared_keys(item))
    choices = [found for item in items if (found := read_facts(item).site.choices) is not None]
    return replace(site, item_keys=keys, item_choices=choices[0] if len(choices) == 1 else ())


def _list_declared_keys(node: Node) -> Iterator[str]:
    """The keys that a node declares, or a branch of its unions."""
    for part in applies_always(node):
        yield from part.properties
        for branch in (*part.any_of, *part.one_of):
            yield from (key for inner in applies_always(branch) for key in inner.properties)
