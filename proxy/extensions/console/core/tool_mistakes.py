"""The counted mistakes of models with one tool: places in the schema, codes, rules and names, and no values unless the
operator may see them (`tried`).

Counts go by places in the schema.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from proxy.core.contract.policy import RepairPolicy
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Pointer

# Renames of one object's keys, sorted: (name that came, name in the schema).
Renames = tuple[tuple[str, str], ...]
# The code of keys that models invented, where mistakes are counted by place and code.
INVENTED: Final = "invented"


@dataclass(slots=True)
class CountedMistake:
    """One kind of mistake at one place: broken keywords of one code, or repairs by one rule (`code` is its name).

    `calls` had it, `alone` of them no other mistake. `right` of the `retried` calls were right at the next try. `last`
    in seconds since the epoch. `got` are the types of sent values; `shapes` and `tried` are those of texts. `names` are
    the names under which a key came that a repair renamed.
    """

    place: Pointer
    code: str
    repaired: bool = False
    calls: int = 0
    alone: int = 0
    retried: int = 0
    right: int = 0
    last: float = 0.0
    expected: str = ""
    keyword: str = ""
    got: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class InventedKey:
    """A key that models send and the schema does not declare: `parent` is the place of its object.

    `refused`: the number of calls that were refused for this key alone. `beside` counts the missing required keys that
    may have been intended. `instead` counts, by renames of keys that were tried together, how many calls would be right
    with these keys under the names of the schema.
    """

    parent: Pointer
    name: str
    calls: int = 0
    refused: int = 0
    last: float = 0.0
    beside: Counter[str] = field(default_factory=Counter)
    instead: Counter[Renames] = field(default_factory=Counter)


@value_class
class ToolMistakes:
    """All counts of one tool. `calls` are all its calls, `would_refuse` those that a report-only route would have
    refused; `watched` is the number of seconds since counting began, `since_refusal` the number of seconds without a
    call that would have been refused. `mode`: enforce or report. `repair` is the policy of the config. `values`: the
    operator may see values."""

    calls: int
    mistakes: tuple[CountedMistake, ...] = ()
    invented: tuple[InventedKey, ...] = ()
    mode: str = "enforce"
    would_refuse: int = 0
    since_refusal: float = 0.0
    repair: RepairPolicy | None = None
    values: bool = False
