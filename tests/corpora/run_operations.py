"""Writes examples of every operation into HTTP requests and reads them out again: each comes back as the same.

A schema whose example nobody can make (a pattern, an impossible schema) is counted, and so is an operation that cannot
be taken. `run_all` exits 1 if a value does not come back.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.core.check.validation import SchemaError
from proxy.core.json.jsontext import are_equal, dumps
from proxy.core.model.values import ABSENT, JsonValue
from proxy.extensions.operations.adapters.http_request import BoundOperation, write_request
from proxy.extensions.operations.core.channels import find_unwritable
from proxy.extensions.operations.core.openapi import list_operations
from proxy.extensions.operations.core.openapi_schema import OpenApiError
from proxy.extensions.second_judge.core.examples import make_full_example, make_minimal_example
from tests.corpora.run_schemas import Found
from tests.extensions.operations.test_round_trip import bound, came_back


def operations(data: Path) -> Iterator[tuple[str, Found]]:
    """Two examples for every operation of every description."""
    for path in sorted((data / "openapi").glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        found: Found = Counter()
        for each in list_operations(document):
            name = f"{each.method} {each.path}"
            try:
                operation, check = bound(document, name)
            except (OpenApiError, SchemaError):
                found["not taken"] += 1
                continue
            for value in (make_minimal_example(check), make_full_example(check, 20)):
                found[_went(operation, check.accepts(value) if value is not ABSENT else None, value, name)] += 1
        yield f"operations {path.name.removesuffix('.json.gz')}", found


def _went(operation: BoundOperation, accepted: bool | None, value: JsonValue, name: str) -> str:
    if not accepted:
        return "no example"
    if any(each.name in value for each in operation.in_place("file")):
        return "has a file"
    if find_unwritable(operation, value):
        return "not writable"
    try:
        back = came_back(operation, value)
    except AssertionError as error:
        print("WRONG", name, str(error)[:300])
        return "wrong"
    if are_equal(value, back):
        return "came back"
    if write_request(operation, back) == write_request(operation, value):  # `a` is the text of "a" and of ["a"]
        return "same text"
    print("WRONG", name, dumps(value)[:300], dumps(back)[:300])
    return "wrong"


RUNS: Final = (operations,)
