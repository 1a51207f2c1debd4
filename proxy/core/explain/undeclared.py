"""Keys that no schema declares: their possible meanings and places; and keys that are deprecated.

An unknown key often carries what the user asked for, under another name or at another place. The hint names the fields
that it may mean, or the object that declares it; a key with neither is to be left out. A field is a candidate by
likeness, by words that two names share, or by a word of the key in the field's description:
for `max_price` this is `budget`, described as "Maximum price in EUR". No key is taken for another: the caller decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut
from proxy.core.display.preview import clean_text
from proxy.core.display.suggestions import (
    find_abbreviation,
    find_nearest,
    is_same_name,
    is_slip,
    split_words,
    turns_meaning,
)
from proxy.core.explain.expectation import describe_expectation, read_own_words
from proxy.core.explain.places import (
    find_possible_nodes,
    find_value,
    is_taken_at,
    list_declared_at,
    list_declared_keys,
    list_members,
    walk_places,
)
from proxy.core.json.jsontext import format_pointer
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import ABSENT, JsonValue, Pointer, Violation
from proxy.core.model.work import EXPLAINING, TooMuchWorkError, afford_work, borrow_work, remember_short
from proxy.core.schema.nodes import Node

# Names compared for a did-you-mean, and names shown together.
LOOKED_AT: Final = 200
_NAMED: Final = 4
_MAX_UNKNOWN: Final = 100
_MOST_NOTICES: Final = 100
# Characters of the fields listed as expected; so few fields are all named, whatever the unknown key is.
_ROOM_FOR_FIELDS: Final = 200
_FEW: Final = 4
# Keywords that forbid keys which nothing declares.
_CLOSED: Final = frozenset({"additionalProperties", "unevaluatedProperties"})
# Objects that are searched for the place of an unknown key.
_MOST_HOLDERS: Final = 60
_DEEPEST_HOME: Final = 3
_MOST_CANDIDATES: Final = 4
_COMPARING: Final = 4
_LONGEST_DESCRIPTION: Final = 400
_LONGEST_COMPARED: Final = 100
# Words of keys without which a call may do something else: negations, ends of spans, and what is done at all.
_ACTING: Final = frozenset([
    "min", "max", "minimum", "maximum", "start", "end", "begin", "from", "to", "old", "new", "source", "target", "src",
    "dst", "not", "no", "non", "exclude", "excluded", "except", "without", "ignore", "ignored", "hide", "hidden",
    "avoid", "skip", "deny", "block", "blocked", "omit", "remove", "delete", "before", "after", "first", "last", "prev",
    "previous", "next", "parent", "child", "in", "out", "dry", "undo", "example", "unless", "negative", "else",
    "otherwise", "replacement", "fallback", "backup", "default", "alternative", "alternate", "blacklist", "blocklist",
    "denylist", "denied", "forbidden", "banned", "disabled", "disallowed", "rejected", "failed", "error", "removed",
    "deleted", "never", "anti", "action", "operation",
    "mode", "confirm", "preview", "simulate", "cancel", "status",
])  # fmt: skip
# Words that say too little to relate two names.
_GENERIC: Final = frozenset(
    ["id", "uid", "uuid", "name", "type", "value", "data", "key", "is", "has", "the", "of", "to", "in", "for", "and",
     "or", "by", "with", "a", "an", "on", "at", "from", "this", "that", "be", "use", "used", "will", "optional",
     "field", "parameter", "argument", "list", "string", "number", "object", "array", "if", "it", "no", "not"]
)  # fmt: skip


def find_unknown_fields(check: Check, value: JsonValue, severity: Severity) -> Iterator[Violation]:
    """VAL-005 for every key no schema declares, where the schema itself would let it pass (`unknown_keys`).

    At most 100; a value too large to search has only one, at the root.
    """
    try:
        with borrow_work(EXPLAINING) as work:
            found = (
                make_unknown_violation((*path, key), holder, parts, severity)
                for path, holder, parts in walk_places(check, value, work)
                # a place whose schema declares no key at all takes any
                if isinstance(holder, dict) and (known := list_declared_keys(parts))
                for key in holder
                if key not in known
            )
            yield from islice(found, _MAX_UNKNOWN)
    except TooMuchWorkError:
        message = "The arguments are too large to be searched for unknown fields"
        yield Violation(codes.UNKNOWN_FIELD, (), message, hint="Send less in one call.", severity=severity)


def has_only_undeclared(check: Check, value: JsonValue) -> bool:
    """Returns whether a refused value would be accepted without the keys that its schemas do not declare and forbid."""
    names: dict[Pointer, frozenset[str]] = {}
    for broken in islice(check.list_broken(value), _MAX_UNKNOWN):
        detail = broken.detail
        if broken.keyword not in _CLOSED or not isinstance(detail, list):
            return False
        names[broken.path] = names.get(broken.path, frozenset()) | {key for key in detail if isinstance(key, str)}
    return bool(names) and check.accepts(_drop_keys(value, (), names))


def _drop_keys(value: JsonValue, path: Pointer, names: Mapping[Pointer, frozenset[str]]) -> JsonValue:
    if isinstance(value, dict):
        gone = names.get(path, frozenset())
        return {key: _drop_keys(item, (*path, key), names) for key, item in value.items() if key not in gone}
    if isinstance(value, list):
        return [_drop_keys(item, (*path, index), names) for index, item in enumerate(value)]
    return value


def make_unknown_violation(path: Pointer, holder: JsonValue, parts: Iterable[Node], severity: Severity) -> Violation:
    """VAL-005 for one key of an object; `parts` are the schemas that judge it."""
    name, sent = str(path[-1]), holder if isinstance(holder, dict) else {}
    declared = {key: member for part in parts for key, member in part.properties.items()}
    unsent = {key: declared[key] for key in sorted(declared.keys() - sent.keys())}
    patterns = sorted({pattern for part in parts for pattern in part.pattern_properties})
    message = f"Unknown field '{clean_text(name, 60)}'"
    if patterns and not unsent:
        expected = "field names that match " + " or ".join(cut(pattern, 80) for pattern in patterns[:_NAMED])
        hint = "Name it so, or leave it out."
    else:
        near, twice = list_candidates(name, unsent), sorted(declared.keys() & sent.keys())
        expected = _list_fields([*near, *unsent, *twice])
        hint = _explain_unknown(name, unsent, near)
        if (other := next((key for key in twice if is_same_name(key, name)), "")) and not near:
            hint = f"You sent '{cut(other, 60)}' as well: send only that."
    return Violation(codes.UNKNOWN_FIELD, path, message, expected, hint, severity, sent.get(name, ABSENT))


def _list_fields(names: Iterable[str]) -> str:
    """`one of the fields 'a', 'b'`: as many as 200 characters hold, best first."""
    listed = list(dict.fromkeys(names))
    shown: list[str] = []
    room = _ROOM_FOR_FIELDS
    for name in listed:
        room -= len(name[:60]) + 4
        if room < 0:
            break
        shown.append(f"'{cut(name, 60)}'")
    more = f" (+{len(listed) - len(shown)} more)" if len(shown) < len(listed) else ""
    return f"one of the fields {', '.join(shown)}{more}" if listed else "no fields"


def _explain_unknown(name: str, unsent: Mapping[str, Node], near: list[str]) -> str:
    """Returns the hint for an unknown key: it may carry a value that the tool takes under another name."""
    words = split_words(name)
    same = [key for key in near if split_words(key) == words and is_slip(name, key)]
    nearest = same[0] if len(same) == 1 else find_nearest(name, list(unsent)[:LOOKED_AT], slip=True)
    if nearest is not None:
        takes = cut(describe_expectation(unsent[nearest]), 160)
        return f"Did you mean '{cut(nearest, 60)}'" + (f" ({takes})?" if takes != "any value" else "?")
    leave = "leave it out"
    if not _ACTING.isdisjoint(words):
        leave += " only if the call means the same without it"
    if not unsent:
        return f"{leave.capitalize()}."
    near = near or (list(unsent) if len(unsent) <= _FEW else [])
    if len(near) == 1:
        return f"If you did not mean '{cut(near[0], 60)}', {leave}."
    if not near:
        return f"If no other field takes it, {leave}."
    named = ", ".join(f"'{cut(key, 60)}'" for key in near)
    return f"If you meant none of {named}, {leave}."


def place_unknown(check: Check, root: JsonValue, violation: Violation) -> Violation:
    """The violation of an unknown key, with where to move it if another object here declares and lacks it."""
    if violation.code is not codes.UNKNOWN_FIELD or not violation.path or violation.severity is not Severity.ERROR:
        return violation
    homes = _find_homes(check, root, violation.path)
    if not homes or len(homes) > _NAMED:
        return violation
    targets = " or ".join(f"'{cut(format_pointer(home), 120)}'" for home in homes)
    statement = f"It belongs to {targets}" if len(homes) == 1 else f"It may belong to {targets}"
    return replace(violation, hint=f"{statement}: move it there.")


def _find_homes(check: Check, root: JsonValue, path: Pointer) -> list[Pointer]:
    """Returns the places in objects that were sent, or may be beside the key, that lack its name and take its value."""
    name, value = str(path[-1]), find_value(root, path)
    if find_nearest(name, [key for key in list_declared_at(check, path[:-1]) if key != name]) is not None:
        return []  # it is like a field beside it
    homes: list[Pointer] = []
    queue: list[tuple[JsonValue, Pointer]] = [(root, ())]
    for holder, place in islice(queue, _MOST_HOLDERS):
        if isinstance(holder, dict) and place != path[:-1] and name not in holder:
            homes += [(*place, name)] if name in list_declared_at(check, place) else []
        if place == path[:-1] and isinstance(holder, dict):
            homes += _list_absent_homes(check, holder, place, name)
        queue += [(item, (*place, step)) for step, item in list_members(holder) if isinstance(item, (dict, list))]
    return [home for home in homes if home[: len(path)] != path and is_taken_at(check, home, value)]


def _list_absent_homes(check: Check, holder: dict[str, JsonValue], place: Pointer, name: str) -> Iterator[Pointer]:
    """Returns the places of a name inside objects that may be beside a key and are not, or in their lists' items."""
    queue: list[Pointer] = [(*place, key) for key in list_declared_at(check, place) if key not in holder]
    for path in islice(queue, _MOST_HOLDERS):
        below = list_declared_at(check, path)
        if name in below:
            yield (*path, name)
        if len(path) - len(place) < _DEEPEST_HOME:
            queue += [(*path, key) for key in below]
            queue += [(*path, 0)] if any(node.items is not None for node in find_possible_nodes(check, path)) else []


