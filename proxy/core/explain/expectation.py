"""A schema in words a model can use: what one place expects, and the schema's own words.

`describe_expectation` makes the `Expected:` line of a violation; `signature.py` makes the `Accepts:` line.
Deterministic and bounded.

`add_own_words` puts before a hint what the schema itself says of a place: `x-hint`, else description, examples and
default. Only values that the place takes are shown: a default that the schema itself refuses would be false advice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut, cut_sentences
from proxy.core.display.preview import clean_text
from proxy.core.display.secrets import is_sensitive
from proxy.core.json.jsontext import dumps, name_json_type
from proxy.core.model import codes
from proxy.core.model.values import ABSENT, JsonValue, Violation
from proxy.core.rules.facts import read_facts
from proxy.core.rules.proposals import Site
from proxy.core.schema.nodes import Node

_MAX_CHOICES: Final = 50
_ROOM_FOR_CHOICES: Final = 220
_LONGEST_CHOICE: Final = 280
_MAX_LIMIT: Final = 60

# keyword -> how its limit reads behind the type
_LIMITS: Final = (
    ("minimum", "at least {}"), ("exclusiveMinimum", "greater than {}"), ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"), ("multipleOf", "multiple of {}"), ("minLength", "min length {}"),
    ("maxLength", "max length {}"), ("minItems", "at least {} items"), ("maxItems", "at most {} items"),
    ("minProperties", "at least {} fields"), ("maxProperties", "at most {} fields"), ("format", "format {}"),
    ("pattern", "pattern {}"),
)  # fmt: skip


def write_literal(value: JsonValue) -> str:
    """A JSON value as a model reads it in a sentence: text in single quotes, everything else as JSON."""
    return f"'{value}'" if isinstance(value, str) else dumps(value).decode()


def write_choice(choice: JsonValue) -> str:
    """A listed value for a signature: whole, or only how long it is."""
    text = write_literal(choice)
    return text if len(text) <= _LONGEST_CHOICE else f"({len(text)} characters)"


def list_choices(choices: tuple[JsonValue, ...], first: Iterable[JsonValue] = ()) -> str:
    """`one of 'a', 'b'`: up to 50, as many as 220 characters hold; those of `first` before the others. None is cut."""
    room = _ROOM_FOR_CHOICES
    shown: list[str] = []
    ordered = [*(choice for choice in first if choice in choices), *choices[:_MAX_CHOICES]]
    for text in dict.fromkeys(map(write_literal, ordered)):
        if len(text) > (room - 2 if shown else _LONGEST_CHOICE):
            break
        shown.append(text)
        room -= len(text) + 2
    if not shown:
        return "one long value" if len(choices) == 1 else f"one of {len(choices)} long values"
    more = f" (+{len(choices) - len(shown)} more)" if len(choices) > len(shown) else ""
    return (shown[0] if len(choices) == 1 else f"one of {', '.join(shown)}") + more


def describe_types(site: Site) -> str:
    """The types of a site in words: `integer or null`."""
    named = [name for name in ("string", "number", "integer", "boolean", "array", "object", "null")
             if name in site.types and not (name == "integer" and "number" in site.types)]  # fmt: skip
    if len(named) in (0, 6):
        return "any value" if named else "no value"
    return " or ".join(named)


def list_unlisted_types(site: Site) -> frozenset[str]:
    """The types of a site that lists values beside those of its values: `integer` of `'auto'` or an integer."""
    listed = {name_json_type(choice) for choice in site.choices or ()}
    return site.types - listed - ({"integer"} if "number" in listed else set())


# two limits that are equal say one thing
_EXACTLY: Final = (
    ("minimum", "maximum", "exactly {}"),
    ("minLength", "maxLength", "length exactly {}"),
    ("minItems", "maxItems", "exactly {} items"),
)
# The integers that JavaScript counts exactly: its libraries list them as the limits of every integer. A value beyond is
# refused with the limit named.
_SAFE: Final = (("minimum", 1 - 2**53), ("maximum", 2**53 - 1))
# limits that say nothing at zero
_FROM_ZERO: Final = frozenset({"minLength", "minItems", "minProperties"})


def list_limits(node: Node) -> list[str]:
    """The limits a place sets beside its type, in words, each once."""
    memo: dict[int, list[str]] = node.schemas.memos.setdefault("limits", {})
    if (known := memo.get(id(node))) is not None:
        return known
    found: dict[str, None] = {}
    for part in node.always:
        merged: set[str] = set()
        for low, high, words in _EXACTLY:
            if (limit := _limit(part, low)) is not None and limit == _limit(part, high):
                merged |= {low, high}
                found[_fill_in(words, write_bound(limit))] = None
        for keyword, words in _LIMITS:
            limit = _limit(part, keyword)
            is_zero = keyword in _FROM_ZERO and limit == 0
            if limit is None or keyword in merged or is_zero or (keyword, limit) in _SAFE:
                continue
            found[_fill_in(words, cut(limit if isinstance(limit, str) else write_bound(limit), _MAX_LIMIT))] = None
    if any(text.startswith("greater than") for text in found):
        found.pop("at least 0", None)
    limits = memo[id(node)] = list(found)
    return limits


def _fill_in(words: str, limit: str) -> str:
    """A limit in its words, of a single item in the singular."""
    is_single = limit == "1" and words.endswith(("{} items", "{} fields"))
    return (words[:-1] if is_single else words).format(limit)


def write_bound(limit: JsonValue) -> str:
    """A limit as people write it: pydantic writes `ge=1` as 1.0."""
    text = write_literal(limit)
    return text.removesuffix(".0") if text.removesuffix(".0").removeprefix("-").isdecimal() else text


def _limit(part: Node, keyword: str) -> JsonValue:
    """A limit as it counts: draft 4's `exclusiveMinimum: true` turns `minimum` into an exclusive limit."""
    limit = part.get(keyword)
    if isinstance(limit, bool):
        return part.get(keyword.replace("exclusiveM", "m")) if limit else None
    switch = part.get(keyword.replace("m", "exclusiveM", 1)) if keyword in ("minimum", "maximum") else None
    return None if switch is True else limit


