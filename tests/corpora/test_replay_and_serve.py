"""`replay`, `validate`, `diff` and a serving proxy are one code path: the same decision and the same arguments for
every collected call."""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession

from proxy.cli.dryrun import DryRun, ForwardedCall
from proxy.cli.validate import find_checking_target
from proxy.config.load import load
from proxy.config.model import RepairSettings
from proxy.extensions.recording.cli.replay import Replayer, read_case
from proxy.extensions.recording.line import judge_sent
from proxy.routing import build_routes
from proxy.server import start_serving
from tests.corpora.calls import rows
from tests.serving.wire import JSON_TYPE, answer, replies, tool

pytestmark = pytest.mark.large

DATA: Final = Path(__file__).parent.parent / "data"
SETS: Final = (
    "real-failures/cases.jsonl",
    "real-failures-2026/failures.jsonl",
    "real-failures-2026/failures-2.jsonl",
    "two-meanings/cases.jsonl",
    "two-meanings/cases-2.jsonl",
    "two-meanings/further.jsonl",
    "one-meaning/cases.jsonl",
    "one-meaning/cases-2.jsonl",
    "one-meaning/further.jsonl",
)

# A line of `replay` has no config, so formats mean what the drafts say.
FORMATS: Final = {"date-time": "rfc3339", "time": "rfc3339"}


def collected() -> list[dict[str, Any]]:
    """The calls whose texts HTTP can carry, each with a tool's name that a config may hold."""
    found = [row for name in SETS for row in rows(DATA / name) if row["sent"] and isinstance(row["schema"], dict)]
    return [{**row, "tool": re.sub(r"[^A-Za-z0-9_.-]+", "_", row["tool"])[:60].strip("_.-")} for row in found]


def replay(level: str) -> list[dict[str, Any]]:
    """Returns what `replay` says of every call."""
    with DryRun() as dry:
        replayer = Replayer(dry, RepairSettings(level, {}))
        cases = [read_case(json.dumps(call).encode()) for call in collected()]
        return [replayer.judge(case) for case in cases if not isinstance(case, str)]


def write_config(folder: Path, calls: list[dict[str, Any]], level: str, url: str) -> Path:
    """A config with one route for each call: `/0`, `/1` ..."""
    routes = [
        {"path": f"/{number}", "upstream": "tools", "tool": call["tool"], "schema": call["schema"]}
        for number, call in enumerate(calls)
    ]
    config = {
        "version": 1,
        "listen": "127.0.0.1:0",
        "admin": False,
        "defaults": {"repair": level, "formats": FORMATS},
        "upstreams": {"tools": {"url": url}},
        "routes": routes,
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


@pytest.mark.parametrize("level", ["standard", "lenient"])
def test_validate_and_diff_validate_as_replay_does(tmp_path: Path, level: str) -> None:
    calls = collected()
    table = build_routes(load(write_config(tmp_path, calls, level, "http://127.0.0.1:9"), {}).config)
    validated, compared = [], []
    with DryRun() as dry:
        for number, call in enumerate(calls):
            found = find_checking_target(table, f"/{number}", "POST")
            assert not isinstance(found, str)
            route, sent = found.route, call["sent"].encode()
            verdict = dry.judge(found.request(sent, {}, ()), route.adapter, route.shape, route.tools)
            validated.append(verdict.arguments if isinstance(verdict, ForwardedCall) else None)
            fate = judge_sent(sent, route.shape, route.tools[call["tool"]])
            compared.append(fate.arguments if fate.forwarded else None)

    replayed = [_plain(row["arguments"]) if row["decision"] == "forward" else None for row in replay(level)]
    assert replayed == [None if text is None else json.loads(text) for text in validated]
    assert validated == compared


@pytest.mark.parametrize("level", ["standard", "lenient"])
async def test_replay_says_forwarded_exactly_if_the_server_forwards(tmp_path: Path, level: str) -> None:
    calls, replayed = collected(), await asyncio.to_thread(replay, level)
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server:
        path = write_config(tmp_path, calls, level, server.url)
        serving = await start_serving(load(path, {}), log_to=io.StringIO())
        try:
            async with ClientSession() as client:
                served = []
                for number, call in enumerate(calls):
                    before = len(server.seen)
                    headers = {"Content-Type": "application/json", "X-Conversation-Id": str(number)}
                    async with client.post(f"{serving.url}/{number}", data=call["sent"].encode(), headers=headers):
                        pass
                    bodies = [json.loads(seen.body) for seen in server.seen[before:]]
                    served.append((call["id"], "forward" if bodies else "reject", bodies[0] if bodies else None))
        finally:
            await serving.stop(grace=1.0)

    assert [(row["id"], row["decision"], _plain(row["arguments"])) for row in replayed] == served


def _plain(value: Any) -> Any:
    """A replayed value as the standard json module reads it."""
    from proxy.core.json.jsontext import dumps

    return json.loads(dumps(value))
