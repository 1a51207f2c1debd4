"""The quick look at a config's structure says what the whole schema says."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from proxy.config.files import fast_structure
from proxy.config.files.published import load_published_schema
from proxy.core.check.validation import compile_check
from tests.config.test_load import list_cases

ROOT = Path(__file__).parents[2]
SCHEMA = load_published_schema()
EXAMPLE = yaml.safe_load((ROOT / "config.example.yaml").read_text(encoding="utf-8"))
HEAD = {"version": 1, "upstreams": {"tools": {"url": "http://tools:80"}}}


def mistaken() -> Iterator[Any]:
    """The configs of the collection of mistakes, as YAML reads them."""
    for case in list_cases():
        try:
            written = yaml.safe_load(case.get("whole") or case["below"])
        except yaml.YAMLError:
            continue
        if isinstance(written, dict):
            yield {**HEAD, **written} if "below" in case else written


def damaged() -> Iterator[Any]:
    """The example config with one section replaced by what no section is, or with a key that nothing knows."""
    for key in EXAMPLE:
        yield {**deepcopy(EXAMPLE), key: 1.5}
    for holder in (EXAMPLE["routes"][0], next(iter(EXAMPLE["upstreams"].values()))):
        holder["unheard_of"] = 1
        yield deepcopy(EXAMPLE)
        del holder["unheard_of"]


def test_the_quick_verdict_is_that_of_the_whole_schema() -> None:
    whole = compile_check(SCHEMA)
    configs = [EXAMPLE, *mistaken(), *damaged()]
    expected = [whole.accepts(config) for config in configs]
    assert expected == [fast_structure.accepts(load_published_schema, config) for config in configs]
    assert {True, False} == set(expected)


def test_no_property_of_a_config_is_called_like_the_keyword() -> None:
    def names(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.get("properties", {})
        for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            yield from names(inner)

    assert "properties" not in set(names(SCHEMA))
