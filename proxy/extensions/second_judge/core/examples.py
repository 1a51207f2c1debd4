"""Example arguments made from a schema, and always checked against it.

`make_minimal_example` is the smallest valid value of a schema; `core/explain/advice.py` makes examples for answers.

How it works. `_Maker.values` yields values for a place, best first, each built for every schema that judges the place;
the first one that all of them accept is used. Unions are entered branch by branch, `if` by its sides. The work is
bounded; if it ends, or a schema needs more than is tried here, there is no example (`ABSENT`).

`make_text_for` finds the shortest text that a common regular expression describes. It is a recursive descent over the
grammar (ECMA-262 22.2.1), which reads assertions as empty text and classes as their first good character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from itertools import islice
from typing import Final

from proxy.core.json.jsontext import LosslessFloat, are_equal, make_decimal
from proxy.core.model.values import ABSENT, JsonValue
from proxy.core.model.work import TooMuchWorkError, Work
from proxy.core.rules.facts import list_declared, list_member_schemas, list_required, read_facts
from proxy.core.schema.nodes import Node
from proxy.plugin import Check

_MAX_WORK: Final = 60_000
_MAX_DEPTH: Final = 24
# Values tried for one place, and for the items of an array that must differ.
_MAX_TRIED: Final = 80
_MAX_ITEMS: Final = 200
# Numbers that show their type at a glance.
_TELLING: Final[dict[frozenset[str], tuple[JsonValue, ...]]] = {
    frozenset({"integer"}): (10, 3),
    frozenset({"integer", "number"}): (LosslessFloat(b"35.5"), LosslessFloat(b"0.5")),
}


def make_minimal_example(check: Check) -> JsonValue:
    """The smallest valid value of a schema that can be found, `ABSENT` without one. Deterministic; never raises."""
    try:
        value = _Maker(check, Work(_MAX_WORK)).make((check.root,), 0)
    except (TooMuchWorkError, RecursionError):
        return ABSENT
    return value if value is ABSENT or check.accepts(value) else ABSENT


def make_full_example(check: Check, most: int) -> JsonValue:
    """A valid value that also shows up to `most` optional keys of the outermost object, and typical numbers. The
    smallest valid value if no more can be found, `ABSENT` if there is none. Deterministic; never raises."""
    smallest = make_minimal_example(check)
    if not isinstance(smallest, dict):
        return smallest
    shown, maker = dict(smallest), _Maker(check, Work(_MAX_WORK))
    try:
        parts = _parts((check.root,))
        keys = [key for part in parts for key in part.properties if key not in smallest][:most]
        for key in [*smallest, *keys]:
            for value in maker.list_typical(tuple(list_member_schemas(parts, key, maker.work)), shown.get(key, ABSENT)):
                if value is not ABSENT and check.accepts({**shown, key: value}):
                    shown[key] = value
                    break
    except (TooMuchWorkError, RecursionError):
        return smallest
    return shown


class _Maker:
    """Makes valid values. A place is given by all the schemas that judge it."""

    def __init__(self, check: Check, work: Work) -> None:
        self.check = check
        self.work = work

    def make(self, nodes: tuple[Node, ...], depth: int, avoid: Sequence[JsonValue] = ()) -> JsonValue:
        """Returns the first value that all schemas accept and that equals none of `avoid`; `ABSENT` without one."""
        self.work.spend(1 + len(nodes))
        for value in islice(self.values(nodes, depth), _MAX_TRIED + len(avoid)):
            if not any(are_equal(value, other) for other in avoid):
                self.work.look(value)
                if all(self.check.accepts_at(node, value) for node in nodes):
                    return value
        return ABSENT

    def list_typical(self, nodes: tuple[Node, ...], known: JsonValue) -> Iterator[JsonValue]:
        """Values that show the type of a place at a glance: `0` could be any kind of number."""
        if not nodes:
            return
        parts, types = _parts(nodes), frozenset.intersection(*(read_facts(node).site.types for node in nodes))
        if not any(part.choices or part.get("examples") or part.has("default") for part in parts):
            yield from _TELLING.get(types, ())
        if types == {"array"} and (items := tuple(list_member_schemas(parts, 0, self.work))):
            item = self.make(items, 2)
            yield ABSENT if item is ABSENT else [item]
        if known is ABSENT and (value := self.make(nodes, 1)) not in ([], {}):
            yield value

    def values(self, nodes: tuple[Node, ...], depth: int) -> Iterator[JsonValue]:
        """Values for a place, best first; not all of them valid."""
        parts = _parts(nodes)
        types = frozenset.intersection(*(read_facts(node).site.types for node in nodes))
        for part in parts:
            yield from part.choices or ()
        if depth < _MAX_DEPTH:
            yield from self.inside(nodes, parts, depth)
        for part in parts:
            shown = part.get("examples")
            yield from (shown if isinstance(shown, list) else ())
            yield from ((part.get("default"),) if part.has("default") else ())
        if "string" in types:
            yield from make_texts(parts)
        if "integer" in types:
            yield from make_numbers(parts, fractions="number" in types)
        if "boolean" in types:
            yield from (False, True)
        if "object" in types and depth < _MAX_DEPTH:
            yield from self.objects(parts, depth)
        if "array" in types and depth < _MAX_DEPTH:
            yield from self.arrays(parts, depth)
        if "null" in types:
            yield None

    def inside(self, nodes: tuple[Node, ...], parts: list[Node], depth: int) -> Iterator[JsonValue]:
        """Values for one branch of a union, or one side of an `if`, that is not among the schemas yet."""
        known = {id(part) for part in parts}
        for part in parts:
            sides = [part.any_of, part.one_of]
            if part.condition is not None:
                test, then, other = part.condition
                sides.append(tuple(side for side in (test if then is None else then, other) if side is not None))
            for branches in sides:
                if not branches or any(id(branch) in known for branch in branches):
                    continue
                for branch in branches:
                    if (value := self.make((*nodes, branch), depth + 1)) is not ABSENT:
                        yield value

    def objects(self, parts: list[Node], depth: int) -> Iterator[JsonValue]:
        """The object with its required keys; then with more keys, as far as `minProperties` requires."""
        least = max((n for part in parts if isinstance(n := part.get("minProperties"), int)), default=0)
        made: dict[str, JsonValue] = {}
        if not self.fill(made, parts, depth):
            return
        for key in (*sorted(list_declared(parts)), *range(1, _MAX_ITEMS)):
            if len(made) >= least:
                break
            self.put(made, parts, key if isinstance(key, str) else self.name(parts, key, depth), depth)
        yield made

    def fill(self, made: dict[str, JsonValue], parts: list[Node], depth: int) -> bool:
        """Adds every required key, and those that added keys require in turn; False where one cannot be made."""
        for _ in range(_MAX_DEPTH):
            wanted = list_required(parts)
            for part in parts:
                dependencies = part.get("dependentRequired") or part.get("dependencies")
                for key, names in dependencies.items() if isinstance(dependencies, dict) else ():
                    wanted |= set(names) if key in made and isinstance(names, list) else set()
                parts = _parts((*parts, *(schema for key, schema in part.dependent.items() if key in made)))
            missing = sorted(wanted - made.keys())
            if not missing:
                return True
            if not all(self.put(made, parts, key, depth) for key in missing):
                return False
        return False

    def put(self, made: dict[str, JsonValue], parts: list[Node], key: str, depth: int) -> bool:
        schemas = tuple(list_member_schemas(parts, key, self.work))
        value = self.make(schemas, depth + 1) if schemas else "..."
        if value is not ABSENT:
            made.setdefault(key, value)
        return value is not ABSENT

    def name(self, parts: list[Node], number: int, depth: int) -> str:
        """An undeclared key that `propertyNames` or a pattern accepts."""
        rules = tuple(rule for part in parts if (rule := part.inner("propertyNames")) is not None)
        if rules:
            names = (value for value in self.values(rules, depth + 1) if isinstance(value, str))
            made = next(islice(names, number - 1, None), None)
            taken = {f"key{other}" for other in range(1, number)}
            return made if made is not None and made not in taken else f"key{number}"
        patterns = [pattern for part in parts for pattern in part.pattern_properties]
        found = list(make_texts((), patterns)) if patterns else []
        return found[(number - 1) % len(found)] if found else f"key{number}"

    def arrays(self, parts: list[Node], depth: int) -> Iterator[JsonValue]:
        """The array with as few items as the schemas allow; the items differ where they must."""
        least = max((n for part in parts if isinstance(n := part.get("minItems"), int)), default=0)
        holding = [
            (inner, count if isinstance(count := part.get("minContains"), int) else 1)
            for part in parts
            if (inner := part.inner("contains")) is not None
        ]
        differ = any(part.get("uniqueItems") is True for part in parts)
        made: list[JsonValue] = []
        for index in range(min(max([least, *(count for _, count in holding)]), _MAX_ITEMS)):
            extra = (inner for inner, count in holding if index < count)
            schemas = (*list_member_schemas(parts, index, self.work), *extra)
            item = self.make(schemas, depth + 1, made if differ else ()) if schemas else index
            if item is ABSENT:
                return
            made.append(item)
        yield made


def _parts(nodes: tuple[Node, ...]) -> list[Node]:
    return list({id(part): part for node in nodes for part in node.always}.values())


# --- texts and numbers ------------------------------------------------------------------------------------------------
# A value for each format that the judge asserts.
FORMATS: Final = {
    "date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "time": "12:00:00Z", "duration": "P1D",
    "email": "name@example.com", "idn-email": "name@example.com", "hostname": "example.com",
    "idn-hostname": "example.com", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uri": "https://example.com/",
    "uri-reference": "/path", "iri": "https://example.com/", "iri-reference": "/path", "uri-template": "/items/{id}",
    "uuid": "00000000-0000-4000-8000-000000000000", "json-pointer": "/path", "relative-json-pointer": "0",
    "regex": "^a$",
}  # fmt: skip
_LONGEST: Final = 2000
_STRETCHES: Final = (0, 1, 2, 3, 5, 8, 16, 32, 64, 128, 256)
_VARIANTS: Final = 60
# Enough digits for the limits of any real schema.
_ARITHMETIC: Final = Context(prec=60)


def make_texts(parts: Sequence[Node], patterns: Sequence[str] = ()) -> Iterator[str]:
    """Texts for places with these schemas (and these patterns), each once."""
    patterns = [*patterns, *(pattern for part in parts if isinstance(pattern := part.get("pattern"), str))]
    least = max((n for part in parts if isinstance(n := part.get("minLength"), int)), default=0)
    most = min((n for part in parts if isinstance(n := part.get("maxLength"), int)), default=_LONGEST)
    seen: set[str] = set()
    for text in _texts(parts, patterns, least, most):
        if text not in seen and least <= len(text) <= most:
            seen.add(text)
            yield text


def _texts(parts: Sequence[Node], patterns: Sequence[str], least: int, most: int) -> Iterator[str]:
    for form in (str(part.get("format")) for part in parts if part.has("format")):
        if (text := FORMATS.get(form)) is not None:
            missing = "a" * max(least - len(text), 0)
            yield from (text, text + missing, missing + text)
    for pattern in patterns:
        for stretch in (*_STRETCHES, least):
            text = make_text_for(pattern, stretch)
            yield from () if text is None else (text, text + "a" * max(least - len(text), 0))
    yield "..." if least <= 3 <= most else "a" * min(least, _LONGEST)
    for number in range(_VARIANTS):
        base = f"value{number}"
        yield base if len(base) <= most else chr(ord("a") + number % 26) * max(least, min(most, 1 + number // 26))


def make_numbers(parts: list[Node], *, fractions: bool) -> Iterator[JsonValue]:
    """Numbers for places with these schemas, integers first; `fractions` says whether fractions may follow."""
    seen: set[Decimal] = set()
    try:
        for number in islice(_numbers(parts), 4 * _VARIANTS):
            if number in seen or number.adjusted() > 300:
                continue
            seen.add(number)
            if number == number.to_integral_value(context=_ARITHMETIC):
                yield int(number)
            elif fractions:
                yield LosslessFloat(format(number.normalize(_ARITHMETIC), "f").encode())
    except InvalidOperation:  # a limit too large for the arithmetic
        return


def _numbers(parts: list[Node]) -> Iterator[Decimal]:
    bottom = max(_read_limits(parts, "minimum", "exclusiveMinimum"), default=None)
    top = min(_read_limits(parts, "maximum", "exclusiveMaximum"), default=None)
    yield from (Decimal(0), Decimal(1))
    start = bottom if bottom is not None else top if top is not None else Decimal(0)
    direction = 1 if bottom is not None or top is None else -1
    rounding = ROUND_CEILING if direction > 0 else ROUND_FLOOR
    whole = start.to_integral_value(rounding, _ARITHMETIC)
    for step in _read_limits(parts, "multipleOf"):
        first = _ARITHMETIC.multiply(_ARITHMETIC.divide(start, step).to_integral_value(rounding, _ARITHMETIC), step)
        yield from (_ARITHMETIC.add(first, direction * count * step) for count in range(_VARIANTS))
    yield start
    yield from (_ARITHMETIC.add(whole, Decimal(direction * count)) for count in range(_VARIANTS))
    if bottom is not None and top is not None:
        middle = _ARITHMETIC.divide(_ARITHMETIC.add(bottom, top), Decimal(2))
        yield middle
        yield from (_ARITHMETIC.divide(_ARITHMETIC.add(bottom, middle), Decimal(2 + count)) for count in range(5))


def _read_limits(parts: list[Node], *keywords: str) -> list[Decimal]:
    """The numbers that a schema's author wrote: 0.1, not the nearest double."""
    found = (part.get(keyword) for part in parts for keyword in keywords)
    return [
        Decimal(str(limit)) if isinstance(limit, float) else make_decimal(limit)
        for limit in found
        if isinstance(limit, int | float | LosslessFloat | Decimal) and not isinstance(limit, bool)
    ]


