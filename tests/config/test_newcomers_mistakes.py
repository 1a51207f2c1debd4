"""Fifty-two first mistakes in a config: the advice comes first, names the remedy, and is valid YAML when pasted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.config.files.yaml12 import read_yaml
from proxy.config.load import load
from proxy.config.mistakes import ConfigError

RIGHT = """version: 1
listen: 127.0.0.1:22120
admin: off
upstreams:
  tools: { url: http://127.0.0.1:22020 }
routes:
  - path: /tools/weather
    upstream: tools
    tool: weather
    schema:
      type: object
      properties:
        lat: { type: number }
        city: { type: string, pattern: "^[A-Z]" }
      required: [lat]
"""
SCHEMA = RIGHT[RIGHT.index("    schema:") :]
WEATHER = "    tool: weather"
URL = "http://127.0.0.1:22020"

# (what is replaced, by what, words of the first mistake or note). None: the config is right.
MISTAKES: dict[str, tuple[str, str, str | None]] = {
    "tab": ("    upstream: tools", "\tupstream: tools", "a tab cannot indent: write spaces"),
    "indent1": (WEATHER, "   tool: weather", "align it with its neighbours"),
    "indent2": ("upstreams:\n  t", "upstreams:\n   x: {url: http://a}\n  t", "align it with its neighbours"),
    "wrongkey": ("upstreams:", "upstream:", "did you mean 'upstreams'?"),
    "wrongkey2": ("    schema:", "    shema:", "unknown key 'shema'  (did you mean 'schema'?)"),
    "portstr": ("127.0.0.1:22120", "8080", "did you mean 127.0.0.1:8080?"),
    "portbad": ("127.0.0.1:22120", "localhost", "did you mean localhost:8080?"),
    "porthost": ("listen: 127.0.0.1:22120", "port: 8080", "did you mean `listen: 127.0.0.1:8080`?"),
    "typetypo": ("type: number", "type: nubmer", "did you mean 'number'?"),
    "keytypo": ("required: [lat]", "requird: [lat]", "did you mean 'required'?"),
    "badregex": ("^[A-Z]", "^[A-Z", "a class is not closed (at character 2)"),
    "pcreregex": ("^[A-Z]", "(?i)^paris(?<!x)$", "a pattern needs backtracking"),
    "possessive": ("^[A-Z]", "^a++$", "there is nothing to repeat (at character 4)"),
    "anchor": ("upstreams:", "x-common: &c { type: number }\nupstreams:", "defined where its value is first used"),
    "anchor_undefined": ("lat: { type: number }", "lat: *nope", "no anchor &nope before this alias"),
    "mergekey": ("lat: { type: number }", "lat: { <<: *c, minimum: 1 }", "write the keys out"),
    "env": (URL, "${TOOLS_URL}", 'put ${TOOLS_URL} in quotes inside braces and brackets: "${TOOLS_URL}"'),
    "env_noquote": (f"{{ url: {URL} }}", "{url: ${A}}", 'put ${A} in quotes inside braces and brackets: "${A}"'),
    "env_dollar": (URL, '"http://$HOST:22020"', "`$HOST` is not replaced in the url  (did you mean `${HOST}`?)"),
    "schemafile": (SCHEMA, "    schema: schemas/nope.yaml\n", "paths start at the config file's folder"),
    "nourl": (f"{{ url: {URL} }}", URL, "write it as `{url: ...}`"),
    "noscheme": (URL, "127.0.0.1:22020", "did you mean http://127.0.0.1:22020?"),
    "upname": ("upstream: tools", "upstream: tool", "did you mean 'tools'?"),
    "nopathslash": ("/tools/weather", "tools/weather", "`path` expects a path that starts with /"),
    "star": ("/tools/weather", "/tools/*", "did you mean '{rest...}'?"),
    "colon": ("/tools/weather", "/tools/:id", "did you mean '{id}'?"),
    "noversion": ("version: 1\n", "", "add `version: 1`"),
    "version2": ("version: 1", "version: 2", "`version` expects 1; this is 2"),
    "mode": ("routes:", "mode: report\nroutes:", "did you mean `defaults: {mode: report}`?"),
    "repairtop": ("routes:", "repair: lenient\nroutes:", "did you mean `defaults: {repair: lenient}`?"),
    "repairwrong": (WEATHER, WEATHER + "\n    repair: strict", "`repair` expects off, basic, standard or lenient"),
    "timeout": (WEATHER, WEATHER + "\n    timeout: 30 sec", "did you mean 30s?"),
    "size": (WEATHER, WEATHER + "\n    limits: {body: 1 MB}", "did you mean 1MB?"),
    "auth": (WEATHER, WEATHER + "\n    auth: Bearer abc", 'write `auth: {bearer: {NAME: "${TOKEN}"}}`'),
    "openapi": ("    schema:\n", "    openapi: x.json\n    schema:\n", "`schema: {openapi: FILE, operation: ID}`"),
    "request": (WEATHER, WEATHER + "\n    request: {}", "belongs to a tool: `tools: {NAME: {request: ...}}`"),
    "dup": (WEATHER, WEATHER + "\n    tool: wether", "duplicate key 'tool', first on line 9"),
    "twosame": (SCHEMA, SCHEMA + RIGHT[RIGHT.index("  - path") :], "change one of the paths or methods"),
    "draft": ("type: object", "$schema: http://json-schema.org/draft-09/schema#\n      type: object", "use one of"),
    "refremote": ("lat: { type: number }", "lat: { $ref: 'https://example.org/s.json' }", "below the schema folder"),
    "empty": (RIGHT, "", "the file is empty"),
    "notyaml": (RIGHT, "hello world", "a config is a mapping of keys such as `version` and `routes`"),
    "list": (RIGHT, "- a\n- b\n", "a config is a mapping of keys such as `version` and `routes`"),
    "quote": ('"^[A-Z]"', '"^[A-Z]', "this quote is never closed"),
    "methods": (WEATHER, WEATHER + "\n    methods: GET", "write it as a list: [GET]"),
    "requiredtrue": ("lat: { type: number }", "lat: { type: number, required: true }", "`required: [name]`"),
    "mcpnoproto": (WEATHER + "\n", "    mcp: {}\n" + WEATHER + "\n", "say `protocol: mcp`, or drop it"),
    "workers": ("routes:", "workers: 0\nroutes:", "a whole number from 1 to 256"),
    "log": ("routes:", "log: debug\nroutes:", "did you mean `telemetry: {log: {level: debug}}`?"),
    "cors": ("routes:", "cors: '*'\nroutes:", 'did you mean `defaults: {cors: "*"}`?'),
    "parameter": ("/tools/weather", "/tools/{lat}", "{lat} of the path is no argument without `request`"),
    "depth": ("routes:", "tool: weather\nroutes:", "a tool belongs to a route: `routes: [{path: /x, tool: x}]`"),
    "bom": ("version", "\ufeffversion", None),
    "crlf": ("\n", "\r\n", None),
}  # fmt: skip


def list_findings(folder: Path, text: bytes) -> list[str]:
    """The mistakes of a config, or its notes."""
    (folder / "c.yaml").write_bytes(text)
    try:
        return list(load(folder / "c.yaml", {}).config.notes)
    except ConfigError as error:
        return [mistake.text for mistake in error.mistakes]


def test_the_config_without_a_mistake_is_accepted(tmp_path: Path) -> None:
    assert len(list_findings(tmp_path, RIGHT.encode())) <= 1


@pytest.mark.parametrize("name", MISTAKES)
def test_the_first_finding_names_the_remedy(tmp_path: Path, name: str) -> None:
    old, new, words = MISTAKES[name]
    assert old in RIGHT
    found = list_findings(tmp_path, RIGHT.replace(old, new).encode())
    if words is None:
        assert len(found) <= 1
        return
    assert words in found[0]
    # Text in backticks can be pasted.
    for pasted in re.findall(r"`([^`]*[:{\[][^`]*)`", found[0]):
        read_yaml(pasted.encode())


def test_a_file_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    assert ["the file is not UTF-8"] == list_findings(
        tmp_path, RIGHT.replace("weather\n", "w\xe9tter\n").encode("latin-1")
    )