def describe_expectation(node: Node) -> str:
    """Returns what a place takes, in one phrase: `number (at least -90, at most 90)`, `one of 'utf-8', 'ascii'`."""
    memo: dict[int, str] = node.schemas.memos.setdefault("expectation", {})
    if (known := memo.get(id(node))) is not None:
        return known
    site = read_facts(node).site
    if site.choices is not None and not site.free_text:
        rest = list_unlisted_types(site)
        phrase = list_choices(site.choices) + (f" or {describe_types(replace(site, types=rest))}" if rest else "")
    else:
        phrase = describe_types(site)
        item = next((part.items for part in node.always if part.items is not None), None)
        if phrase == "array" and item is not None and describe_types(read_facts(item).site) != "any value":
            phrase = f"array of {describe_types(read_facts(item).site)}"
        if limits := list_limits(node):
            phrase = f"{phrase} ({', '.join(limits)})"
    memo[id(node)] = phrase
    return phrase


# --- the schema's own words -------------------------------------------------------------------------------------------
# Code points of a value that is in a sentence.
_SHORT: Final = 60
_OWN: Final = 160
_EXAMPLES: Final = 2


def add_own_words(check: Check, violation: Violation, node: Node) -> Violation:
    """The violation with what the schema says of the property before anything generic."""
    if violation.code is codes.REQUIRED_MISSING:
        declared = find_declared(node, str(violation.path[-1])) if violation.path else None
        if declared is None:
            return violation
        node = declared
    if violation.code is codes.ENUM_MISMATCH and violation.hint.startswith("Did you mean"):
        return violation  # a suggestion needs no further words
    name = next((step for step in reversed(violation.path) if isinstance(step, str)), "")
    own = read_own_words(check, node, name)
    hint = own if violation.hint and own.endswith(violation.hint) else f"{own} {violation.hint}".strip()
    return replace(violation, hint=hint) if own else violation


def read_own_words(check: Check, node: Node, name: str = "") -> str:
    """Returns what the schema says of a place in its own words, in at most three short sentences; '' if it says
    nothing. A description is behind the place's `name`, because many are no sentences."""
    memo: dict[int, tuple[str, str]] = node.schemas.memos.setdefault("own words", {})
    words = memo.get(id(node))
    if words is None:
        words = memo[id(node)] = _own_words(check, node)
    described, rest = words
    if described and name:
        described = f"`{cut(clean_text(name, _SHORT), _SHORT)}`: {described}"
    return f"{described} {rest}".strip()


def _own_words(check: Check, node: Node) -> tuple[str, str]:
    """The description of a place, and what else its schema says: examples and a default that it would accept."""
    parts = list(node.always)
    hint = next((text for part in parts if isinstance(text := part.get("x-hint"), str) and text.strip()), "")
    if hint:
        return "", _sentence(cut_sentences(" ".join(hint.split()), _OWN))
    if is_sensitive(node):
        return "", ""
    description = next((text for part in parts if isinstance(text := part.get("description"), str)), "")
    described = cut_sentences(" ".join(description.split()), _OWN)
    sentences = []
    written = next((shown for part in parts if isinstance(shown := part.get("examples"), list) and shown), [])
    examples = list(islice((example for example in written if check.accepts_at(node, example)), _EXAMPLES))
    if examples:
        shown = ", ".join(cut(write_literal(example), _SHORT) for example in examples)
        sentences.append(f"For example {shown}.")
    default = next((part.get("default") for part in parts if part.has("default")), None)
    if default is not None and not examples and check.accepts_at(node, default):
        literal = cut(write_literal(default), _SHORT)
        if literal not in described or "default" not in described.lower():
            sentences.append(f"Its default is {literal}.")
    return _sentence(described) if described else "", " ".join(sentences)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "...")) else text + "."


def may_take(node: Node, value: JsonValue) -> bool:
    """Returns whether a default or example is of a type that the place takes, and among the values that it lists."""
    site = read_facts(node).site
    return name_json_type(value) in site.types and (site.choices is None or value in site.choices)


def write_default(member: Node) -> str:
    """Returns a hint with a property's default, if that is a plain value which the property takes; otherwise ''."""
    default = member.get("default")
    if isinstance(default, (dict, list)) or default is None or default is ABSENT or is_sensitive(member):
        return ""
    if not may_take(member, default) or list_limits(member):
        return ""
    literal = write_literal(default)
    return f"Its default is {literal}." if len(literal) <= _SHORT else ""


def find_declared(node: Node, name: str) -> Node | None:
    """The schema of a property that an object declares."""
    return next((part.properties[name] for part in node.always if name in part.properties), None)


def takes_nothing(node: Node) -> bool:
    """Returns whether a place lists values of which none is of a type that it takes."""
    choices = read_facts(node).site.choices
    return choices is not None and not any(may_take(node, choice) for choice in choices)
