"""Which declared field an unknown key may stand for: by likeness, by words that two names share, or by a word of the
key that stands in a field's description (`max_price` for `budget`, described as "Maximum price in EUR").

An unknown key often carries what the user asked for, under another name. It is never taken for the other field; whoever
called is told of the fields that it may stand for, and decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Final

from proxy.core.display.suggestions import find_abbreviation, find_nearest, split_words, turns_meaning
from proxy.core.model.work import afford_work
from proxy.core.rules.facts import applies_always
from proxy.core.schema.nodes import Node

MOST_CANDIDATES: Final = 4
_LOOKED_AT: Final = 200
_COMPARING: Final = 4
_LONGEST_DESCRIPTION: Final = 400
# Words that say too little to relate two names.
_GENERIC: Final = frozenset(
    ["id", "uid", "uuid", "name", "type", "value", "data", "key", "is", "has", "the", "of", "to", "in", "for", "and",
     "or", "by", "with", "a", "an", "on", "at", "from", "this", "that", "be", "use", "used", "will", "optional",
     "field", "parameter", "argument", "list", "string", "number", "object", "array", "if", "it", "no", "not"]
)  # fmt: skip


def list_candidates(name: str, unsent: Mapping[str, Node]) -> list[str]:
    """The fields, of those that were not sent, that an unknown key may have been meant for; best first, at most 4."""
    looked_at = dict(islice(unsent.items(), _LOOKED_AT))
    common = _list_common(looked_at)
    scored = [(_score(name, key, node, common), key) for key, node in looked_at.items()]
    return [key for score, key in sorted(scored, key=lambda pair: -pair[0]) if score > 0][:MOST_CANDIDATES]


def _list_common(fields: Mapping[str, Node]) -> frozenset[str]:
    """The words that stand in the names of more than a fifth of many fields, and so tell none from another."""
    counted = Counter(word for key in fields for word in _words(key))
    return frozenset(word for word, times in counted.items() if times > max(3, len(fields) // 5))


def _score(name: str, key: str, node: Node, common: frozenset[str]) -> int:
    if not afford_work(_COMPARING) or turns_meaning(name, key):
        return 0
    likeness = 4 if find_nearest(name, [key]) or find_abbreviation(name, [key]) else 0
    words, others = _words(name) - common, _words(key) - common
    return likeness + 2 * len(words & others) + len(words & _description_words(node))


def _words(name: str) -> frozenset[str]:
    return frozenset(map(_stem, split_words(name))) - _GENERIC


def _stem(word: str) -> str:
    """A word without the ending of its plural."""
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def _description_words(node: Node) -> frozenset[str]:
    memo: dict[int, frozenset[str]] = node.schemas.memos.setdefault("description words", {})
    words = memo.get(id(node))
    if words is None:
        texts = (part.get("description") for part in applies_always(node))
        text = next((text for text in texts if isinstance(text, str)), "")
        words = memo[id(node)] = _words(text[:_LONGEST_DESCRIPTION])
    return words
