"""Names of other systems' documents are answered with the key that holds here, and what is said can be written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.config.files.structure import list_other_names
from proxy.config.load import load
from proxy.config.mistakes import ConfigError

ROWS = list(list_other_names())
PAGE = (Path(__file__).parents[2] / "docs" / "evidence" / "other-systems.md").read_text(encoding="utf-8")
CONFIG = """
version: 1
listen: 127.0.0.1:0
upstreams:
  tools: {url: 'http://127.0.0.1:9'}
  model: {url: 'http://127.0.0.1:9'}
%s
routes:
  - {path: /a, upstream: tools, tool: web_search, schema: {type: object, properties: {a: {type: number}}}, %s}
  - {path: /b, upstream: none, tool: b, schema: {type: object, properties: {a: {type: number}}}, %s}
"""
_SCHEMA = "type: object, properties: {a: {type: number}}"  # a container has none
# Keys of the top level, and those of a route without an upstream; all others are keys of a route.
ON_TOP = ("guidance", "correction")
FINAL = ("finalize_output_retries",)
# The section that a model's corrections need as well.
MODEL = "correction: {upstream: model, model: m}"


def mistakes(folder: Path, text: str) -> str:
    """Returns what `check` says of a config; '' for a correct one."""
    path = folder / "config.yaml"
    path.write_text(text)
    try:
        load(path, {})
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("system", "name", "here"), ROWS, ids=lambda text: text if text.isidentifier() else "")
def test_the_key_that_holds_here_is_named_in_check_and_on_the_page(
    system: str, name: str, here: str, tmp_path: Path
) -> None:
    said = mistakes(tmp_path, CONFIG % (f"{name}: 1", "mode: enforce", "mode: enforce"))
    assert f"unknown key {name!r}  ({system} calls it so; here it is {here})" in said
    assert f"| {system} | `{name}` | {here} |" in PAGE


@pytest.mark.parametrize("written", sorted({text for row in ROWS for text in re.findall(r"`(.+?)`", row[2])}))
def test_a_key_of_the_page_is_a_valid_config(written: str, tmp_path: Path) -> None:
    key = written.partition(":")[0]
    top = written if key in ON_TOP and not written.startswith("correction") else ""
    if written.startswith("correction"):
        top = MODEL.replace("}", written.partition("{")[2].join((", ", "")))
    elif key == "correct":
        top = MODEL
    on_route = "mode: enforce" if key in (*ON_TOP, *FINAL) else written
    text = CONFIG % (top, on_route, written if key in FINAL else "mode: enforce")
    text = text.replace(f"schema: {{{_SCHEMA}}}, {written}", written) if key == "container" else text
    assert "" == mistakes(tmp_path, text)


def test_acodes_block_is_answered_with_all_four_keys(tmp_path: Path) -> None:
    block = """
tools:
  validation:
    retry: {max_attempts: 3}
    formatting: {max_message_length: 2000, max_errors_shown: 10, max_value_preview: 100}
"""
    said = mistakes(tmp_path, CONFIG % (block, "mode: enforce", "mode: enforce"))
    for key in ("attempts: {max: 3}", "max_chars: 2000", "max_errors: 10", "max_preview: 100"):
        assert key in said


def test_a_name_that_is_a_key_of_its_place_is_no_mistake(tmp_path: Path) -> None:
    assert "" == mistakes(tmp_path, CONFIG % (MODEL, "correct: {max_attempts: 1}", "mode: enforce"))
