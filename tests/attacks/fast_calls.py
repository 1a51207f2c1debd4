"""Raw bytes to two proxies, of which one may run calls without a task: clients, tool, log and metrics see the same.

A case is a list of steps of one or two clients: requests whole, in parts or several in a packet, odd targets, heads and
bodies. A client may end its side or go. A tool may die, answer oddly or wait, and a reload may come in between. A call
that reaches the tool on a validating route fits its schema, and a call that was right arrives as it was sent.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import jsonschema

from tests.attacks import Found
from tests.attacks.client_steps import DOES, ENDS, SOUND, Step, make_case
from tests.serving.proxied import UNSAMPLED, Proxied, proxied
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, tool

SCHEMA: Final = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "note": {"type": "string"}},
    "required": ["lat"],
    "additionalProperties": False,
}
_SCHEMA: Final = json.dumps(SCHEMA)
PLAIN: Final = f"""
  - {{path: /w, upstream: tools, tool: w, schema: {_SCHEMA}}}
  - {{path: '/t/{{id}}', upstream: tools, upstream_path: '/x/{{id}}', tool: w2, schema: {_SCHEMA}}}
  - {{path: /strict, upstream: tools, tool: s, query: refuse, schema: {_SCHEMA}}}
  - {{path: /watched, upstream: tools, tool: r, mode: report, schema: {_SCHEMA}}}
  - {{path: /small, upstream: tools, tool: b, limits: {{body: 64}}, schema: {_SCHEMA}}}
  - {{path: /brief, upstream: tools, tool: t, timeout: 0.2, schema: {_SCHEMA}}}
  - {{path: /page, upstream: tools, tool: p, cors: {{origins: ["https://a.test"]}}, schema: {_SCHEMA}}}
  - {{path: /kept, upstream: tools, tool: k, headers: {{set: {{X-Own: me}}, remove: [Cookie]}}, schema: {_SCHEMA}}}
  - {{path: /here, upstream: none, tool: h, schema: {_SCHEMA}}}
  - {{path: /wrapped, upstream: tools, tool: q, wrap_success: on, envelope: openai, schema: {_SCHEMA}}}
  - {{path: /capped, upstream: tools, tool: c, caps: {{default: 3}}, schema: {_SCHEMA}}}
  - {{path: /again, upstream: tools, tool: i, idempotent: on, resend: {{max_backoff: 1ms}}, schema: {_SCHEMA}}}
  - {{path: /handed, upstream: tools, tool: o, upstream_errors: passthrough, schema: {_SCHEMA}}}
  - {{path: /call, upstream: tools, upstream_path: '/{{tool}}', tools: [one, two],
      dispatch: {{tool: /tool, arguments: /arguments, call_id: /id}}}}
  - {{path: '/n/{{tool}}', upstream: tools, upstream_path: '/{{tool}}', tools: [one, two]}}
  - {{path: /relay, methods: [GET, HEAD, POST, PUT], upstream: tools, passthrough: true}}
"""
MIXED: Final = f"""
  - {{path: /mcp, upstream: tools, protocol: mcp}}
  - {{path: '/{{tool}}', upstream: tools, upstream_path: '/{{tool}}', tools: [one, two, w]}}
  - {{path: /n/one, upstream: tools, tool: one, schema: {_SCHEMA}}}
  - {{path: '/relay/{{rest}}', methods: [GET, POST], upstream: tools, passthrough: true}}
"""
GUARDED: Final = """
  - {path: /w, upstream: tools, tool: one, limits: {rate: {calls: 500, per: 1m, by: conversation}}}
  - {path: '/n/{tool}', upstream: tools, upstream_path: '/{tool}', tools: [one, two], allow: [{tools: [one]}]}
  - {path: /strict, upstream: tools, tool: two, query: refuse, limits: {concurrent: {calls: 1, by: tool}}}
  - {path: /watched, upstream: tools, tool: two, mode: report, limits: {concurrent: {calls: 1, by: tool}},
     allow: [{tools: [two], arguments: {properties: {lat: {maximum: 100}}}}]}
