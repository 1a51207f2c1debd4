"""A plain config starts without the rooms and libraries it does not need: they cost time before and memory for good."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from tests.serving.process import process

PLAIN: Final = """
version: 1
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
upstreams: {tools: {url: 'http://127.0.0.1:9'}}
tools: {add: {schema: {type: object, properties: {a: {type: number, minimum: 0}}, required: [a]}}}
routes: [{path: /add, tool: add, upstream: tools}]
"""
# Each with what it takes or what asks for it.
NOT_NEEDED: Final = {
    "difflib": "finds the word that was meant, where one is wrong",
    "encodings.idna": "looks up names; addresses are numbers here",
    "importlib.metadata": "reads the entry points of formatters and hooks, where some are installed",
    "fastjsonschema": "the second judge, in a process of its own",
    "jsonschema": "says what is wrong with a schema; the second judge, in a process of its own",
    "referencing": "comes with jsonschema",
    "regex": "patterns with lookaround",
    "opentelemetry": "traces",
    "redis": "a shared store",
    "proxy.extensions.workers": "several workers",
    "proxy.extensions.mcp": "MCP routes",
    "proxy.extensions.correction": "a config without its keys",
    "proxy.extensions.console.pages": "pages that nobody has asked for",
    "proxy.extensions.console.core.improvements": "a page that nobody has asked for",
    "proxy.extensions.guidance": "a config without its keys",
    "proxy.extensions.kubernetes": "another verb",
    "proxy.extensions.operations": "a config without its keys",
    "proxy.extensions.recording": "a config without its keys",
    "proxy.extensions.redis": "a shared store",
    "proxy.extensions.second_judge": "a sampled call",
    "proxy.hooks": "an operator's own code",
}


async def loaded_by(folder: Path, config: str) -> set[str]:
    """The modules that `serve` has loaded when it listens."""
    file = folder / "config.yaml"
    file.write_text(config)
    async with process(file, PYTHONPROFILEIMPORTTIME="1") as running:
        running.signal(signal.SIGKILL)  # what ends well loads more
        await running.ended()
    lines = (folder / "log.jsonl").read_text().splitlines()
    return {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}


def list_not_needed(loaded: set[str]) -> set[str]:
    return {known for known in NOT_NEEDED for name in loaded if name == known or name.startswith(f"{known}.")}


async def test_a_plain_config_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    loaded = await loaded_by(tmp_path, PLAIN)
    assert "proxy.server.lifecycle" in loaded
    assert [] == sorted(list_not_needed(loaded))


async def test_a_console_that_is_off_loads_nothing_of_it(tmp_path: Path) -> None:
    loaded = await loaded_by(tmp_path, PLAIN.replace("admin: {", "admin: {console: off, "))
    assert "proxy.server.admin.page" in loaded
    assert [] == [name for name in loaded if name.startswith("proxy.extensions.console")]
