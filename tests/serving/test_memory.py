"""The memory of bodies under way: counted from the first byte, bounded together, given back at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.server.http.body import JUDGED, SMALL, BodyMemory, MemoryBudget, find_room
from tests.serving.process import process
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, exchange_together, post, replies, tool

MIB = 1 << 20
OK = answer("200 OK", b"{}", JSON_TYPE)
ANY = """
  - {path: /any, upstream: tools, tool: any, schema: {type: object}}
  - {path: /relayed, upstream: tools, passthrough: true}
"""
# Room for one body of 200 kB, and not for two.
ROOM = f"{{memory: {300_000 * JUDGED}}}"
LARGE = json.dumps({"text": "x" * 200_000}).encode()


# --- what a body holds ------------------------------------------------------------------------------------------------
def test_a_body_takes_more_as_it_grows_and_gives_all_of_it_back() -> None:
    budget = MemoryBudget(100 * SMALL)
    first, second = BodyMemory(budget, 3), BodyMemory(budget, 3)
    assert [True, True] == [first.reach(SMALL), first.reach(20 * SMALL)]
    assert 60 * SMALL == budget.held
    assert [True, False] == [second.reach(10 * SMALL), second.reach(20 * SMALL)]
    assert 90 * SMALL == budget.held  # what did not fit has taken nothing
    first.release()
    assert [True, 60 * SMALL] == [second.reach(20 * SMALL), budget.held]
    second.release()
    assert 0 == budget.held


def test_a_small_body_takes_its_length_and_the_only_body_is_read_at_any_size() -> None:
    budget = MemoryBudget(SMALL)
    alone = BodyMemory(budget, JUDGED)
    assert [True, SMALL, True, JUDGED * MIB] == [alone.reach(SMALL), budget.held, alone.reach(MIB), budget.held]
    assert not BodyMemory(budget, JUDGED).reach(1)


# --- how much there is ------------------------------------------------------------------------------------------------
def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_room_is_half_of_what_the_narrowest_group_leaves_free(tmp_path: Path) -> None:
    second = write(
        tmp_path / "v2",
        {
            "proc/self/cgroup": "0::/pod/app\n",
            "sys/fs/cgroup/pod/app/memory.max": "max\n",
            "sys/fs/cgroup/pod/app/memory.current": f"{60 * MIB}\n",
            "sys/fs/cgroup/pod/memory.max": f"{256 * MIB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{76 * MIB}\n",
            "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {20 * MIB}\n",
        },
    )
    first = write(
        tmp_path / "v1",
        {
            "proc/self/cgroup": "4:memory:/of/the/host\n1:cpu:/\n0::/\n",  # the container sees only its own group
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{128 * MIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{48 * MIB}\n",
            "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {20 * MIB}\n",
        },
    )
    assert [100 * MIB, 25 * MIB, 50 * MIB] == [find_room(1, second), find_room(4, second), find_room(1, first)]


def test_without_a_limit_the_room_is_half_of_what_a_quarter_of_the_machine_leaves(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
            "proc/meminfo": f"MemTotal: {8 * MIB} kB\n",
            "proc/self/status": f"VmRSS: {64 * 1024} kB\n",
        },
    )
    assert (1024 - 32) * MIB == find_room(1, root)


# --- requests ---------------------------------------------------------------------------------------------------------
def chunked(path: str, body: bytes) -> list[bytes]:
    fields = ("Host: tools.test", "Content-Type: application/json", "Transfer-Encoding: chunked")
    head = "\r\n".join((f"POST {path} HTTP/1.1", *fields, "", ""))
    parts = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    return [head.encode(), *(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]


async def hold(proxy: Proxied, parts: list[bytes]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begins a request and leaves its end out, until the proxy holds memory for what has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    for part in parts:
        writer.write(part)
    await writer.drain()
    while not proxy.serving.handler.memory.held > 150_000 * JUDGED:
        await asyncio.sleep(0.01)
    return reader, writer


async def ask_beside(proxy: Proxied, parts: list[bytes]) -> list[tuple[int, str | None]]:
    """The answers to a large body as a whole, to one in chunks, and to a small one, beside the body in `parts`."""
    _, writer = await hold(proxy, parts)
    found = []
    for body in (post("/any", LARGE), b"".join(chunked("/any", LARGE)), post("/any", b"{}")):
        seen = await exchange(proxy.port, body)
        found.append((seen.status, seen.header("retry-after")))
    writer.close()
    while proxy.serving.handler.memory.held:
        await asyncio.sleep(0.01)
    return found


async def test_beyond_the_room_a_body_is_not_read_and_a_small_one_is() -> None:
    async with tool(replies(OK)) as server, proxied(ANY, server.url, limits=ROOM) as proxy:
        announced = await ask_beside(proxy, [post("/any", LARGE)[:-1]])
        in_chunks = await ask_beside(proxy, chunked("/any", LARGE)[:-1])
        after = [await exchange(proxy.port, post("/any", LARGE)), await exchange(proxy.port, *chunked("/any", LARGE))]
        refused = next(line for line in proxy.lines() if line["http.response.status_code"] == 503)

    assert [[(503, "1"), (503, "1"), (200, None)]] * 2 == [announced, in_chunks]
    assert [200, 200] == [seen.status for seen in after]
    assert ("refused", "OVERLOADED") == (refused["outcome"], refused["error.code"])


async def test_a_client_that_waits_to_send_its_body_gets_no_100_continue_without_room() -> None:
    async with tool(replies(OK)) as server, proxied(ANY, server.url, limits=ROOM) as proxy:
        _, writer = await hold(proxy, [post("/any", LARGE)[:-1]])
        head = post("/any", LARGE, "Expect: 100-continue").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        seen: Seen = await exchange(proxy.port, head)
        writer.close()
    assert (503, "1") == (seen.status, seen.header("retry-after"))


async def test_a_forwarded_body_holds_less() -> None:
    async with tool(replies(OK)) as server, proxied(ANY, server.url, limits=ROOM) as proxy:
        _, writer = await hold(proxy, [post("/any", LARGE)[:-1]])
        seen = await exchange(proxy.port, post("/relayed", LARGE))
        writer.close()
    assert 200 == seen.status


# --- under a real bound -----------------------------------------------------------------------------------------------
@pytest.fixture
def group() -> Iterator[Path]:
    """A memory control group of 256 MiB inside of our own."""
    for line in Path("/proc/self/cgroup").read_text().splitlines() if sys.platform == "linux" else ():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            base = Path("/sys/fs/cgroup") / controllers / path.lstrip("/")
            made = base / f"toolcall-proxy-{os.getpid()}"
            limit = made / ("memory.limit_in_bytes" if controllers else "memory.max")
            try:
                made.mkdir()
            except OSError:
                continue
            if limit.exists():
                limit.write_text(str(256 * MIB))
                yield made
                made.rmdir()
                return
            made.rmdir()
    pytest.skip("no memory control group can be made here")


def read_kills(group: Path) -> int:
    """Returns how often the kernel has ended a process of the group."""
    events = next(path for name in ("memory.events", "memory.oom_control") if (path := group / name).exists())
    return next(int(line.split()[1]) for line in events.read_text().splitlines() if line.startswith("oom_kill "))


@pytest.mark.large
async def test_sixty_callers_with_large_bodies_end_no_process_of_a_small_container(group: Path, tmp_path: Path) -> None:
    rows = ",".join(['{"a":12}'] * 45_000)
    body = f'{{"rows":[{rows}],"text":"{"x" * (990_000 - len(rows) - 21)}"}}'.encode()
    async with tool(replies(OK)) as server:
        config = tmp_path / "config.yaml"
        config.write_text(f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
upstreams: {{tools: {{url: "{server.url}"}}}}
routes:
  - path: /rows
    upstream: tools
    tool: rows
    schema: {{type: object, properties: {{rows: {{type: array, items: {{properties: {{a: {{type: integer}}}}}}}}}}}}
""")
        async with process(config, within=group) as running:
            ready: Counter[int] = Counter()

            async def probe() -> None:
                while True:
                    head = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                    ready[(await exchange(running.admin, head)).status] += 1
                    await asyncio.sleep(0.05)

            probing = asyncio.create_task(probe())
            found: Counter[int] = Counter()
            for _ in range(5):
                found.update(seen.status for seen in await exchange_together(running.port, [post("/rows", body)] * 60))
            probing.cancel()
            kills, ended = read_kills(group), running.popen.poll()
            running.signal(signal.SIGTERM)
            await running.ended()
    assert ({200, 503}, {200}) == (set(found), set(ready))
    assert (0, None, len(body)) == (kills, ended, 990_000)