# --- texts of patterns ------------------------------------------------------------------------------------------------
_CLASSES: Final = {
    "d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t", "r": "\r", "b": "", "B": "",
}  # fmt: skip
# The text behind the parenthesis of a group, and behind a backslash; and a quantifier, which may be missing.
_GROUP: Final = re.compile(r"\?(?::|<?[=!]|<[^>]*>)|(?!\?)")
_ESCAPE: Final = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|[^\dpPkxu]", re.DOTALL)
_QUANTIFIER: Final = re.compile(r"(?:([*+?])|\{(\d{1,9})(,?)(\d{0,9})\}|(?!\{))\??")
# Characters for negated classes and dots, best first.
_ANY: Final = "a0-Z_ .x1"
_DEEPEST: Final = 40


def make_text_for(pattern: str, stretch: int = 0) -> str | None:
    """A text that a pattern probably describes, or None. Never raises."""
    reader = _Reader(pattern, stretch)
    try:
        text = reader.alternatives(0)
    except (ValueError, IndexError):  # the pattern is not one of the common ones
        return None
    return text if reader.at == len(pattern) and len(text) <= _LONGEST else None


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str, stretch: int) -> None:
        self.pattern = pattern
        self.stretch = stretch
        self.at = 0

    def take(self, token: re.Pattern[str]) -> re.Match[str]:
        """Returns the token that has to be here; reading continues behind it."""
        found = token.match(self.pattern, self.at)
        if found is None:
            raise ValueError(self.pattern)
        self.at = found.end()
        return found

    def goes_on_with(self, sign: str) -> bool:
        """Returns whether a character is here; reading continues behind it."""
        is_there = self.pattern.startswith(sign, self.at)
        self.at += is_there
        return is_there

    def alternatives(self, depth: int) -> str:
        """The text of the first alternative; the others are skipped."""
        if depth > _DEEPEST:
            raise ValueError(self.pattern)
        first = self.sequence(depth)
        while self.goes_on_with("|"):
            self.sequence(depth)
        return first

    def sequence(self, depth: int) -> str:
        parts: list[str] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            atom = self.atom(depth)
            sign, low, comma, high = self.take(_QUANTIFIER).groups()
            if low is not None:
                count = int(low) + (self.stretch if comma else 0)
                count = min(count, int(high)) if high else count
            else:
                count = {"*": self.stretch, "+": 1 + self.stretch, "?": 0}.get(sign, 1)
            parts.append(atom * min(count, _LONGEST))
        return "".join(parts)

    def atom(self, depth: int) -> str:
        if self.goes_on_with("("):
            kind = self.take(_GROUP)[0]
            text = self.alternatives(depth + 1)
            if not self.goes_on_with(")"):
                raise ValueError(self.pattern)
            return "" if kind.endswith(("=", "!")) else text
        if self.goes_on_with("["):
            return self.character_class()
        if self.goes_on_with("."):
            return "a"
        return "" if self.goes_on_with("^") or self.goes_on_with("$") else self.character()

    def character(self) -> str:
        """One character, which may be escaped."""
        if not self.goes_on_with("\\"):
            self.at += 1
            return self.pattern[self.at - 1]
        found = self.take(_ESCAPE)
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else _CLASSES.get(found[0], found[0])

    def character_class(self) -> str:
        negated = self.goes_on_with("^")
        spans: list[tuple[str, str]] = []
        while not self.goes_on_with("]"):
            low = high = self.character()
            if self.pattern[self.at] == "-" and self.pattern[self.at + 1] != "]":
                self.at += 1
                high = self.character()
            spans.append((low, high))
        if negated:
            return next((char for char in _ANY if not any(low <= char <= high for low, high in spans)), "")
        lows = [low for low, _ in spans]
        return min(lows, key=lambda low: (not (low.isascii() and low.isalnum()), low), default="")
