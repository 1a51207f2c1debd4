"""Runs one scenario over real sockets: a client, the real app with the scenario's config, a scripted tool service.

A scenario file holds `name`, `config` (the text of a config; http://upstream.test means the scripted service),
`upstream` (its answers in order, then `{"ok": true}`) and `steps`. Each step sends one `request` {method, path,
headers, body} and states what to `expect` of the answer (the keys of `matching.differences`), and in `upstream` which
requests reach the tool. A step that does not say so expects none: a refused call never reaches a tool. A step may send
several requests at once (`together`), with one expectation each. With the key `mcp` it runs over MCP as well
(`tests/extensions/mcp/over_mcp.py`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import ClientSession

from proxy.config.load import load
from proxy.server import start_serving
from tests.scenarios.matching import Answer, differences, json_text
from tests.scenarios.upstream import Hit, ScriptedUpstream, scripted_upstream
from tests.serving.wire import exchange_together, post

# libyaml's, if there is one: a tenth of the time.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_scenario(path: Path) -> dict[str, Any]:
    """The scenario a file holds."""
    scenario: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - safe, both
    return scenario


async def run_scenario(scenario: Mapping[str, Any], config: Path) -> list[str]:
    """Plays a scenario; gives what went differently, each with the step's name. `config` is the file to write its
    config to."""
    async with scripted_upstream(scenario.get("upstream", [])) as upstream:
        config.write_text(scenario["config"].replace("http://upstream.test", upstream.url))
        serving = await start_serving(load(config, {}), log_to=io.StringIO())
        try:
            async with ClientSession() as client:
                found = [
                    lack for step in scenario["steps"] for lack in await _step(step, client, serving.url, upstream)
                ]
        finally:
            await serving.stop(grace=1.0)
    return found


async def _step(step: Mapping[str, Any], client: ClientSession, url: str, upstream: ScriptedUpstream) -> list[str]:
    before = len(upstream.hits)
    if "together" in step:
        answers = await _ask_together(url, step["together"])
        each = [differences(wanted, one) for wanted, one in zip(step["expect"], answers, strict=True)]
        return [f"{step['name']}: {lack}" for found in each for lack in found] + hits([], upstream.hits[before:])
    answer = await _ask(client, url, step["request"])
    found = differences(step["expect"], answer) + hits(step["expect"].get("upstream", []), upstream.hits[before:])
    shown = f"\n  answered: {answer.status} {dict(answer.headers)}\n  {answer.text[:3000]}"
    return [f"{step['name']}: {lack}{shown if lack is found[-1] else ''}" for lack in found]


async def _ask(client: ClientSession, url: str, request: Mapping[str, Any]) -> Answer:
    body = io.BytesIO(json_text(request["body"]).encode()) if "body" in request else None
    headers = {"Content-Type": "application/json", **request.get("headers", {})}
    method, target = request.get("method", "POST"), url + request["path"]
    async with client.request(method, target, data=body, headers=headers, allow_redirects=False) as reply:
        return Answer(reply.status, {key.lower(): value for key, value in reply.headers.items()}, await reply.read())


async def _ask_together(url: str, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """The answers to calls of one turn."""
    posts = [
        post(one["path"], json_text(one["body"]).encode(), *(f"{key}: {text}" for key, text in one["headers"].items()))
        for one in requests
    ]
    seen = await exchange_together(int(url.rpartition(":")[2]), posts)
    return [Answer(one.status, dict(one.headers), one.body) for one in seen]


def hits(wanted: list[Mapping[str, str]], found: list[Hit]) -> list[str]:
    """Returns how the requests that reached the tool differ from those wanted: number, method, path, exact body."""
    if len(wanted) != len(found):
        return [f"{len(found)} requests reached the tool, not {len(wanted)}: {[hit.body for hit in found]}"]
    lacks = []
    for one, hit in zip(wanted, found, strict=True):
        seen = {"method": hit.method, "path": hit.path, "body": hit.body.decode()}
        lacks += [
            f"{key} at the tool was {seen[key]!r}, not {text!r}" for key, text in one.items() if seen[key] != text
        ]
    return lacks
