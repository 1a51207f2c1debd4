"""Random valid values of a schema. The corpus runs send them through the proxy and expect them back untouched.

The walk is that of `examples.py`, with chance where that one takes the smallest: a branch of a union, an optional key,
the length of a list, a nasty text. The result is validated; if no try is valid there is no value.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.json.jsontext import LosslessFloat, dumps
from proxy.core.model.values import ABSENT, JsonValue
from proxy.core.model.work import Work
from proxy.core.rules.facts import list_declared, list_member_schemas, list_required, read_facts
from proxy.core.schema.nodes import Node
from proxy.extensions.second_judge.core.examples import make_minimal_example, make_numbers, make_texts

# Texts that look like something else: none of them may be touched where text is legal.
TEXTS: Final = (
    "", "a", " ", "5", "-1.0", "1e3", "007", "01234", "1,000", "50%", "0x10", "1_000", "٤٢", "true", "False", "null",
    "None", "[1]", '["a"]', "['a']", '{"a":1}', "a,b", "yes", "2026-01-15", "10 minutes", "\\u0000", "tab\tline\n",
    "é\U0001f600", "NaN", "```json", "a" * 300,
)  # fmt: skip
NUMBERS: Final = (0, 1, -1, 42, 2**63, 10**30, LosslessFloat(b"1.5"), LosslessFloat(b"1.10"), LosslessFloat(b"1e-7"))
_TRIES: Final = 12
_MAX_DEPTH: Final = 8


def random_value(check: Check, chance: Random) -> JsonValue:
    """A valid value of a schema, `ABSENT` where none was found. The same chance gives the same value."""
    maker = _Generator(check, chance)
    for _ in range(_TRIES):
        value = maker.value((check.root,), 0)
        if value is not ABSENT and check.accepts(value):
            return value
    return make_minimal_example(check)


class _Generator:
    def __init__(self, check: Check, chance: Random) -> None:
        self.check = check
        self.chance = chance
        self.work = Work(10**9)
        self.left = 400

    def value(self, nodes: tuple[Node, ...], depth: int) -> JsonValue:
        self.left -= 1
        if self.left < 0 or depth > _MAX_DEPTH:
            return ABSENT
        for _ in range(_TRIES if depth else 1):
            made = self.draw(nodes, depth)
            if made is not ABSENT and all(self.check.accepts_at(node, made) for node in nodes):
                return made
        return ABSENT

    def draw(self, nodes: tuple[Node, ...], depth: int) -> JsonValue:
        parts = _parts(nodes)
        choices = [choice for part in parts for choice in part.choices or ()]
        if choices:
            return self.chance.choice(choices)
        known = {id(part) for part in parts}
        for part in parts:
            for branches in (part.any_of, part.one_of):
                if branches and not any(id(branch) in known for branch in branches):
                    return self.value((*nodes, self.chance.choice(branches)), depth + 1)
        types = sorted(frozenset.intersection(*(read_facts(node).site.types for node in nodes)))
        return self.of_type(self.chance.choice(types), parts, depth) if types else ABSENT

    def of_type(self, kind: str, parts: list[Node], depth: int) -> JsonValue:
        match kind:
            case "object":
                return self.object(parts, depth)
            case "array":
                return self.array(parts, depth)
            case "string":
                return self.chance.choice((*TEXTS, *make_texts(parts)))
            case "boolean":
                return self.chance.choice((False, True))
            case "integer" | "number":
                some = [*NUMBERS, *make_numbers(parts, fractions=kind == "number")]
                return self.chance.choice(some)
            case _:
                return None

    def object(self, parts: list[Node], depth: int) -> JsonValue:
        made: dict[str, JsonValue] = {}
        wanted = list_required(parts)
        names = sorted(list_declared(parts) | wanted)
        self.chance.shuffle(names)
        if not any(part.additional is not None and part.additional.never for part in parts):
            names += self.chance.choices(("extra", "startDate", "x-y", "5"), k=self.chance.randrange(2))
        for name in names:
            if name not in wanted and self.chance.random() < 0.5:
                continue
            schemas = tuple(list_member_schemas(parts, name, self.work))
            member = self.value(schemas, depth + 1) if schemas else self.chance.choice((*TEXTS, *NUMBERS))
            if member is not ABSENT:
                made[name] = member
        return made

    def array(self, parts: list[Node], depth: int) -> JsonValue:
        least = max((n for part in parts if isinstance(n := part.get("minItems"), int)), default=0)
        made = []
        for index in range(least + self.chance.randrange(4)):
            schemas = tuple(list_member_schemas(parts, index, self.work))
            item = self.value(schemas, depth + 1) if schemas else self.chance.choice((*TEXTS, *NUMBERS))
            if item is not ABSENT:
                made.append(item)
        return made


def _parts(nodes: Iterable[Node]) -> list[Node]:
    return list({id(part): part for node in nodes for part in node.always}.values())


# --- damage ---------------------------------------------------------------------------------------------------------
def as_text(check: Check, value: JsonValue, chance: Random, share: float = 1.0) -> JsonValue:
    """The value with numbers, booleans and containers turned into text wherever the schema excludes text; `share` is
    how many of them. Undoing it exactly is what the proxy is for."""
    return _as_text(check, [check.root], value, chance, share, top=True)


def _as_text(
    check: Check, nodes: list[Node], value: JsonValue, chance: Random, share: float, *, top: bool = False
) -> JsonValue:
    parts = _chosen(check, nodes, value)
    made = value
    if isinstance(value, dict | list):
        members = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        changed = [
            _as_text(check, schemas, item, chance, share)
            if (schemas := list_member_schemas(parts, step, Work(10**6)))
            else item
            for step, item in members
        ]
        made = dict(zip(value, changed, strict=True)) if isinstance(value, dict) else changed
        if made != value and all(check.accepts_at(node, made) for node in nodes):
            made = value  # another branch takes the texts, so they are legal there
    if top or isinstance(value, str) or value is None or any(read_facts(node).site.free_text for node in nodes):
        return made
    if any("string" in read_facts(node).site.types for node in nodes) or chance.random() > share:
        return made
    return dumps(made).decode()


def _chosen(check: Check, nodes: list[Node], value: JsonValue) -> list[Node]:
    """The schemas that judge a value, with the branches that take it."""
    found: dict[int, Node] = {}
    stack = list(nodes)
    while stack:
        for part in stack.pop().always:
            if id(part) not in found:
                found[id(part)] = part
                stack += [branch for branch in (*part.any_of, *part.one_of) if check.accepts_at(branch, value)]
    return list(found.values())


def damaged(value: JsonValue, chance: Random) -> JsonValue:
    """The value with some of the mistakes that models make, whatever the schema says."""
    if isinstance(value, dict):
        made = {_misspelt(key, chance): damaged(item, chance) for key, item in value.items()}
        if chance.random() < 0.2:
            made[chance.choice(("a", "b", "toolCallId", "extra"))] = chance.choice((None, "", "x"))
        value = made
    elif isinstance(value, list):
        value = [damaged(item, chance) for item in value]
    if chance.random() > 0.3:
        return value
    if isinstance(value, bool):
        return chance.choice((str(value), str(value).lower(), int(value)))
    if isinstance(value, str):
        return chance.choice((value.upper(), f" {value}", [value], ""))
    if value is None:
        return chance.choice(("null", "None", ""))
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    text = dumps(value).decode()
    return chance.choice((text, f" {text} ", [value]))


def _misspelt(key: str, chance: Random) -> str:
    return chance.choice((key, key, key, key.replace("_", "-"), key.title()))
