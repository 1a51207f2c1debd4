"""The plugins that ship with the proxy: what one says is there, and a plain proxy imports nothing of it but that."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import proxy.plugin
from proxy.config.files.masking import is_schema_place, may_hold_secret, redact_config
from proxy.plugin import (
    AddsPages,
    AddsVerbs,
    KeepsState,
    Plugin,
    SpeaksProtocol,
)
from proxy.plugin_parts import PARTS
from proxy.plugins import find_plugins, list_keys, list_plugins
from tests.extensions.test_locks import PLAIN, SERVE

ROOT = Path(__file__).parents[2]


def declare_keys(plugin: Plugin) -> Iterator[str]:
    """The keys of the config that a plugin declares, outermost first."""
    declared = plugin.declare_keys() if list_keys(plugin) else {}
    yield from (key.name for kind in declared.values() for key in kind.keys or ())


def test_every_folder_of_a_plugin_says_what_it_is() -> None:
    for plugin in list_plugins():
        folder = Path(inspect.getfile(type(plugin))).parent
        assert folder.name == plugin.name
        assert plugin.adds
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert set(plugin.uses) <= {other.name for other in list_plugins()}


@pytest.mark.parametrize("plugin", list_plugins(), ids=lambda plugin: plugin.name)
def test_every_key_that_a_plugin_declares_is_its_own(plugin: Plugin) -> None:
    described = set(declare_keys(plugin))
    if isinstance(plugin, SpeaksProtocol):
        described.discard("protocol")  # its value is one of several plugins'
    if isinstance(plugin, KeepsState):
        described.discard("backend")  # the same
    own = set(plugin.state_keys if isinstance(plugin, KeepsState) else list_keys(plugin))
    assert described == own


def test_no_two_plugins_share_a_verb_a_key_or_a_page() -> None:
    for listed in (
        [verb for plugin in find_plugins(AddsVerbs) for verb in plugin.verbs],
        [key for plugin in list_plugins() for key in list_keys(plugin)],
        [path for plugin in find_plugins(AddsPages) for path in plugin.pages],
        [plugin.adapter for plugin in find_plugins(SpeaksProtocol)],
    ):
        assert sorted(set(listed)) == sorted(listed)


def test_every_verb_and_adapter_of_a_plugin_loads() -> None:
    for plugin in find_plugins(AddsVerbs):
        assert all(callable(plugin.load_verb(verb).run) for verb in plugin.verbs)
    for speaking in find_plugins(SpeaksProtocol):
        assert speaking.adapter == speaking.load_adapter().name


def test_every_part_that_plugins_take_loads() -> None:
    tree = ast.parse((ROOT / "proxy/plugin_parts.py").read_text(encoding="utf-8"))
    typed = {
        name.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    modules = set(PARTS.values())
    assert {name: module for name, module in typed.items() if module in modules} == PARTS
    assert [] == [name for name in PARTS if not hasattr(proxy.plugin, name)]


def test_a_key_of_an_upstream_belongs_to_the_keys_of_its_plugin() -> None:
    for plugin in find_plugins(SpeaksProtocol):
        assert set(plugin.upstream_keys) <= set(list_keys(plugin))


def test_masks_each_place_that_a_plugin_declares_as_a_secret() -> None:
    places = [(plugin, place) for plugin in list_plugins() for place in plugin.secrets]
    filled = [tuple({"*": "x", "**": "api_key"}.get(step, step) for step in place) for _, place in places]
    assert [] == [path for path in filled if not may_hold_secret(path)]
    assert not may_hold_secret(("correction", "body", "model"))
    marked = [
        (*{"upstream": ("upstreams", "a")}.get(at, filter(None, [at])), *place)
        for plugin in list_plugins() if list_keys(plugin)
        for at, kind in plugin.declare_keys().items() for place in kind.list_secrets({})
    ]  # fmt: skip
    assert (True, []) == (len(marked) >= 3, [path for path in marked if not may_hold_secret(path)])
    assert [] == [
        place for plugin in list_plugins() for place in plugin.schemas if not is_schema_place((place[0], 0, *place[2:]))
        and not is_schema_place((*place[:2], 0, *place[3:]))
    ]  # fmt: skip
    written = {"upstreams": {"a": {"command": ["npx", "-y", "key"], "env": {"A": "b"}}}}
    assert {"upstreams": {"a": {"command": ["npx", "***", "***"], "env": {"A": "***"}}}} == redact_config(written)


def test_a_plain_config_is_served_without_importing_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(PLAIN, encoding="utf-8")
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", SERVE], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (0, ["[400, 502]", "[]"]) == (done.returncode, done.stdout.splitlines()), done.stderr
