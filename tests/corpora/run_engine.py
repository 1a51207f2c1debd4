"""Runs the validation engine over every collected schema, beside jsonschema and jsonschema-rs, and counts differences.

Each schema judges its real calls, and copies of them with one place changed. Verdicts must be those of both others,
the (path, keyword) pairs those of jsonschema. `run_all` exits 1 at any difference.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import jsonschema_rs
from jsonschema.validators import validator_for

from proxy.core.check.validation import SchemaError, compile_check
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import normalise
from proxy.extensions.recording.comparing import rewrite_numeric_bounds
from tests.corpora.calls import rows

# The values that replace a value in turn, and the number of places of one call that are changed.
OTHERS: Final[tuple[JsonValue, ...]] = (None, True, 7, 2.5, -1, "", "x", [], ["x"], {}, {"x": 1})
MAX_PLACES: Final = 12


def engine(data: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Every collected schema, beside the other engines."""
    counts: Counter[str] = Counter()
    for text, values in _schemas(data).items():
        counts["schemas"] += 1
        _compare(json.loads(text), values, counts)
    yield "engine, beside jsonschema and jsonschema-rs", +counts


def _schemas(data: Path) -> dict[str, list[JsonValue]]:
    """Schema text -> the real calls of it, all collections together."""
    found: dict[str, list[JsonValue]] = {}
    for row in rows(data / "mcp-tools/tools.jsonl.gz"):
        found.setdefault(json.dumps(row["inputSchema"]), [])
    for row in rows(data / "bfcl/calls.jsonl.gz"):
        found.setdefault(json.dumps(row["json_schema"]), []).append(row["arguments"])
    for name, field in (("valid_calls", "arguments"), ("invalid_calls", "raw_arguments")):
        for row in rows(data / f"model_calls/{name}.jsonl.gz"):
            found.setdefault(json.dumps(row["json_schema"]), []).append(row[field])
    return found


def _compare(written: JsonValue, values: list[JsonValue], counts: Counter[str]) -> None:
    schema = rewrite_numeric_bounds(normalise(written)[0])
    try:
        check = compile_check(schema)
        plain = compile_check(schema, formats=False)
    except SchemaError as error:
        counts[f"refused ({error.message[:60]})"] += 1
        return
    oracle = validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    rust = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    for value in _variants([*values, *_made(schema)]):
        ours = parse(json.dumps(value).encode())
        counts["values"] += 1
        counts["valid"] += check.accepts(ours)
        if check.accepts(ours) is not rust.is_valid(value) or plain.accepts(ours) is not oracle.is_valid(value):
            counts["wrong"] += 1
            print("WRONG verdict", json.dumps(schema)[:300], json.dumps(value)[:300])
        expected = {(tuple(error.absolute_path), error.validator) for error in oracle.iter_errors(value)}
        told = {(entry.path, entry.keyword) for entry in plain.list_broken(ours)}
        if expected != told:
            counts["wrong"] += 1
            print("WRONG report", json.dumps(schema)[:300], json.dumps(value)[:300], expected ^ told)


def _variants(values: list[JsonValue]) -> Iterator[JsonValue]:
    for value in values:
        yield value
        for path in list(_places(value, ()))[:MAX_PLACES]:
            for other in OTHERS:
                yield _changed(value, path, other)
            if path:
                yield _changed(value, path, KeyError)


def _places(value: JsonValue, path: Pointer) -> Iterator[Pointer]:
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in members:
        yield from _places(item, (*path, step))


def _changed(value: JsonValue, path: Pointer, other: Any) -> JsonValue:
    """A copy with another value at `path`; with the place removed where `other` is KeyError."""
    if not path:
        return other
    made = copy.deepcopy(value)
    holder = made
    for step in path[:-1]:
        holder = holder[step]
    if other is KeyError:
        del holder[path[-1]]
    else:
        holder[path[-1]] = other
    return made


def _made(schema: JsonValue) -> Iterator[JsonValue]:
    """Calls made from the schema's own words: nothing, and each property at its type's plainest value."""
    plainest = {"string": "x", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}, "null": None}
    made = {}
    for name, part in (schema.get("properties") or {}).items() if isinstance(schema, dict) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        choices = part.get("enum") if isinstance(part, dict) else None
        made[name] = choices[0] if choices else plainest.get(kind if isinstance(kind, str) else "string")
    yield {}
    yield made
    yield {**made, "no_such_key": 1}


RUNS: Final = (engine,)
