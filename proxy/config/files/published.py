"""The schema of the config file: the main job's part, and over it the part of each plugin.

Each part is a `config.schema.json`, beside this file or in the plugin's folder. A part repeats the objects that lead
to its keys; objects are merged, lists joined, and no part changes what another one says. `schemas/config.schema.json`,
which editors complete from, is the whole as `make docs` writes it.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.plugins import find_folder, list_plugins

SCHEMA_FILE: Final = "config.schema.json"


def load_published_schema() -> JsonValue:
    """The JSON Schema of the config file. It is read again each time, so that a serving process does not keep its
    700 KB."""
    folders = [Path(__file__).parent, *(find_folder(plugin) for plugin in list_plugins())]
    parts = [folder / SCHEMA_FILE for folder in folders if (folder / SCHEMA_FILE).is_file()]
    return reduce(merge_parts, (json.loads(path.read_text(encoding="utf-8")) for path in parts))


def write_published_schema() -> str:
    """The text of the schema, as it is published."""
    return json.dumps(load_published_schema(), indent=2, ensure_ascii=False) + "\n"


def merge_parts(below: JsonValue, over: JsonValue) -> JsonValue:
    """One part of a schema laid over another."""
    if isinstance(below, dict) and isinstance(over, dict):
        return below | {key: merge_parts(below[key], item) if key in below else item for key, item in over.items()}
    return [*below, *over] if isinstance(below, list) and isinstance(over, list) else over
