"""Sends generated calls for every real schema through the proxy: tools of MCP servers and bodies of OpenAPI operations.

A valid call must be forwarded untouched. One whose values were spelt as text (wherever the schema excludes text) must
come back exactly. One with a model's mistakes may be rejected, but a forwarded one is valid and repairing it again
changes nothing. `run_all` exits 1 otherwise.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from proxy.core.check.validation import Check, SchemaError
from proxy.core.json.jsontext import are_equal, dumps, parse
from proxy.core.model.codes import DEPRECATED_FIELD
from proxy.core.model.values import ABSENT, Forward, JsonValue
from proxy.core.rules.rules import LEVELS
from proxy.extensions.operations.core.openapi import import_operation
from proxy.extensions.operations.core.openapi_schema import OpenApiError
from proxy.extensions.second_judge.core.examples import make_minimal_example
from tests.corpora.calls import check_of, judged, rows
from tests.corpora.generate import as_text, damaged, random_value

Found = Counter[str]


def mcp_tools(data: Path) -> Iterator[tuple[str, Found]]:
    """Generated calls for the input schema of every tool."""
    yield from generated(
        "mcp-tools", ((row["id"], row["inputSchema"]) for row in rows(data / "mcp-tools/tools.jsonl.gz"))
    )


def openapi(data: Path) -> Iterator[tuple[str, Found]]:
    """Generated bodies for every operation whose JSON body we can take."""
    yield from generated("openapi", openapi_bodies(data), seeds=2)


def openapi_bodies(data: Path) -> Iterator[tuple[str, JsonValue]]:
    """Each operation with a JSON body we can take, as name and schema of that body."""
    documents: dict[str, JsonValue] = {}
    for row in rows(data / "openapi/bodies.jsonl.gz"):
        api = row["api"]
        if api not in documents:
            documents[api] = json.loads(gzip.decompress((data / f"openapi/{api}.json.gz").read_bytes()))
        try:
            made = import_operation(documents[api], f"{row['method'].upper()} {row['path']}")
        except OpenApiError:
            continue
        yield f"{api} {row['operation']}", made.schema


def generated(name: str, schemas: Iterator[tuple[str, JsonValue]], seeds: int = 6) -> Iterator[tuple[str, Found]]:
    """The same runs for any schemas, each with a name for the report; `seeds` calls are made for each."""
    kept, as_they_are, spelt, wrong = Found(), Found(), Found(), Found()
    for number, (identity, schema) in enumerate(schemas):
        try:
            check = check_of(schema)
        except SchemaError:
            kept["does not compile"] += 1
            continue
        kept["minimal example" if make_minimal_example(check) is not ABSENT else f"no minimal example: {identity}"] += 1
        for seed in range(seeds):
            chance = Random(number * seeds + seed)
            value = random_value(check, chance)
            if value is ABSENT:
                as_they_are["none found"] += 1
                continue
            as_they_are[_kept(identity, schema, value)] += 1
            spelt[_recovered(identity, schema, value, as_text(check, value, chance))] += 1
            wrong[_sound(identity, check, schema, damaged(value, chance))] += 1
    yield f"{name}, schemas", kept
    yield f"{name}, generated calls", as_they_are
    yield f"{name}, spelt as text", spelt
    yield f"{name}, with mistakes", wrong


def _kept(identity: str, schema: JsonValue, value: JsonValue) -> str:
    text = dumps(value)
    for level in LEVELS:
        decision = judged(schema, text, level)
        if not isinstance(decision, Forward):
            return _wrong(identity, "a valid call was refused", text)
        if {each.code for each in decision.checked.warnings} - {DEPRECATED_FIELD}:
            return _wrong(identity, "a valid call was warned about", text)
        if decision.checked.arguments != text:
            if are_equal(decision.checked.value, value):
                return "respelt"  # 3.0 for an integer
            return _wrong(identity, "a valid call was changed", text)
    return "untouched"


def _recovered(identity: str, schema: JsonValue, value: JsonValue, sent: JsonValue) -> str:
    if are_equal(value, sent):
        return "nothing to spell"
    decision = judged(schema, dumps(sent), "standard")
    if not isinstance(decision, Forward):
        return "refused"
    if are_equal(parse(decision.checked.arguments), value):
        return "recovered"
    return _wrong(identity, "another value came back", dumps(sent))


def _sound(identity: str, check: Check, schema: JsonValue, sent: JsonValue) -> str:
    decision = judged(schema, dumps(sent), "lenient")
    if not isinstance(decision, Forward):
        return "refused"
    text = decision.checked.arguments
    again = judged(schema, text, "lenient")
    settled = isinstance(again, Forward) and again.checked.arguments == text
    if not check.accepts(parse(text)) or not settled:
        return _wrong(identity, "what went on is not valid or not settled", dumps(sent))
    return "repaired" if decision.checked.repairs else "valid"


def _wrong(identity: str, reason: str, text: bytes) -> str:
    print("WRONG", identity, reason, text[:300])
    return "wrong"


RUNS: Final = (mcp_tools, openapi)
