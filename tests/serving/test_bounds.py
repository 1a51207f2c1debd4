"""No call and no list stops the others: while the proxy works on one, another route answers.

The tests measure the processor time that the event loop spends before it looks at others again. It is the same on a
busy machine as on an idle one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.mcp.conversation import feedback, talk
from tests.extensions.mcp.server import ADD, McpServer, call
from tests.serving.process import process
from tests.serving.proxied import FREE, Proxied, code, proxied
from tests.serving.wire import JSON_TYPE, answer, exchange, post, replies, tool

pytestmark = pytest.mark.large

OK = answer("200 OK", b"{}", JSON_TYPE)
# Seconds of processor time for which the loop may be held under the largest allowed body or list.
MOST = 0.25
MIB = 1_000_000


class Holds:
    """The processor time that the event loop's thread spends between two looks at a timer."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Looks on until it is cancelled."""
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - before)
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - before)


@asynccontextmanager
async def watched() -> AsyncIterator[Holds]:
    """Watches the loop. The loop does not collect garbage that earlier tests left in memory."""
    gc.collect()
    gc.freeze()
    holds = Holds()
    watching = asyncio.ensure_future(holds.watch())
    try:
        yield holds
    finally:
        watching.cancel()
        gc.unfreeze()


async def longest_hold(proxy: Proxied, attack: Awaitable[Any]) -> tuple[float, Any]:
    """The longest that the loop was held while an attack was under way, and what came of the attack. A healthy call
    and a probe are answered all the time."""
    running = asyncio.ensure_future(attack)
    async with watched() as holds:
        while not running.done():
            for ask in (proxy.post("/free", b"{}"), proxy.ask_admin("/livez")):
                assert 200 == (await ask).status
            await asyncio.sleep(0.005)
    return holds.longest, running.result()


