"""The schema of the config file, made from the declarations in `config/keys` and those of the plugins.

Objects are merged, lists joined, and no part changes what another one says. `schemas/config.schema.json`, which editors
complete from, is the whole as `make docs` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Container
from functools import reduce
from typing import Final

from proxy.config.keys.kinds import Kind
from proxy.config.keys.section_keys import CONFIG
from proxy.core.model.values import JsonValue
from proxy.plugins import find_folder, list_keys, list_plugins

SCHEMA_FILE: Final = "config.schema.json"
META: Final = "https://json-schema.org/draft/2020-12/schema"


def load_published_schema(used: Container[str] | None = None) -> JsonValue:
    """The JSON Schema of the config file, without keys of the main job that are not `used`. It is made again each time,
    so that a serving process does not keep its 700 KB."""
    signs = ((plugin, [*list_keys(plugin), *["protocol"] * hasattr(plugin, "protocol")]) for plugin in list_plugins())
    plugins = (plugin for plugin, keys in signs if used is None or any(map(used.__contains__, keys)))
    declared = [part for plugin in plugins for part in plugin.declare_keys().items()]
    kinds: dict[str, Kind] = {}
    for kind in (CONFIG, *(kind for _, kind in declared)):
        kind.find_named(kinds)
    own = {"$schema": META, **CONFIG.write_schema(used)}
    own["$defs"] = {name: kind.write_schema(used) for name, kind in kinds.items()}
    for place, kind in declared:
        if (holder := own["$defs"].get(place) or own["properties"].get(place) if place else own) is not None:
            holder["properties"] = merge_parts(holder["properties"], kind.write_schema(used)["properties"])
    files = (find_folder(plugin) / SCHEMA_FILE for plugin in list_plugins())
    parts = (json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file())
    return reduce(merge_parts, parts, own)


def write_published_schema() -> str:
    """The text of the schema, as it is published."""
    return json.dumps(load_published_schema(), indent=2, ensure_ascii=False) + "\n"


def merge_parts(below: JsonValue, over: JsonValue) -> JsonValue:
    """One part of a schema laid over another."""
    if isinstance(below, dict) and isinstance(over, dict):
        return below | {key: merge_parts(below[key], item) if key in below else item for key, item in over.items()}
    return [*below, *over] if isinstance(below, list) and isinstance(over, list) else over
