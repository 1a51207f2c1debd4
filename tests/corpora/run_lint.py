"""Reads every collected schema as one of an operator's own: what is right stays right.

A finding about one of them is false with two exceptions. `TRUE_MISTAKES` names it, because somebody has looked at it in
its source, or the schema accepts the same values without the keyword that the finding calls idle. Schemas that no value
can satisfy are counted apart. If their cause is a list of values, jsonschema confirms that it refuses each of them.
`run_all` exits 1 for anything else.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Final

from jsonschema import Draft202012Validator

from proxy.core.check.metaschema import make_exact
from proxy.core.check.validation import Check, SchemaError
from proxy.core.json.jsontext import find_at_pointer
from proxy.core.lint.contradictions import list_unsatisfiable
from proxy.core.lint.findings import Finding
from proxy.core.lint.keywords import lint
from proxy.core.model.values import ABSENT, JsonValue
from proxy.core.schema.drafts import Draft, is_conditional
from proxy.core.schema.nodes import Node
from tests.corpora.calls import check_of, rows
from tests.corpora.generate import damaged, random_value
from tests.corpora.run_schemas import Found, openapi_bodies

# Keywords that are misspelt in the source itself: OpenAI's description bounds a list by `min_items` and `max_items`.
TRUE_MISTAKES: Final = frozenset(["min_items", "max_items"])
_KEYS: Final = ("schema", "json_schema", "parameters", "inputSchema", "outputSchema")
_FOLDERS: Final = ("bfcl", "mcp-tools", "model_calls", "real-failures", "real-failures-2026", "one-meaning",
                   "two-meanings", "malformed-json")  # fmt: skip


def lint_of_schemas(data: Path) -> Iterator[tuple[str, Found]]:
    """Yields the findings in the schemas of each collection."""
    for folder in _FOLDERS:
        yield f"{folder}, read in vain", _examine(_collected(data / folder))
    yield "json-schema-test-suite, read in vain", _examine(_suite(data / "json-schema-test-suite"))


def lint_of_operations(data: Path) -> Iterator[tuple[str, Found]]:
    """The same for the bodies of operations."""
    yield "openapi, read in vain", _examine(schema for _, schema in openapi_bodies(data))


def _collected(folder: Path) -> Iterator[JsonValue]:
    for file in sorted((*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz"))):
        for row in rows(file):
            yield from (row[key] for key in _KEYS if isinstance(row.get(key), dict))


def _suite(folder: Path) -> Iterator[JsonValue]:
    for file in sorted(folder.glob("draft*.json.gz")):
        stack = [json.loads(gzip.decompress(file.read_bytes()))]
        while stack:
            value = stack.pop()
            if isinstance(value, dict) and {"schema", "tests"} <= value.keys():
                yield value["schema"]
            elif isinstance(value, dict | list):
                stack.extend(value.values() if isinstance(value, dict) else value)


def _examine(schemas: Iterator[JsonValue]) -> Found:
    found: Found = Counter(wrong=0)
    seen: set[str] = set()
    for schema in schemas:
        text = json.dumps(schema, sort_keys=True)
        if text in seen:
            continue
        seen.add(text)
        try:
            check = check_of(schema)
        except (SchemaError, RecursionError):
            found["does not compile"] += 1
            continue
        found[_judge(check)] += 1
    return found


def _judge(check: Check) -> str:
    grave = [finding for finding in lint(check.schemas) if finding.is_grave]
    if false := [each for each in grave if not _is_true(check, each)]:
        print("WRONG", false[0].path, false[0].message, false[0].hint[:200])
        return "wrong"
    for node, message, _ in list_unsatisfiable(check):
        if any(not _refuses(node, choice) for choice in node.choices or ()):
            print("WRONG", node.path, message)
            return "wrong"
    if grave:
        return "misspelt or idle in its source"
    contrary = [node for node, _, _ in list_unsatisfiable(check) if not is_conditional(node.path)]
    return "cannot be satisfied" if contrary else "right"


def _is_true(check: Check, finding: Finding) -> bool:
    """Returns whether a finding is known, or about a keyword without which the schema gives the same verdicts."""
    if str(finding.path[-1:][0] if finding.path else "") in TRUE_MISTAKES:
        return True
    if finding.is_keyword or finding.document != check.schemas.base or finding.path[-2:-1] == ("properties",):
        return False
    root = deepcopy(check.schemas.root.raw)
    del find_at_pointer(root, finding.path[:-1])[finding.path[-1]]
    without = check_of(root)
    made = [random_value(check, Random(seed)) for seed in range(20)]
    values = [*_SAMPLES, *(value for value in made if value is not ABSENT)]
    values += [damaged(value, Random(seed)) for seed, value in enumerate(values) if isinstance(value, dict)]
    return all(check.accepts(value) == without.accepts(value) for value in values)


_SAMPLES: Final[tuple[JsonValue, ...]] = (
    None,
    True,
    0,
    -7,
    10**20,
    "",
    "a",
    "2026-01-01",
    [],
    [1, 1],
    {},
    {"a": 1},
    {"b": []},
)


def _refuses(node: Node, choice: JsonValue) -> bool:
    """Returns whether jsonschema refuses a listed value at its own place. It knows fewer formats than we do."""
    if node.has("format"):
        return True
    schema = {key: make_exact(value, Draft.D2020) for key, value in node.keywords.items()}
    return not Draft202012Validator(schema).is_valid(make_exact(choice, Draft.D2020))


RUNS: Final = (lint_of_schemas, lint_of_operations)