def fill(piece: str, size: int = MIB) -> str:
    return "[" + ",".join([piece] * min(90_000, size // (len(piece) + 1))) + "]"


HARD = r"^(?:(?!-)[a-z0-9-]{1,63}(?<!-)\.?)+$"
INT = {"type": "integer"}
TOOLS: dict[str, Any] = {
    "ints": {"properties": {"xs": {"type": "array", "items": {"type": "integer"}}}},
    "enum": {"properties": {"xs": {"type": "array", "items": {"enum": [f"country_{i}" for i in range(3000)]}}}},
    "look": {"properties": {"xs": {"type": "array", "items": {"type": "string", "pattern": HARD}}}},
    "uniq": {"properties": {"xs": {"type": "array", "uniqueItems": True}}},
    "pp": {"patternProperties": {"^x-": {"type": "string"}, "^[a-z]+_id$": INT},
           "additionalProperties": False},
}  # fmt: skip
ATTACKS = {
    "integers with exponents": ("ints", '{"xs":' + fill('"1e4000"') + "}"),
    "valid integers with exponents": ("ints", '{"xs":' + fill("1e300") + "}"),
    "texts where integers are asked": ("ints", '{"xs":' + fill('"x"') + "}"),
    "words near a long enum": ("enum", '{"xs":' + fill('"country_5_x"') + "}"),
    "a pattern that looks around": ("look", '{"xs":' + fill('"' + "a" * 22 + '!"') + "}"),
    "equal hashes": ("uniq", '{"xs":[' + ",".join(str(i * (2**61 - 1)) for i in range(40_000)) + "]}"),
    "more values than a text may hold": ("ints", "[" + ",".join(["{}"] * 300_000) + "]"),
    "a key twice among thousands": ("pp", "{" + ",".join(f'"k{i}":1' for i in range(80_000)) + ',"k1":1}'),
    "a text that does not end": ("ints", '{"xs":[' + ",".join(["1"] * 400_000)),
    "many unknown keys": ("pp", "{" + ",".join(f'"k{i}":1' for i in range(80_000)) + "}"),
}


def judging(name: str) -> str:
    """A route whose calls have the schema of this name."""
    schema = json.dumps({"type": "object", **TOOLS[name]})
    return f"  - {{path: /x, upstream: tools, tool: {name}, schema: {schema}}}\n"


@pytest.mark.parametrize(("name", "body"), ATTACKS.values(), ids=ATTACKS)
async def test_a_large_call_keeps_nobody_waiting(name: str, body: str) -> None:
    route = (
        f"  - {{path: /x, upstream: tools, tool: {name}, schema: {json.dumps({'type': 'object', **TOOLS[name]})}}}\n"
    )
    async with tool(replies(OK)) as server, proxied(FREE + route, server.url) as proxy:
        await exchange(proxy.port, post("/x", b"{}"))
        hold, seen = await longest_hold(proxy, exchange(proxy.port, post("/x", body.encode())))

    assert hold < MOST
    assert seen.status in (200, 400, 503)


UNION = [
    {"type": "object", "properties": {f"k{i}_{j}": INT for j in range(20)}, "additionalProperties": False}
    for i in range(100)
]
SMALL = {
    "a union of many objects": (
        {"xs": {"type": "array", "items": {"anyOf": UNION}}},
        {"xs": [{f"k{i}_{j}": "x" for j in range(4)} for i in range(100)]},
    ),
    "words near a long enum": (
        {"xs": {"type": "array", "items": {"enum": [f"country_{i}" for i in range(3000)]}}},
        {"xs": ["country_5_x"] * 500},
    ),
    "keys that are nearly known": ({f"key{i}": INT for i in range(500)}, {f"kye{i}": 1 for i in range(600)}),
}


@pytest.mark.parametrize(("properties", "sent"), SMALL.values(), ids=SMALL)
async def test_a_small_call_of_a_dear_schema_keeps_nobody_waiting(
    properties: dict[str, Any], sent: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    route = f"  - {{path: /x, upstream: tools, tool: x, schema: {json.dumps(schema)}}}\n"
    body = json.dumps(sent, separators=(",", ":")).encode()
    async with tool(replies(OK)) as server, proxied(FREE + route, server.url) as proxy:
        await exchange(proxy.port, post("/x", b'{"xs":[1]}'))
        hold, seen = await longest_hold(proxy, exchange(proxy.port, post("/x", body)))

    assert len(body) < 8 * 1024
    assert hold < MOST
    assert (400, "INVALID_ARGUMENTS") == code(seen)


async def test_a_text_of_many_values_is_read_as_ever() -> None:
    right = '{"xs": [' + ",".join(["1.0"] * 20_000) + "]}"
    async with tool(replies(OK, OK)) as server, proxied(judging("ints"), server.url) as proxy:
        seen = [
            await exchange(proxy.port, post("/x", body.encode()))
            for body in (right, right[:-1] + ',"xs":[]}', right[:-1], right + "{}")
        ]

    assert [200, 400, 400, 400] == [each.status for each in seen]
    assert [right.replace("1.0", "1").encode()] == [each.body for each in server.seen]
    reasons = ["duplicate key", "EOF while parsing", "trailing characters"]
    assert [True] * 3 == [reason in each.body.decode() for reason, each in zip(reasons, seen[1:], strict=True)]


# --- what servers list ------------------------------------------------------------------------------------------------
def listed(**properties: Any) -> dict[str, Any]:
    return {"name": "dear", "inputSchema": {"type": "object", "properties": properties}}


LETTERS = r"^[\p{L}\p{M}0-9 .,'-]{1,100}$"
MANY = {f"p{i}": {"type": "string", "pattern": f"{LETTERS[:-2]}{{{i + 2}}}$"} for i in range(40)}
LONG = "|".join(f"word{i}x" for i in range(20_000))
DEAR = {
    "many patterns that unfold": listed(**MANY),
    "one alternation of 200 KB": listed(a={"type": "string", "pattern": LONG}),
    "a pattern of 4 MB": listed(a={"type": "string", "pattern": "|".join(["a"] * 2_000_000)}),
    "named groups without end": listed(a={"type": "string", "pattern": "(?<a>x)" + r"\k<a>" * 20_000}),
}


@pytest.mark.parametrize("dear", DEAR.values(), ids=DEAR)
async def test_a_dear_schema_costs_only_its_own_tool(dear: dict[str, Any]) -> None:
    async with talk(McpServer([dear, ADD]), more="") as client:
        healthy = call("add", {"a": 1, "b": 2})
        await client.ask(healthy)
        asking = asyncio.ensure_future(client.ask(call("dear", {"a": "b", "p0": "b"})))
        async with watched() as holds:
            while not asking.done():
                assert "isError" not in (await client.ask(healthy))["result"]
                await asyncio.sleep(0.005)
        told = asking.result()

    assert holds.longest < MOST
    if told["result"].get("isError"):
        assert feedback(told)["code"] in ("SCHEMA_UNKNOWN", "INVALID_ARGUMENTS", "OVERLOADED")


async def test_a_tool_with_dear_patterns_is_validated_all_the_same() -> None:
    dear = listed(a={"type": "string", "pattern": LETTERS}, b={"type": "integer"})
    async with talk(McpServer([dear])) as client:
        right = await client.ask(call("dear", {"a": "Åsa", "b": 1}))
        wrong = await client.ask(call("dear", {"a": "<", "b": "x"}))

    assert "isError" not in right["result"]
    assert ["VAL-002", "VAL-007"] == sorted(error["code"] for error in feedback(wrong)["errors"])
    assert 1 == len(client.server.calls)


@pytest.mark.parametrize("count", [9_000, 60_000])
async def test_a_list_of_thousands_of_tools_keeps_nobody_waiting(count: int) -> None:
    tools = [{**ADD, "name": f"tool_{number}"} for number in range(count)]
    async with talk(McpServer(tools)) as client:
        asking = asyncio.ensure_future(client.ask(call("tool_7", {"a": 1, "b": 2})))
        async with watched() as holds:
            while not asking.done():
                assert 200 == (await client.proxy.ask_admin("/livez")).status
                await asyncio.sleep(0.005)

    refused = asking.result()["result"].get("isError", False)
    # The server of this test writes its list on the same loop; reading the longer one here would take seconds.
    assert (holds.longest < 4 * MOST, refused) == (True, count > 10_000)


async def test_a_list_that_every_credential_gets_is_read_once() -> None:
    tools = [{**ADD, "name": f"tool_{number}"} for number in range(100)]
    async with talk(McpServer(tools)) as client:
        for number in range(30):
            await client.ask(call("tool_1", {"a": 1, "b": 2}), f"Authorization: Bearer {number}")
        learner = client.proxy.serving.listed.of("mcp")._learner  # type: ignore[attr-defined]
        pages = len(learner._reader._known)

    assert (30, 30, 1) == (len(client.server.listed), len(client.server.calls), pages)


async def test_a_call_that_is_too_dear_is_refused_with_what_to_do() -> None:
    name, body = ATTACKS["a pattern that looks around"]
    route = judging(name)
    async with tool(replies(OK)) as server, proxied(route, server.url) as proxy:
        seen = await exchange(proxy.port, post("/x", body.encode()))

    assert ((400, "INVALID_ARGUMENTS"), []) == (code(seen), server.seen)


# --- memory -----------------------------------------------------------------------------------------------------------
FULL = {
    "short texts": fill('"abcdefgh"'),
    "numbers that keep their text": fill("11.5000"),
    "keys": "{" + ",".join(f'"k{i}":1' for i in range(80_000)) + "}",
    "more values than a text may hold": "[" + ",".join(["{}"] * 340_000) + "]",
}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says how much a process has held")
async def test_memory_grows_by_at_most_eight_times_the_largest_allowed_body(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    async with tool(replies(*[OK] * 10)) as server:
        head = f'version: 1\nlisten: 127.0.0.1:0\nadmin: off\nupstreams: {{tools: {{url: "{server.url}"}}}}\nroutes:\n'
        config.write_text(f"{head}  - {{path: /x, upstream: tools, tool: x, schema: {{}}}}\n")
        async with process(config) as proxy:
            memory = Path(f"/proc/{proxy.popen.pid}")
            await exchange(proxy.port, post("/x", fill("1", 90_000).encode()))  # a child is there
            statuses, grown = [], []
            for body in FULL.values():
                (memory / "clear_refs").write_text("5")
                before = held(memory, "VmRSS")
                statuses.append((await exchange(proxy.port, post("/x", body.encode()))).status)
                grown.append(held(memory, "VmHWM") - before)

    assert [200, 200, 200, 400] == statuses
    assert max(grown) < 8 * MIB, grown


REFUSED = (
    *(ATTACKS[name] for name in ("integers with exponents", "texts where integers are asked", "many unknown keys")),
    ("ints", '{"xs":' + fill("{}") + "}"),
)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says how much a process has held")
async def test_memory_of_a_refused_call_grows_by_at_most_eight_times_the_largest_allowed_body(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "version: 1\nlisten: 127.0.0.1:0\nadmin: off\nroutes:\n"
        + "".join(
            f"  - {{path: /{name}, upstream: none, tool: {name}, schema: {json.dumps({'type': 'object', **schema})}}}\n"
            for name, schema in TOOLS.items()
        )
    )
    async with process(config) as proxy:
        memory = Path(f"/proc/{proxy.popen.pid}")
        await exchange(proxy.port, post("/ints", ('{"xs":' + fill('"x"', 90_000) + "}").encode()))  # all code is loaded
        statuses, grown = list[int](), list[int]()
        for name, body in REFUSED:
            (memory / "clear_refs").write_text("5")
            before = held(memory, "VmRSS")
            call = post(f"/{name}", body.encode(), f"X-Conversation-Id: {len(grown)}")
            statuses.append((await exchange(proxy.port, call)).status)
            grown.append(held(memory, "VmHWM") - before)

    assert [400] * 4 == statuses
    assert max(grown) < 8 * MIB, grown


def held(memory: Path, name: str) -> int:
    """A figure of a process, in bytes."""
    (line,) = (line for line in (memory / "status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