# --- warnings ---------------------------------------------------------------------------------------------------------
def list_notices(check: Check, value: JsonValue) -> Iterator[Violation]:
    """A warning for each key that the schema calls deprecated; at most 100, none where there is too much to search."""
    with suppress(TooMuchWorkError), borrow_work(EXPLAINING) as work:
        marked = (
            (path, part)
            for path, _, parts in walk_places(check, value, work)
            if path and (part := next((each for each in parts if each.get("deprecated") is True), None))
        )
        for path, part in islice(marked, _MOST_NOTICES):
            message = f"Field '{clean_text(str(path[-1]), 60)}' is deprecated"
            yield Violation(
                codes.DEPRECATED_FIELD, path, message, hint=read_own_words(check, part), severity=Severity.WARNING
            )


# --- candidates -------------------------------------------------------------------------------------------------------


def list_candidates(name: str, unsent: Mapping[str, Node]) -> list[str]:
    """Returns the fields, of those that were not sent, that an unknown key may mean; best first, at most 4."""
    looked_at = dict(islice(unsent.items(), LOOKED_AT))
    name = name[:_LONGEST_COMPARED]
    # Words in the names of more than a fifth of many fields tell none from another.
    counted = Counter(word for key in looked_at for word in _words(key))
    words = frozenset(word for word in _words(name) if counted[word] <= max(3, len(looked_at) // 5))
    like = {find_nearest(name, looked_at), find_abbreviation(name, looked_at)}
    scored = [(4 * (key in like) + _score(words, name, key, node), key) for key, node in looked_at.items()]
    return [key for score, key in sorted(scored, key=lambda pair: -pair[0]) if score > 0][:_MOST_CANDIDATES]


def _score(words: frozenset[str], name: str, key: str, node: Node) -> int:
    """Returns how many words of an unknown key are in a field's name, which count twice, and in its description."""
    if not words or not afford_work(_COMPARING):
        return 0
    shared = 2 * len(words & _words(key)) + len(words & _description_words(node))
    return shared if shared and not turns_meaning(name, key) else 0


@remember_short
def _words(name: str) -> frozenset[str]:
    """The telling words of a name, without the endings of plurals."""
    words = split_words(name)
    return frozenset(f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s") for word in words) - _GENERIC


def _description_words(node: Node) -> frozenset[str]:
    memo: dict[int, frozenset[str]] = node.schemas.memos.setdefault("description words", {})
    words = memo.get(id(node))
    if words is None:
        texts = (part.get("description") for part in node.always)
        text = next((text for text in texts if isinstance(text, str)), "")
        words = memo[id(node)] = _words(text[:_LONGEST_DESCRIPTION])
    return words
