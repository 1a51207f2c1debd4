"""What a name says by its words and letters: whether a call changes or removes something, and where case has a meaning.

On a tool that changes something, null and an empty text may mean "clear this field"; on a tool that removes something,
a missing filter may mean "all". Elsewhere such values (null, nothing, the word "null") count as not sent. On these
tools they are refused, unless the operator switched the rule on.

The case of quantities and unit symbols carries their meaning: `1M` is a month and `1m` a minute, `MW` a megawatt and
`mW` a milliwatt, `MB` a megabyte and `Mb` a megabit. Where a schema lists such a name, the same letters in another case
may name something else, so no rule folds its case.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.core.schema.nodes import Node

# Splits a name into words: `updateIssue`, `update_issue` and `issues.update` hold the same verb.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CHANGES: Final = frozenset(["update", "patch", "edit", "set", "modify", "assign", "clear", "unset", "upsert"])
_REMOVES: Final = frozenset(["delete", "remove", "purge", "erase", "wipe", "truncate", "destroy"])
_NARROWS: Final = frozenset(
    ["where", "filter", "filters", "condition", "conditions", "criteria", "predicate", "selector", "query"]
)
# A number followed by up to three letters: `5m`, `1 MB`.
_QUANTITY: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?\s?[A-Za-zµμ]{1,3}")
# Symbols that take SI prefixes (some prefixes exist in either case), and bits and bytes with any prefix. The symbols
# are those of the SI brochure and IEC 80000-13.
_SYMBOLS: Final = "m|g|s|A|K|mol|cd|Hz|N|Pa|J|W|C|V|F|S|T|H|Wb|lm|lx|Bq|Gy|Sv|L|l|bar|eV|Wh|Ah|VA|Ω|b|B|bit|bps"
_PREFIXED: Final = re.compile(rf"(?:[mp](?:{_SYMBOLS})|[kgt](?:i?b|bit|bps|i?b/s|bit/s))(?:/s)?", re.IGNORECASE)
# Spelt like a unit, but words: morning and afternoon. A lone capital never names the unit of its small letter.
_WORDS: Final = frozenset({"pm", "PM"})
_ALONE: Final = frozenset({"m"})


@lru_cache(maxsize=4096)
def split_words(name: str) -> tuple[str, ...]:
    """The words of a name in small letters: `startDate_2` has start, date and 2."""
    return tuple(word.lower() for word in _WORD.findall(name))


@lru_cache(maxsize=4096)
def changes_something(name: str) -> bool:
    """Whether the name of a tool or an action contains a verb that changes or removes something."""
    return not (_CHANGES | _REMOVES).isdisjoint(split_words(name))


@lru_cache(maxsize=4096)
def narrows_something(name: str) -> bool:
    """Whether the name of a property says that it narrows down what a call affects; without it, all is affected."""
    return not _NARROWS.isdisjoint(split_words(name))


def acts_by_argument(root: Node, value: JsonValue) -> bool:
    """Whether an argument names an action that changes something: `{"action": "update"}`, where the schema lists it."""
    if not isinstance(value, dict):
        return False
    actions = _actions(root)
    return any(isinstance(item := value.get(key), str) and item in listed for key, listed in actions.items())


def _actions(root: Node) -> dict[str, frozenset[str]]:
    """The root's properties that list such actions, with those actions; computed once."""
    memo: dict[int, dict[str, frozenset[str]]] = root.schemas.memos.setdefault("actions", {})
    found = memo.get(id(root))
    if found is None:
        listed = {
            key: frozenset(text for text in node.choices or () if isinstance(text, str) and changes_something(text))
            for key, node in root.properties.items()
        }
        found = memo[id(root)] = {key: texts for key, texts in listed.items() if texts}
    return found


@lru_cache(maxsize=4096)
def is_case_meaning(name: str) -> bool:
    """Whether a name is a quantity or a unit's symbol, so that another case may be another unit."""
    name = name.strip()
    if name in _WORDS:
        return False
    return name in _ALONE or _QUANTITY.fullmatch(name) is not None or _PREFIXED.fullmatch(name) is not None
