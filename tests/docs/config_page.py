"""Writes the rows of docs/reference/keys.md from the config's schema, which explains each key beside its type.

python -m tests.docs.config_page    writes the page (`make docs`)

The schema is put together from the main job's part and each extension's own (config/files/published.py). The page's
text, its tables and the order of their rows are in the page; the default and the meaning of a key come from here. The
row of a new key is written behind the row of the key before it in the schema; one of a key that is gone is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.config.files.published import load_published_schema
from proxy.core.model.values import JsonValue

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "keys.md"
SCHEMA: Final = load_published_schema()

# What `defaults`, a tool and a route share, and the page explains once.
POLICY_KEYS: Final = frozenset({*SCHEMA["properties"]["defaults"]["properties"], "validation"})
# The columns of a table of keys.
_TITLES: Final = "| key: default | meaning |"
_ROW: Final = re.compile(r"\| `([^`:]+)(?:: [^`]*)?` \|")
_LINK: Final = re.compile(r"\(docs/([a-z-]+\.md)\)")


def resolve(schema: JsonValue) -> JsonValue:
    """A schema with what its `$ref` leads to; its own annotations win."""
    if "$ref" not in schema:
        return schema
    return {**resolve(SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]), **schema, "$ref": None}


def _list_objects(schema: JsonValue) -> Iterator[JsonValue]:
    schema = resolve(schema)
    if "properties" in schema:
        yield schema
    for branch in schema.get("anyOf", ()):
        yield from _list_objects(branch)


def list_keys(schema: JsonValue, prefix: str, skip: frozenset[str] = frozenset()) -> Iterator[tuple[str, JsonValue]]:
    """(dotted key, its schema) of everything below a schema."""
    for holder in _list_objects(schema):
        for key, value in holder["properties"].items():
            if key in skip:
                continue
            inner = resolve(value)
            yield prefix + key, inner
            if key in ("schema", "rules") or prefix + key == "routes[].container":
                continue  # data of the user, rules (docs/repair.md), and what tools.NAME.container says already
            yield from list_keys(value, f"{prefix}{key}.")
            if inner.get("type") == "array":
                yield from list_keys(inner["items"], f"{prefix}{key}[].")


def list_all_keys() -> dict[str, JsonValue]:
    """Every key of the page, with its schema."""
    own = POLICY_KEYS - {"validation"}
    return {
        **dict(list_keys(SCHEMA, "", frozenset({"upstreams", "defaults", "tools", "routes"}))),
        **dict(list_keys(SCHEMA["$defs"]["upstream"], "upstreams.NAME.")),
        **dict(list_keys(SCHEMA["properties"]["defaults"], "")),
        **dict(list_keys(SCHEMA["$defs"]["tool"], "tools.NAME.", own)),
        **dict(list_keys(SCHEMA["$defs"]["route"], "routes[].", own)),
    }


def _write_row(key: str, schema: JsonValue) -> str:
    shown = key
    if "default" in schema:
        written = schema["default"]
        shown = f"{key}: {written or chr(39) * 2}" if isinstance(written, str) else f"{key}: {json.dumps(written)}"
    meaning = _LINK.sub(r"([\1](../\1))", schema["description"]).replace("|", "\\|")
    return f"| `{shown}` | {meaning} |"


def make_page(text: str) -> str:
    """The page with the rows of the schema's keys in place of its old rows."""
    keys = list_all_keys()
    lines: list[str] = []
    in_table = False
    there: set[str] = set()
    for line in text.splitlines():
        in_table = line == _TITLES or (in_table and line.startswith("|"))
        found = _ROW.match(line) if in_table else None
        if found is None:
            lines.append(line)
        elif found[1] in keys:
            there.add(found[1])
            lines.append(_write_row(found[1], keys[found[1]]))
    before = ""
    for key, schema in keys.items():
        if key not in there:
            place = next(at for at, line in enumerate(lines) if (row := _ROW.match(line)) and row[1] == before)
            lines.insert(place + 1, _write_row(key, schema))
        before = key
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
