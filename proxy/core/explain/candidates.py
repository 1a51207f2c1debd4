"""Which declared field an unknown key may stand for: by likeness, by words that two names share, or by a word of the
key that stands in a field's description (`max_price` for `budget`, described as "Maximum price in EUR").

An unknown key often carries what the user asked for, under another name. It is never taken for the other field; whoever
called is told of the fields that it may stand for, and decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
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
_LONGEST_NAME: Final = 100
# Words that say too little to relate two names.
_GENERIC: Final = frozenset(
    ["id", "uid", "uuid", "name", "type", "value", "data", "key", "is", "has", "the", "of", "to", "in", "for", "and",
     "or", "by", "with", "a", "an", "on", "at", "from", "this", "that", "be", "use", "used", "will", "optional",
     "field", "parameter", "argument", "list", "string", "number", "object", "array", "if", "it", "no", "not"]
)  # fmt: skip


def list_candidates(name: str, unsent: Mapping[str, Node]) -> list[str]:
    """The fields, of those that were not sent, that an unknown key may have been meant for; best first, at most 4."""
    looked_at = dict(islice(unsent.items(), _LOOKED_AT))
    name = name[:_LONGEST_NAME]
    words = _words(name) - _list_common(looked_at)
    like = {find_nearest(name, looked_at), find_abbreviation(name, looked_at)}
    scored = [(4 * (key in like) + _score(words, name, key, node), key) for key, node in looked_at.items()]
    return [key for score, key in sorted(scored, key=lambda pair: -pair[0]) if score > 0][:MOST_CANDIDATES]


def _list_common(fields: Mapping[str, Node]) -> frozenset[str]:
    """The words that stand in the names of more than a fifth of many fields, and so tell none from another."""
    counted = Counter(word for key in fields for word in _words(key))
    return frozenset(word for word, times in counted.items() if times > max(3, len(fields) // 5))


def _score(words: frozenset[str], name: str, key: str, node: Node) -> int:
    """How many words of an unknown key stand in a field's name, which count twice, and in its description."""
    if not words or not afford_work(_COMPARING):
        return 0
    shared = 2 * len(words & _words(key)) + len(words & _description_words(node))
    return shared if shared and not turns_meaning(name, key) else 0


def _words(name: str) -> frozenset[str]:
    return _stem_words(split_words(name))


@lru_cache(maxsize=4096)
def _stem_words(words: frozenset[str]) -> frozenset[str]:
    return frozenset(map(_stem, words)) - _GENERIC


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