"""
TOOLS: Final = f"{{one: {{schema: {_SCHEMA}}}, two: {{schema: {_SCHEMA}}}, w: {{schema: {_SCHEMA}}}}}"
# Routes, further keys of the config, and whether hooks and the like leave no call to run without a task.
CONFIGS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    (PLAIN, {}),
    (MIXED, {"forwarded": "{trusted: [127.0.0.0/8]}"}),
    (PLAIN, {"listen": "{host: 127.0.0.1, port: 0, hosts: [tools.test, a]}", "defaults": "{repair: 'off'}"}),
    (GUARDED, {}),
)
_TIMES: Final = re.compile(
    r"Date: [^\\']*|toolcall-proxy-[0-9a-f]{8}|127\.0\.0\.1:\d+|[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{17,}"
)
_OF_TIME: Final = re.compile(r"timestamp|.*_ms|duration.*|overhead.*|.*seconds|stages|took|time|traceback")
_SERIES: Final = re.compile(r"toolproxy_(?!.*(_bucket|_seconds|_lag|info|config|uptime|start|memory|idle)).*")


def attack(seed: int, tries: int) -> Found:
    """Plays `tries` cases before each config."""
    return asyncio.run(_attack(seed, tries))


async def _attack(seed: int, tries: int) -> Found:
    found = Found(tries * len(CONFIGS))
    for number, (routes, keys) in enumerate(CONFIGS):
        random = Random(seed * 1000 + number)
        async with _start(routes, keys, fast=False) as usual, _start(routes, keys, fast=True) as fast:
            for case in range(tries):
                steps, sent = make_case(random, case)
                if differs := await _compare(usual, fast, steps):
                    found.add(f"config {number} case {case}: {differs}", steps)
                for each in (usual, fast):
                    for fault in _find_faults(each, sent, keys):
                        found.add(f"config {number} case {case}: {fault}", steps)
            page = [_show_metrics((await each.proxy.ask_admin("/metrics")).body.decode()) for each in (usual, fast)]
            if page[0] != page[1]:
                found.add(f"config {number}: other metrics", sorted(set(page[0]) ^ set(page[1])))
            found.through += fast.proxy.serving.handler.counted_fast
    return found


async def _compare(usual: Side, fast: Side, steps: list[Step]) -> str:
    """Returns what differs, three times in a row: on a busy machine something may come sooner or later than usual."""
    seen: list[list[str]] = []
    for _ in range(3):
        seen = [await _play(each, steps) for each in (usual, fast)]
        if seen[0] == seen[1]:
            return ""
    return " || ".join(f"usual {a} FAST {b}" for a, b in zip(*seen, strict=False) if a != b) or "other lengths"


# --- playing ----------------------------------------------------------------------------------------------------------
@dataclass
class Side:
    """A proxy, its tool, and what the tool waits for. `fresh` holds what arrived in the case under way."""

    proxy: Proxied
    tool: Tool
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    fresh: list[Seen] = field(default_factory=list)


@asynccontextmanager
async def _start(routes: str, keys: dict[str, str], *, fast: bool) -> AsyncIterator[Side]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(tool(lambda *words: _answer(side, *words)))
        usual = {**UNSAMPLED, "tools": TOOLS, "limits": "{memory: 64MiB}"}
        side = Side(await stack.enter_async_context(proxied(routes, server.url, **(usual | keys))), server)
        side.proxy.serving.handler.fast = fast
        for path in SOUND:  # the code of its checks is written with its first call
            body = b'{"tool": "one", "arguments": {"lat": 1}}' if path == "/call" else b'{"lat": 1}'
            await side.proxy.post(path, body, "X-Request-Id: warm")
        side.tool.seen.clear()
        yield side


async def _answer(side: Side, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
    does = seen.header("x-do") or ""
    if does.startswith("hold"):
        await side.hold.wait()
        does = does.removeprefix("hold ")
    data = DOES.get(does, answer("200 OK", b'{"a": 1}', JSON_TYPE))
    parts = (data[:20], data[20:-1], data[-1:]) if does == "parts" else (data,)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.002 * (len(parts) > 1))
    if does in ENDS:
        writer.transport.close()
        raise ConnectionResetError


async def _play(side: Side, steps: list[Step]) -> list[str]:
    """Returns what clients, tool and log saw of a case."""
    side.hold.clear()
    lines = len(side.proxy.lines())
    clients = [_Client(), _Client()]
    for does, number, data in steps:
        await _step(side, clients[number], does, data)
    side.hold.set()
    await _settle(side, clients)
    for client in clients:
        client.close()
    await _settle(side, clients)
    handler = side.proxy.serving.handler
    side.fresh = list(side.tool.seen)
    side.tool.seen.clear()
    return [
        *[_TIMES.sub("*", repr(client.read)) for client in clients],
        *sorted(_TIMES.sub("*", repr(seen)) for seen in side.fresh),
        *sorted(_TIMES.sub("*", json.dumps(_drop_times(line))) for line in side.proxy.lines()[lines:]),
        f"{handler.inflight} under way, {handler.memory.held} bytes held",
    ]


class _Client:
    """One connection, opened with its first bytes; `read` is what came back."""

    def __init__(self) -> None:
        self.read = b""
        self.writer: asyncio.StreamWriter | None = None
        self.reading: asyncio.Task[None] | None = None

    async def send(self, port: int, data: bytes) -> None:
        """Sends bytes."""
        if self.writer is None:
            reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
            self.reading = asyncio.ensure_future(self._read(reader))
        with suppress(RuntimeError):  # its side has ended, or it has gone
            self.writer.write(data)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                self.read += data
            self.read += b"<end>"

    def close(self) -> None:
        """Goes."""
        if self.reading is not None:
            self.reading.cancel()
        if self.writer is not None:
            self.writer.transport.abort()


async def _step(side: Side, client: _Client, does: str, data: bytes) -> None:
    if does == "send":
        await client.send(side.proxy.port, data)
    elif does == "pause":
        for _ in range(3):
            await asyncio.sleep(0)
    elif does == "settle":
        await _settle(side, [client])
    elif does == "release":
        side.hold.set()
    elif does == "reload":
        side.proxy.serving.handler.exchange(side.proxy.serving.handler.snapshot)
    elif client.writer is not None and does == "end" and client.writer.can_write_eof():
        with suppress(OSError):
            client.writer.write_eof()
    elif does == "go":
        client.close()


async def _settle(side: Side, clients: list[_Client]) -> None:
    """Waits until nothing has moved for a few turns of the loop."""
    before: object = None
    same = 0
    while same < 5:
        await asyncio.sleep(0.002)
        log = len(side.proxy.log.getvalue())
        now = (log, len(side.tool.seen), side.proxy.serving.handler.inflight, *[len(each.read) for each in clients])
        before, same = now, same + 1 if now == before else 0


def _drop_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_times(inner) for name, inner in value.items() if not _OF_TIME.fullmatch(name)}
    return [_drop_times(inner) for inner in value] if isinstance(value, list) else value


def _show_metrics(page: str) -> list[str]:
    return [line for line in page.splitlines() if _SERIES.fullmatch(line)]


# --- what must never be -----------------------------------------------------------------------------------------------
def _find_faults(side: Side, sent: dict[str, bytes], keys: dict[str, str]) -> list[str]:
    faults = [f"the log says {line['code']}" for line in side.proxy.lines() if line.get("code") == "INTERNAL_ERROR"][:1]
    for seen in side.fresh:
        path = seen.start.split(" ")[1].partition("?")[0]
        if path.startswith(("/watched", "/relay", "/mcp")) or seen.start.startswith("GET"):
            continue
        body = sent.get(seen.header("x-request-id") or "", b"")
        arguments, came = _read(seen.body), _read(body)
        if path in ("/one", "/two") and isinstance(came, dict) and "arguments" in came:
            came = came["arguments"]
            body = seen.body if came == arguments else b""
        if not _VALID.is_valid(arguments):
            faults.append(f"an invalid call reached the tool: {seen.start} {seen.body!r}")
        elif _VALID.is_valid(came) and seen.body != body:
            faults.append(f"a valid call was changed: {body!r} {seen.body!r}")
    return faults


_VALID: Final = jsonschema.Draft202012Validator(SCHEMA)


def _read(text: bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_read_pairs)
    except ValueError:
        return None


def _read_pairs(pairs: list[tuple[str, Any]]) -> Any:
    return dict(pairs) if len({name for name, _ in pairs}) == len(pairs) else None
