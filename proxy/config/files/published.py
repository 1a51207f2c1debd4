"""The schema of the config file: the main job's part, and over it the part of each extension that is installed.

Each part is a `config.schema.json`, beside this file or in the extension's folder. A part repeats the objects that lead
to its keys; objects are merged, lists joined, and no part changes what another one says. `schemas/config.schema.json`,
which editors complete from, is the whole as `make docs` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions import EXTENSIONS

SCHEMA_FILE: Final = "config.schema.json"


def load_published_schema() -> JsonValue:
    """The JSON Schema of the config file. It is read again each time, so that a serving process does not keep its
    700 KB."""
    return _put_together(_parse_part)


def write_published_schema() -> str:
    """The text of the schema, as it is published."""
    return json.dumps(_put_together(json.loads), indent=2, ensure_ascii=False) + "\n"


def list_parts() -> list[Path]:
    """The files that the schema is put together from, the main job's first."""
    folders = [Path(__file__).parent, *(row.folder for row in EXTENSIONS)]
    return [folder / SCHEMA_FILE for folder in folders if (folder / SCHEMA_FILE).is_file()]


def merge_parts(below: JsonValue, over: JsonValue) -> JsonValue:
    """One part of a schema laid over another."""
    if isinstance(below, dict) and isinstance(over, dict):
        return below | {key: merge_parts(below[key], item) if key in below else item for key, item in over.items()}
    return [*below, *over] if isinstance(below, list) and isinstance(over, list) else over


def _put_together(read: Callable[[str], Any]) -> JsonValue:
    return reduce(merge_parts, (read(path.read_text(encoding="utf-8")) for path in list_parts()))


def _parse_part(text: str) -> JsonValue:
    value = parse(text.encode())
    if isinstance(value, JsonProblem):
        raise TypeError(f"{SCHEMA_FILE}: {value.reason}")
    return value
