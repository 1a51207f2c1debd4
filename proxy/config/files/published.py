"""The schema of the config file: the main job's part, and over it the part of each plugin.

The main job's part is made from the declarations in `config/keys`, and the `config.schema.json` beside this file. A
plugin's part is a `config.schema.json` in its folder. A part repeats the objects that lead to its keys; objects are
merged, lists joined, and no part changes what another one says. `schemas/config.schema.json`, which editors complete
from, is the whole as `make docs` writes it.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Final

from proxy.config.keys.policy_keys import POLICY_KEYS
from proxy.core.model.values import JsonValue
from proxy.plugins import find_folder, list_plugins

SCHEMA_FILE: Final = "config.schema.json"


def load_published_schema() -> JsonValue:
    """The JSON Schema of the config file. It is read again each time, so that a serving process does not keep its
    700 KB."""
    folders = [Path(__file__).parent, *(find_folder(plugin) for plugin in list_plugins())]
    parts = [folder / SCHEMA_FILE for folder in folders if (folder / SCHEMA_FILE).is_file()]
    read = [json.loads(path.read_text(encoding="utf-8")) for path in parts]
    return reduce(merge_parts, [read[0], _write_policy_part(), *read[1:]])


def _write_policy_part() -> JsonValue:
    places: dict[str, dict[str, JsonValue]] = {"defaults": {}, "tool": {}, "route": {}}
    named = {kind.name: kind.write_schema() for key in POLICY_KEYS for kind in key.list_named()}
    for key in POLICY_KEYS:
        for place in key.places:
            places[place][key.name] = key.write_at(place)
    defined = {place: {"properties": keys} for place, keys in places.items()}
    return {"properties": {"defaults": defined.pop("defaults")}, "$defs": named | defined}


def write_published_schema() -> str:
    """The text of the schema, as it is published."""
    return json.dumps(load_published_schema(), indent=2, ensure_ascii=False) + "\n"


def merge_parts(below: JsonValue, over: JsonValue) -> JsonValue:
    """One part of a schema laid over another."""
    if isinstance(below, dict) and isinstance(over, dict):
        return below | {key: merge_parts(below[key], item) if key in below else item for key, item in over.items()}
    return [*below, *over] if isinstance(below, list) and isinstance(over, list) else over
