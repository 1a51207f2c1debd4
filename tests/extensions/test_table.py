"""The table of extensions: what a row names is there, and a plain proxy imports none of it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.config.files.published import SCHEMA_FILE
from proxy.extensions import EXTENSIONS, Extension, load_place
from tests.extensions.test_locks import PLAIN, SERVE

ROOT = Path(__file__).parents[2]
# Fields of a row that name no place.
WORDS = {
    "name",
    "adds",
    "uses",
    "other_keys",
    "keys",
    "callers",
    "method",
    "methods",
    "is_harmless",
    "is_sampler",
    "title",
    "text",
    "option",
}


def places(row: Any) -> Iterator[str]:
    """Every place that a row names, `module` or `module:name`."""
    for each in fields(row):
        value = getattr(row, each.name)
        for item in value.values() if isinstance(value, dict) else [value]:
            if is_dataclass(item):
                yield from places(item)
            elif isinstance(item, dict):  # the keywords of a flag
                yield from [item["type"]] if "type" in item else []
            elif each.name not in WORDS and item:
                yield item


def keys_of(value: Any) -> Iterator[str]:
    """The keys of the config that a part of its schema describes, outermost first."""
    for name, inner in value.get("properties", {}).items():
        own = {key for key in inner if key != "properties"}
        yield from [name] if own else keys_of(inner)
    for inner in value.get("$defs", {}).values():
        if set(inner) == {"properties"}:
            yield from keys_of(inner)


@pytest.mark.parametrize("row", EXTENSIONS, ids=lambda row: row.name)
def test_what_a_row_names_is_there(row: Extension) -> None:
    assert row.is_installed
    assert ast.get_docstring(ast.parse((row.folder / "__init__.py").read_text(encoding="utf-8")))
    assert set(row.uses) <= {other.name for other in EXTENSIONS}
    assert [] == [place for place in places(row) if not place.startswith(f"{row.name}.") or load_place(place) is None]


@pytest.mark.parametrize("row", EXTENSIONS, ids=lambda row: row.name)
def test_every_key_of_an_extension_is_known_to_be_its(row: Extension) -> None:
    path = row.folder / SCHEMA_FILE
    described = set(keys_of(json.loads(path.read_text(encoding="utf-8")))) if path.is_file() else set()
    assert described == {*row.keys, *(key for backend in row.backends.values() for key in backend.keys)}


def test_no_two_extensions_have_a_verb_a_key_or_a_page_of_one_name() -> None:
    for listed in (
        [verb for row in EXTENSIONS for verb in row.verbs],
        [key for row in EXTENSIONS for key in row.keys],
        [path for row in EXTENSIONS for path in row.pages],
    ):
        assert sorted(set(listed)) == sorted(listed)


def test_a_plain_config_is_served_without_importing_any(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(PLAIN, encoding="utf-8")
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", SERVE], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (0, ["[400, 502]", "[]"]) == (done.returncode, done.stdout.splitlines()), done.stderr
