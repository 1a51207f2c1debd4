"""The schema of the config file, made from the declarations in `config/keys` and those of the plugins.

Objects are merged and lists are joined, so no part changes another one. `make docs` writes the whole to
`schemas/config.schema.json`, which editors read.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Final

from proxy.config.keys.kinds import Kind
from proxy.config.keys.section_keys import CONFIG
from proxy.core.model.values import JsonValue
from proxy.plugin import Plugin
from proxy.plugins import list_keys, list_plugins

META: Final = "https://json-schema.org/draft/2020-12/schema"


def load_published_schema(used: Container[str] | None = None) -> JsonValue:
    """The JSON Schema of the config file, without keys of the main job that are not `used`. It is made again each time,
    so that a serving process does not keep its 700 KB."""
    declared = [part for plugin in list_plugins() if _is_used(plugin, used) for part in plugin.declare_keys().items()]
    kinds: dict[str, Kind] = {}
    for kind in (CONFIG, *(kind for _, kind in declared)):
        kind.find_named(kinds)
    own = {"$schema": META, **CONFIG.write_schema(used)}
    own["$defs"] = {name: kind.write_schema(used) for name, kind in kinds.items()}
    for place, kind in declared:
        if (holder := own["$defs"].get(place) or own["properties"].get(place) if place else own) is not None:
            holder["properties"] = merge_parts(holder["properties"], kind.write_schema(used)["properties"])
    return own


def _is_used(plugin: Plugin, used: Container[str] | None) -> bool:
    """Returns whether a config with these keys may have a key of a plugin, or its value of `protocol`."""
    keys = [*list_keys(plugin), *(["protocol"] if getattr(plugin, "protocol", "") else [])]
    return any(used is None or key in used for key in keys)


def write_published_schema() -> str:
    """The text of the schema, as it is published."""
    return json.dumps(load_published_schema(), indent=2, ensure_ascii=False) + "\n"


def merge_parts(below: JsonValue, over: JsonValue) -> JsonValue:
    """One part of a schema laid over another."""
    if isinstance(below, dict) and isinstance(over, dict):
        return below | {key: merge_parts(below[key], item) if key in below else item for key, item in over.items()}
    return [*below, *over] if isinstance(below, list) and isinstance(over, list) else over
