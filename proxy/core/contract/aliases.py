"""Further names of a tool's arguments (`aliases` in the config), and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.rules.facts import nodes_at


def list_alias_mistakes(aliases: Mapping[str, str], declared: Set[str] | None) -> Iterator[tuple[str, str, str]]:
    """Each alias that cannot be used, with what is wrong and the remedy. `declared`: the properties of the schema's
    root, None if they are not known."""
    for alias, name in aliases.items():
        if declared is not None and alias in declared:
            yield alias, f"the alias {alias!r} is a declared property", "drop it: a declared name has one meaning"
        elif name in aliases and (declared is None or name not in declared):
            yield (
                alias,
                f"the alias {alias!r} stands for {name!r}, which is an alias itself",
                "name a declared property",
            )
        elif declared is not None and name not in declared:
            known = ", ".join(sorted(declared)[:12]) or "none"
            yield (
                alias,
                f"the alias {alias!r} stands for {name!r}, which the schema does not declare",
                f"declared: {known}",
            )


def keep_usable_aliases(repair: RepairPolicy, declared: Set[str]) -> RepairPolicy:
    """The policy without the aliases that cannot be used: a listed schema may change after the config was written."""
    if not repair.aliases:
        return repair
    unusable = {alias for alias, *_ in list_alias_mistakes(repair.aliases, declared)}
    return replace(repair, aliases={alias: name for alias, name in repair.aliases.items() if alias not in unusable})


def list_root_properties(check: Check) -> frozenset[str]:
    """The names of the properties that the root of a schema declares."""
    return frozenset(name for node in nodes_at(check, ()) for name in node.properties)
