"""A container that dispatches to functions which its route does not serve is a mistake of the config."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError

CONFIG = """
version: 1
listen: 127.0.0.1:0
upstreams: {tools: {url: http://127.0.0.1:9}}
tools:
  Add: {schema: {type: object, properties: {a: {type: number}}, required: [a]}}
  Math: {container: {functions: %s, auto_expand: %s}}
routes:
  - {upstream: tools, %s}
"""
HINT = (
    "(serve them on a route with `{tool}` in its path or with `dispatch`, together with the container; "
    "or say `auto_expand: expand` or `off`)"
)


def mistakes(folder: Path, functions: str, auto_expand: str, route: str) -> list[str]:
    """Returns what `check` says of a config."""
    path = folder / "config.yaml"
    path.write_text(CONFIG % (functions, auto_expand, route))
    try:
        load(path, {})
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    ("functions", "route", "what"),
    [
        ("[Add]", "path: /Math, tool: Math", "'Add'"),
        ("[Add, Abs]", "path: '/{tool}'", "'Abs'"),
        ("[Add]", "path: /call, tools: [Math], dispatch: {tool: /t, arguments: /a}", "'Add'"),
    ],
)
def test_functions_that_the_route_does_not_serve_are_named(
    functions: str, route: str, what: str, tmp_path: Path
) -> None:
    (said,) = mistakes(tmp_path, functions, "dispatch", route)
    assert f"the container 'Math' dispatches to {what}, not served on this route  {HINT}" in said
    assert ":9:5  route '" in said
    assert [] == mistakes(tmp_path, functions, "expand", route)


@pytest.mark.parametrize("route", ["path: '/{tool}'", "path: /call, dispatch: {tool: /t, arguments: /a}"])
def test_a_route_that_serves_the_functions_is_none(route: str, tmp_path: Path) -> None:
    assert [] == mistakes(tmp_path, "[Add]", "dispatch", route)
