"""Mistakes of models at a dozen servers, with the proxy and without: the figures in docs/evidence/mcp.md.

Each server gets a good call, and the same call damaged in as many ways as its arguments allow. An answer is

    right   the answer to the good call
    told    an `isError`, which the model reads
    lost    a JSON-RPC error, which many clients hide from their models, or the end of the server
    wrong   a success that is not the answer to the good call

Prints the table; `pytest -s` shows it.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from tests.parties.environment import needs, proxy, python, running
from tests.parties.mistakes import ABSENT, OBJECTS, RAW, Mistake, verdict
from tests.parties.rawmcp import OLD, opened, posted
from tests.parties.test_bridges import GO_SERVER
from tests.parties.test_common_servers import MODULES, Page
from tests.parties.test_stdio import COMMANDS

pytestmark = pytest.mark.large

KINDS: Final = ("right", "told", "lost", "wrong")
_COUNTED: Final = re.compile(r'"thoughtHistoryLength": \d+')


@dataclass(frozen=True)
class Cell:
    """One call of one server. `mistake`: what has to become of a call of `book`."""

    server: str
    tool: str
    arguments: Any
    mistake: Mistake | None = None

    @property
    def params(self) -> dict[str, Any]:
        return {"name": self.tool, **({} if self.arguments is ABSENT else {"arguments": self.arguments})}


def damage(good: Cell, optional: str) -> Iterator[Cell]:
    """A good call in as many damaged forms as its arguments allow. `optional` is a key that may be left out."""
    values = good.arguments
    for key, value in values.items():
        if isinstance(value, bool | int | list | dict):
            yield replace(good, arguments={**values, key: json.dumps(value)})
        if isinstance(value, int) and not isinstance(value, bool):
            yield replace(good, arguments={**values, key: float(value)})
            yield replace(good, arguments={**values, key: value + 0.5})
        if isinstance(value, list) and len(value) == 1:
            yield replace(good, arguments={**values, key: value[0]})
        yield replace(good, arguments={name: each for name, each in values.items() if name != key})
        yield replace(good, arguments={**values, key: {"value": [value]}})
    for nothing in (None, "", "null") if optional else ():
        yield replace(good, arguments={**values, optional: nothing})
    for wrapped in ({"arguments": values}, {"params": values}, json.dumps(values), None, ABSENT, [values]):
        yield replace(good, arguments=wrapped)
    yield replace(good, tool=good.tool[:-1])


@contextlib.contextmanager
def shops(folder: Path) -> Iterator[tuple[dict[str, list[str]], list[tuple[Cell, str]]]]:
    """The servers as commands, and a good call of each that people run, with a key that may be left out."""
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    repository, common = folder / "repository", MODULES / "@modelcontextprotocol"
    repository.mkdir()
    author = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q", "."], [*author, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *words], cwd=repository, check=True)  # noqa: S607 - the user's git
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=page.serve_forever, daemon=True).start()
    thought = {"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    try:
        yield (
            {
                **COMMANDS,
                "go": GO_SERVER,
                "filesystem": ["node", str(common / "server-filesystem/dist/index.js"), str(folder)],
                "memory": [
                    "env",
                    f"MEMORY_FILE_PATH={folder}/m.json",
                    "node",
                    str(common / "server-memory/dist/index.js"),
                ],
                "thinking": ["node", str(common / "server-sequential-thinking/dist/index.js")],
                "git": [python("tools"), "-m", "mcp_server_git", "--repository", str(repository)],
                "fetch": [python("tools"), "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"],
                "time": [python("tools"), "-m", "mcp_server_time"],
            },
            [
                (Cell("everything", "get-sum", {"a": 2, "b": 3}), ""),
                (Cell("filesystem", "read_text_file", {"path": str(folder / "notes.txt"), "head": 2}), "tail"),
                (Cell("memory", "open_nodes", {"names": ["Emma"]}), ""),
                (Cell("thinking", "sequentialthinking", thought), "revisesThought"),
                (Cell("git", "git_log", {"repo_path": str(repository), "max_count": 1}), "start_timestamp"),
                (
                    Cell("fetch", "fetch", {"url": f"http://127.0.0.1:{page.server_port}/", "max_length": 500}),
                    "start_index",
                ),
                (Cell("time", "convert_time", times), ""),
            ],
        )
    finally:
        page.shutdown()
        page.server_close()


class Direct:
    """A server over stdio, spoken to by hand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        about = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        self.ask("initialize", about)
        self._write({"method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The message that answers a request; None if the server ends instead."""
        self._write({"id": 7, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == 7 and "method" not in message:
                return message
        return None

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


def read(message: Any) -> tuple[str, str]:
    """Returns whether a message is an error of either kind, and its text."""
    if "result" not in message:
        return "lost", json.dumps(message["error"])
    result = message["result"]
    text = "\n".join(part.get("text", "") for part in result["content"])
    return "told" if result.get("isError") else "", _COUNTED.sub("", text)


def classify(cell: Cell, message: Any, good: str) -> str:
    """Returns what became of a call."""
    kind, text = read(message)
    if kind:
        return kind
    if cell.mistake is None:
        return "right" if text == good else "wrong"
    told = {"error": False, "text": text}
    return "wrong" if all(verdict(cell.mistake, told, lenient=likely) for likely in (False, True)) else "right"


def ask_directly(commands: dict[str, list[str]], cells: list[Cell]) -> list[Any]:
    """The answers of the servers without the proxy."""
    answers: list[Any] = []
    for server, command in commands.items():
        left = [cell.params for cell in cells if cell.server == server]
        while left:  # a server may end at a call
            with running(command, stderr=subprocess.DEVNULL) as process:
                direct = Direct(process)
                while left and (answer := direct.ask("tools/call", left.pop(0))) is not None:
                    answers.append(answer)
                if answer is None:
                    answers.append({"error": "the server ended"})
    return answers


def ask_good(commands: dict[str, list[str]], cells: list[Cell]) -> tuple[dict[str, str], dict[str, Any]]:
    """Server -> the text of the answer to its good call, and the schema of the tool."""
    texts: dict[str, str] = {}
    schemas: dict[str, Any] = {}
    for cell in cells:
        with running(commands[cell.server], stderr=subprocess.DEVNULL) as process:
            direct = Direct(process)
            tools = direct.ask("tools/list", {})["result"]["tools"]
            schemas[cell.server] = next(tool["inputSchema"] for tool in tools if tool["name"] == cell.tool)
            kind, texts[cell.server] = read(direct.ask("tools/call", cell.params))
            assert "" == kind, (cell, texts[cell.server])
    return texts, schemas


def is_another(cell: Cell, good: Cell, schema: Any) -> bool:
    """Returns whether damage has made another call, which the tool's schema allows."""
    if cell.tool != good.tool or not isinstance(cell.arguments, dict) or cell.arguments == good.arguments:
        return False
    return Draft202012Validator(schema).is_valid(cell.arguments)


def ask_through(commands: dict[str, list[str]], cells: list[Cell], folder: Path) -> list[Any]:
    """The answers of the servers behind the proxy. Each call is a conversation, so that attempts do not add up."""
    upstreams = "".join(f"  {name}: {{command: {json.dumps(words)}}}\n" for name, words in commands.items())
    routes = "".join(
        f"  - {{path: /{name}, upstream: {name}, protocol: mcp, mcp: {{wait: 60s}}}}\n" for name in commands
    )
    config = folder / "config.yaml"
    config.write_text(f"version: 1\nadmin: off\nupstreams:\n{upstreams}routes:\n{routes}")
    answers: list[Any] = []
    with proxy(config) as port:
        for server in commands:
            session = opened(f"http://127.0.0.1:{port}/{server}")
            for number, cell in enumerate(cells):
                if cell.server == server:
                    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": cell.params}
                    headers = {**session.headers(), "x_conversation_id": f"cell-{number}"}
                    answers.append(posted(session.url, json.dumps(message).encode(), **headers).message)
    return answers


def write_table(cells: list[Cell], direct: list[str], through: list[str]) -> str:
    """Returns how many calls of each server became what, without the proxy and with it."""
    lines = [f"{'':12} {'calls':>5}  directly: {'  '.join(KINDS)}   through the proxy"]
    for server in (*dict.fromkeys(cell.server for cell in cells), "all"):
        at = [index for index, cell in enumerate(cells) if server in (cell.server, "all")]
        counts = [Counter(kinds[index] for index in at) for kinds in (direct, through)]
        shown = "   ".join(" ".join(f"{count[kind]:5d}" for kind in KINDS) for count in counts)
        lines.append(f"{server:12} {len(at):5d}           {shown}")
    return "\n".join(lines)


def test_more_mistakes_arrive_right_through_the_proxy_and_none_wrong(tmp_path: Path) -> None:
    needs("py2", "node", "gosdk", "servers", "tools")
    with shops(tmp_path) as (commands, goods):
        good_cells = sorted((good for good, _ in goods), key=lambda good: list(commands).index(good.server))
        good_answers, schemas = ask_good(commands, good_cells)
        cells = [
            Cell(server, mistake.tool, mistake.arguments, mistake)
            for server in commands
            for mistake in ((*OBJECTS[1:], *RAW) if server not in good_answers else ())
        ]
        for good, optional in sorted(goods, key=lambda each: list(commands).index(each[0].server)):
            cells += [cell for cell in damage(good, optional) if not is_another(cell, good, schemas[good.server])]
        cells.sort(key=lambda cell: list(commands).index(cell.server))
        answers = ask_directly(commands, cells), ask_through(commands, cells, tmp_path)
    direct, through = (
        [classify(cell, answer, good_answers.get(cell.server, "")) for cell, answer in zip(cells, each, strict=True)]
        for each in answers
    )
    sys.stdout.write(f"\n{write_table(cells, direct, through)}\n")
    assert [] == [
        (cell.server, cell.params, kind) for cell, kind in zip(cells, through, strict=True) if kind in ("lost", "wrong")
    ]
    assert through.count("right") >= 3 * direct.count("right")
