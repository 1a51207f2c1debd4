"""Runs a scenario over MCP: the same steps as `tools/call`s to an MCP route, in front of a scripted MCP server.

A scenario with the key `mcp` runs so too. Its server lists the tools with the schemas of the scenario's config. Other
keys of a tool or a route are under `mcp.tools` of the route, next to the keys of `mcp` itself. The last step of a
request's path is the tool's name unless a route of the path names one; the body is the arguments. A scripted answer
becomes a result; one with an error status says `isError`.

An answer is read as the same expectations read one over HTTP: `content` is the text of the result, `error` the part for
machines, the status that of our code. A result of the tool itself is its text with status 200, and `is-error: true`
among the headers if it says so. `over_mcp` in a step is in place of its `expect`, or says `left out`.

Every message has the id 1, as from a client that opens a session for each call.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from proxy.config.load import load
from proxy.core.model.codes import ERROR_CODES
from proxy.server import start_serving
from tests.extensions.mcp.server import McpServer, as_json, modern, modern_headers, result
from tests.scenarios.matching import Answer, differences, json_text
from tests.scenarios.runner import hits
from tests.scenarios.upstream import DEFAULT_ANSWER, Hit
from tests.serving.wire import Seen, exchange_together, post, tool

# Keys of a route or tool that name its place, its arguments and the form of answers; all others are its policy.
_NO_POLICY = frozenset({"path", "upstream", "tool", "schema", "container", "description", "wrap_success"})
_OWN_KEYS = frozenset({"version", "listen", "admin", "upstreams", "tools", "routes"})
_FEEDBACK = "toolcall-proxy/feedback"
LEFT_OUT = "left out"


@dataclass
class Stage:
    """A scenario's config over MCP: the listed tools with their settings, and the tool of each path."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def tool_at(self, path: str) -> str:
        """The tool that a path calls."""
        return self.paths.get(path) or path.rpartition("/")[2]

    def path_of(self, name: str) -> str:
        """The path that calls a tool."""
        return next((path for path, named in self.paths.items() if named == name), f"/tools/{name}")


def set_stage(config: Mapping[str, Any]) -> Stage:
    """Reads the tools out of a scenario's config."""
    stage = Stage()
    entries = [({"tool": name, **entry}) for name, entry in config.get("tools", {}).items()]
    for entry in (*entries, *config["routes"]):
        name = entry.get("tool")
        if name is None or "container" in entry:
            continue
        if "path" in entry:
            stage.paths[entry["path"]] = name
        if "schema" in entry:
            stage.listed.append({"name": name, "inputSchema": entry["schema"]})
        policy = {key: value for key, value in entry.items() if key not in _NO_POLICY}
        stage.policies[name] = {**stage.policies.get(name, {}), **policy}
    return stage


def config_text(config: Mapping[str, Any], stage: Stage, rules: Mapping[str, Any], url: str) -> str:
    """The config of a proxy in front of the scripted server. JSON is YAML."""
    tools = {name: policy for name, policy in stage.policies.items() if policy}
    kept = {key: value for key, value in config.items() if key not in _OWN_KEYS}
    route = {"path": "/mcp", "protocol": "mcp", "upstream": "tools", "mcp": {"tools": tools, **rules}}
    made = {"version": 1, "listen": "127.0.0.1:0", "admin": False, "upstreams": {"tools": {"url": url}}}
    return json.dumps({**made, **kept, "routes": [route]})


async def run_over_mcp(scenario: Mapping[str, Any], config: Path, *, new: bool) -> list[str]:
    """Plays a scenario over MCP; gives what went differently, each with the step's name. `new`: in revision 2026-07-28,
    else in an older one without a session. `config` is the file to write its config to."""
    written = yaml.safe_load(scenario["config"])
    stage, script = set_stage(written), list(scenario.get("upstream", []))
    server = McpServer(stage.listed, called=lambda message, _seen: _scripted(message, script))
    async with tool(server) as upstream:
        config.write_text(config_text(written, stage, scenario["mcp"] or {}, upstream.url))
        serving = await start_serving(load(config, {}), log_to=io.StringIO())
        try:
            player = Player(stage, server, int(serving.url.rpartition(":")[2]), new)
            return [lack for step in scenario["steps"] for lack in await player.play(step)]
        finally:
            await serving.stop(grace=1.0)


def _scripted(message: dict[str, Any], script: list[dict[str, Any]]) -> bytes:
    """The next answer of the script as a result."""
    answer: Mapping[str, Any] = script.pop(0) if script else DEFAULT_ANSWER
    failed = {"isError": True} if answer.get("status", 200) >= 400 else {}
    return as_json(
        result(message, {"content": [{"type": "text", "text": json_text(answer.get("body", ""))}], **failed})
    )


@dataclass
class Player:
    """A client that plays the steps of a scenario."""

    stage: Stage
    server: McpServer
    port: int
    new: bool

    async def play(self, step: Mapping[str, Any]) -> list[str]:
        """Returns what goes differently in one step."""
        expect = step.get("over_mcp", step["expect"])
        if expect == LEFT_OUT:
            return []
        before = len(self.server.calls)
        asked = step["together"] if "together" in step else [step["request"]]
        answers = [_read(seen) for seen in await exchange_together(self.port, [self._request(one) for one in asked])]
        wanted = expect if "together" in step else [expect]
        found = [lack for one, answer in zip(wanted, answers, strict=True) for lack in differences(one, answer)]
        reached = [] if "together" in step else expect.get("upstream", [])
        found += hits(reached, [self._hit(seen) for seen in self.server.calls[before:]])
        shown = "".join(f"\n  answered: {one.status} {dict(one.headers)}\n  {one.text[:3000]}" for one in answers)
        return [f"{step['name']}: {lack}{shown if lack is found[-1] else ''}" for lack in found]

    def _request(self, request: Mapping[str, Any]) -> bytes:
        name = self.stage.tool_at(request["path"])
        headers = [f"{key}: {value}" for key, value in request.get("headers", {}).items()]
        headers.append("Accept: application/json, text/event-stream")
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
        if self.new:
            message = modern(message)
            headers += modern_headers(message)
        body = json.dumps(message)[:-2]
        if "body" in request:  # as it is, digit for digit
            body += f', "arguments":{json_text(request["body"])}'
        return post("/mcp", f"{body}}}}}".encode(), *headers)

    def _hit(self, seen: Seen) -> Hit:
        """A call that reached the server, as the scenario's steps name it."""
        name = json.loads(seen.body)["params"]["name"]
        arguments = re.search(rb'"arguments":(.*)}}$', seen.body)
        return Hit("POST", self.stage.path_of(name), dict(seen.headers), arguments[1] if arguments else b"")


def _read(seen: Seen) -> Answer:
    """An answer as over HTTP."""
    headers = dict(seen.headers)
    answered = json.loads(seen.body)["result"]
    (part,) = answered["content"]
    feedback = answered.get("_meta", {}).get(_FEEDBACK)
    if feedback is not None:
        body = {"content": part["text"], "error": feedback}
        return Answer(ERROR_CODES[feedback["code"]].status, headers, json.dumps(body, ensure_ascii=False).encode())
    if answered.get("isError"):
        headers["is-error"] = "true"
    return Answer(200, headers, part["text"].encode())
