"""Real tools' schemas and damaged arguments: is there a second reading of what was repaired that the schema takes too?

If a repair was made, the value that came is read in other ways (as a number, a truth value, JSON, a list by another
separator, a list of one). A reading that says something else and is valid as well is a second meaning: the repair then
took one of two. A reading that only spells the repaired value otherwise is none.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from proxy.core.check.validation import SchemaError
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Forward, JsonProblem, Pointer
from tests.attacks import Found
from tests.core.repairing import call, policy

_TOOLS: Final = Path(__file__).parent.parent / "data" / "mcp-tools" / "tools.jsonl.gz"
WORDS: Final = ("alpha", "Ann", "5", "hello world", "x", "2024-01-05", "true", "a@b.co", "https://x.org", "12", "1.5")
# Settled cases of docs/repair.md: text that is JSON of the wanted type means its value, text with blanks is one item.
SETTLED: Final = frozenset(
    (
        *(("parse_json_string", name) for name in ("a list of one", "a list by ','", "a list by ' '")),
        ("wrap_single", "a list by ' '"),
        ("null_text", "a list of one"),
    )
)
SEPARATORS: Final = (",", ";", "|", " ", "、", "\n")
_DEPTH: Final = 5


def attack(seed: int, tries: int) -> Found:
    """Damages arguments of real tools `tries` times; `through` counts what was repaired and sent on."""
    random, found = Random(seed), Found(tries)
    tools = list(_tools())
    for _ in range(tries):
        schema, judged = random.choice(tools)
        sent = _sane(random, schema, schema)
        if not isinstance(sent, dict) or not sent:
            continue
        key = random.choice(list(sent))
        sent[key] = _damaged(random, sent[key])
        decision = decide(call(json.dumps(sent, ensure_ascii=False)), judged)
        if not isinstance(decision, Forward) or not decision.checked.repairs:
            continue
        found.through += 1
        went = json.loads(decision.checked.arguments)
        rules = "+".join(sorted({repair.rule for repair in decision.checked.repairs}))
        for place, came, made in _changes(sent, went):
            for name, other in _readings(came):
                settled = (rules, name) in SETTLED or _same(other, made)
                if not settled and _accepts(judged, _put(went, place, other)):
                    found.add(f"{rules}: also {name}", (place, came, made, other))
    return found


def _tools() -> Iterator[tuple[Any, ToolPolicy]]:
    for line in gzip.decompress(_TOOLS.read_bytes()).splitlines():
        schema = json.loads(line).get("inputSchema")
        if isinstance(schema, dict) and schema.get("properties"):
            try:
                yield schema, policy(parse(json.dumps(schema).encode()))
            except SchemaError:
                continue


def _accepts(judged: ToolPolicy, value: Any) -> bool:
    read = parse(json.dumps(value).encode())
    return not isinstance(read, JsonProblem) and judged.check is not None and judged.check.accepts(read)


def _same(one: Any, other: Any) -> bool:
    numbers = type(one) in (int, float) and type(other) in (int, float)
    return bool(one == other) if numbers else type(one) is type(other) and json.dumps(one) == json.dumps(other)


# --- what a tool may be sent, and how it goes wrong -------------------------------------------------------------------
def _sane(random: Random, schema: Any, root: Any, depth: int = 0) -> Any:
    schema = _resolved(schema, root)
    if depth > _DEPTH or "const" in schema:
        return schema.get("const")
    if schema.get("enum"):
        return random.choice(schema["enum"])
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return _sane(random, random.choice(schema[word]), root, depth + 1)
    kind = schema.get("type")
    kind = random.choice(kind) if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        needed = schema.get("required", [])
        named = schema.get("properties", {}).items()
        return {
            name: _sane(random, part, root, depth + 1)
            for name, part in named
            if name in needed or random.random() < 0.4
        }
    if kind == "array":
        return [_sane(random, schema.get("items", {}), root, depth + 1) for _ in range(random.randint(1, 3))]
    least = int(schema.get("minimum", 0))
    scalars = {"integer": random.randint(least, least + 20), "number": random.choice((1, 2.5, 10)), "null": None}
    scalars["boolean"] = random.random() < 0.5
    return scalars.get(kind, random.choice(WORDS))


def _resolved(schema: Any, root: Any) -> Any:
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or not str(schema.get("$ref", "")).startswith("#/"):
            break
        found = root
        for step in schema["$ref"][2:].split("/"):
            found = found.get(step, {}) if isinstance(found, dict) else {}
        schema = found
    return schema if isinstance(schema, dict) else {}


def _damaged(random: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return random.choice((str(value), str(value).lower(), int(value), "1", "yes"))
    if isinstance(value, int | float):
        text = str(value)
        return random.choice(
            (text, f" {text} ", f"{text}.0", text.zfill(4), [value], f"{text},000", f"{text}.000", None)
        )
    if isinstance(value, str):
        return random.choice((value.upper(), f" {value} ", [value], 5, None, "", value.title(), json.dumps(value)))
    if isinstance(value, list):
        words = list(map(str, value))
        texts = [mark.join(words) for mark in SEPARATORS]
        return random.choice((json.dumps(value), value[0] if value else "", *texts, [value], None, {"items": value}))
    if isinstance(value, dict):
        renamed = {"".join(word.title() for word in name.split("_")): part for name, part in value.items()}
        return random.choice((json.dumps(value), [value], renamed))
    return random.choice(([], "", "null", {}, 0))


# --- what else it may mean --------------------------------------------------------------------------------------------
def _changes(came: Any, made: Any, place: Pointer = ()) -> Iterator[tuple[Pointer, Any, Any]]:
    """The places at which a repaired value differs from the original, outermost first."""
    if isinstance(came, dict) and isinstance(made, dict):
        for name in made.keys() & came.keys():
            yield from _changes(came[name], made[name], (*place, name))
    elif isinstance(came, list) and isinstance(made, list) and len(came) == len(made):
        for index, (one, other) in enumerate(zip(came, made, strict=True)):
            yield from _changes(one, other, (*place, index))
    elif not _same(came, made):
        yield place, came, made


def _put(document: Any, place: Pointer, value: Any) -> Any:
    document = copy.deepcopy(document)
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return document


def _readings(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str):
        yield from _readings_of_text(value)
    elif isinstance(value, list):
        yield "each in a list", [[item] for item in value]
        yield "a list of this list", [value]
        if len(value) == 1:
            yield "its one item", value[0]
    elif isinstance(value, dict):
        yield "its values", list(value.values())
        if len(value) == 1:
            yield "its one value", next(iter(value.values()))
    elif isinstance(value, bool):
        yield "a number", int(value)
    elif isinstance(value, int | float) and value in (0, 1):
        yield "a truth value", bool(value)


def _readings_of_text(text: str) -> Iterator[tuple[str, Any]]:
    read = parse(text.strip().encode())
    if not isinstance(read, JsonProblem):
        yield "what it spells", json.loads(dumps(read))
    if text.strip().lower() in ("true", "1", "yes", "false", "0", "no"):
        yield "a truth value", text.strip().lower() in ("true", "1", "yes")
    for mark in SEPARATORS:
        if mark in text.strip():
            yield f"a list by {mark!r}", [part.strip() for part in text.split(mark) if part.strip()]
    if text.strip():
        yield "a list of one", [text]
