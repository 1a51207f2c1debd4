"""An MCP server over stdio for the tests: a script of a few tools, written without any SDK, run as a process.

Its tools. `echo` returns its arguments. `pid`, which is annotated as read-only, returns its process id, and `env` its
environment. `progress` reports three steps, `seconds` apart. `ask` asks the client (sampling) and returns the client's
answer. `hang` never answers and notes cancellations in its answer to `cancelled`. `die` ends the process with a word on
stderr. `noise` writes text that is no message to stdout, and to stderr. `log` writes `lines` log messages. `half`
answers with half an emoji. `seen` returns the lines that it has read, unchanged. `routed` is `echo` with a parameter
that a header repeats. `deep` answers with nested lists, and `nameless` under the id in its arguments (with `right`,
then also under the right one).

Arguments of the process. `book`: it has a prompt, resources and a template of them. `modern`: it knows revision
2026-07-28 and no sessions. `one-era`: it knows both, and its first request decides. `linger`: it ignores SIGTERM and a
closed stdin, and so does a process that it starts. `roots`: it asks the client for its roots before it lists its tools.
`late=FILE` and `late-list=FILE`: it answers `initialize`, or lists its tools, once that file exists.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODERN = "modern" in sys.argv
ONE_ERA = "one-era" in sys.argv
BOOK: dict[str, Any] = {"prompts": {}, "resources": {"subscribe": True}} if "book" in sys.argv else {}
CANCELLED: list[Any] = []
SEEN: list[str] = []


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: object) -> dict[str, Any]:
    shown = value if isinstance(value, str) else json.dumps(value)
    result: dict[str, Any] = {"content": [{"type": "text", "text": shown}]}
    return {**result, "resultType": "complete"} if MODERN else result


def call(message: dict[str, Any]) -> dict[str, Any] | None:
    params = message["params"]
    token = params.get("_meta", {}).get("progressToken")
    match params["name"]:
        case "echo" | "routed":
            return text(params.get("arguments"))
        case "pid":
            return text(str(os.getpid()))
        case "env":
            return text(dict(os.environ))
        case "progress":
            for step in (1, 2, 3):
                time.sleep(params.get("arguments", {}).get("seconds", 0))
                write({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
            return text("done")
        case "ask":
            write({"id": "question-1", "method": "sampling/createMessage", "params": {"messages": []}})
            answer = json.loads(sys.stdin.readline())
            return text(answer.get("result", answer.get("error")))
        case "hang":
            return None
        case "cancelled":
            return text(CANCELLED)
        case "die":
            sys.stderr.write("Error: no key\n    at Server.start (server.js:1)\n")
            sys.stderr.flush()
            os._exit(3)
        case "deep":
            levels = params["arguments"]["levels"]
            result = '{"content": [], "structuredContent": {"x": ' + "[" * levels + "]" * levels + "}}"
            sys.stdout.write(f'{{"jsonrpc": "2.0", "result": {result}, "id": {json.dumps(message["id"])}}}\n')
            sys.stdout.flush()
            return None
        case "nameless":
            write({"id": params["arguments"]["id"], "result": {"content": []}})
            return text("right") if "right" in params["arguments"] else None
        case "log":
            for number in range(params["arguments"]["lines"]):
                write({"method": "notifications/message", "params": {"level": "info", "data": number}})
            return text("logged")
        case "half":
            return text("\ud83d")
        case "seen":
            return text(SEEN)
        case "noise":
            sys.stdout.write("Starting up ...\n[1, 2, 3]\n")
            sys.stderr.write("something for the log\n")
            sys.stderr.flush()
            return text("quiet again")
        case "change":
            write({"method": "notifications/tools/list_changed"})
            write({"method": "notifications/message", "params": {"level": "info", "data": "changed"}})
            return text("changed")
        case _:
            return {"content": [{"type": "text", "text": "Unknown tool"}], "isError": True}


NAMES = (
    "echo", "pid", "env", "progress", "ask", "hang", "cancelled", "die", "noise", "change", "log", "half", "seen",
    "routed", "deep", "nameless",
)  # fmt: skip
SCHEMAS: dict[str, Any] = {
    "echo": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": False},
    "routed": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}


def read_book(message: dict[str, Any]) -> dict[str, Any]:
    """The answer of a server with prompts and resources."""
    params = message.get("params", {})
    match message["method"]:
        case "prompts/list":
            return {"prompts": [{"name": "greet"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": f"hello {params['name']}"}}]}
        case "completion/complete":
            return {"completion": {"values": [json.dumps(params["ref"])]}}
        case "resources/list":
            return {"resources": [{"uri": "book://1", "name": "one"}]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "book://{page}", "name": "pages"}]}
        case "resources/read" if params["uri"].startswith("book://"):
            return {"contents": [{"uri": params["uri"], "text": "..."}]}
        case "resources/subscribe":
            return {}
        case method:
            raise LookupError(method)


def list_tool(name: str) -> dict[str, Any]:
    hints = {"annotations": {"readOnlyHint": True}} if name == "pid" else {}
    return {"name": name, "inputSchema": SCHEMAS.get(name, {"type": "object"}), **hints}


def wait_for(argument: str) -> None:
    """Waits until the file that an argument names is there, if there is such an argument."""
    for path in (word.partition("=")[2] for word in sys.argv if word.startswith(f"{argument}=")):
        while not Path(path).exists():
            time.sleep(0.02)


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    match message["method"]:
        case "initialize" if not MODERN:
            wait_for("late")
            version = message["params"].get("protocolVersion", "2025-06-18")
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}, "logging": {}, **BOOK},
                "serverInfo": {"name": "s", "version": "1"},
            }
        case "server/discover" if MODERN and "wrong" not in message["params"]:
            capabilities = {"tools": {}, **BOOK}
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
        case "tools/list":
            wait_for("late-list")
            if "roots" in sys.argv:
                write({"id": "roots-1", "method": "roots/list"})
                SEEN.append(sys.stdin.readline())
            tools = [list_tool(name) for name in NAMES]
            modern = {"ttlMs": 60_000, "cacheScope": "public", "resultType": "complete"} if MODERN else {}
            return {"tools": tools, **modern}
        case "tools/call":
            return call(message)
        case "ping" | "logging/setLevel":
            return {}
        case _ if BOOK:
            return read_book(message)
        case _:
            raise LookupError(message["method"])


def refuse_era(message: dict[str, Any], *, is_first: bool) -> dict[str, Any] | None:
    """The error of a server whose first request decides the era of all."""
    global MODERN  # noqa: PLW0603
    is_modern = "io.modelcontextprotocol/protocolVersion" in message.get("params", {}).get("_meta", {})
    if is_first:
        MODERN = is_modern
    if is_modern == MODERN:
        return None
    code, era = (-32600, "sessions") if is_modern else (-32022, "2026-07-28")
    return {"code": code, "message": f"this process serves {era}"}


def main() -> None:
    asked = 0
    if "linger" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", "import signal, time\nsignal.signal(15, 1)\ntime.sleep(600)"])
    for line in sys.stdin:
        message = json.loads(line)
        SEEN.append(line)
        if "method" not in message:
            continue
        if message["method"] == "notifications/cancelled":
            CANCELLED.append(message["params"]["requestId"])
        if "id" not in message:
            continue
        asked += 1
        if ONE_ERA and (error := refuse_era(message, is_first=asked == 1)) is not None:
            write({"id": message["id"], "error": error})
            continue
        try:
            result = answer(message)
        except LookupError as unknown:
            data = {"data": message["params"]} if BOOK else {}
            write({"id": message["id"], "error": {"code": -32601, "message": f"Method not found: {unknown}", **data}})
            continue
        if result is not None:
            write({"id": message["id"], "result": result})
    while "linger" in sys.argv:
        time.sleep(1)


if __name__ == "__main__":
    main()
