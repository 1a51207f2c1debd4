"""Clients of the soak. A caller knows of each call what has to come of it; whatever else does is counted as lost.

A valid call arrives as the very bytes that were sent; a repairable one as the repaired bytes; an invalid one never.
While the upstream is down, an answer that says so in JSON holds the call as well: the caller knows its state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.serving.wire import Seen, post, read_message

PATH: Final = "/weather"
CONVERSATIONS: Final = 200
_PATIENCE: Final = 120.0
# Codes of answers that tell of an upstream in trouble.
DOWN: Final = frozenset(
    {"UPSTREAM_UNAVAILABLE", "UPSTREAM_TIMEOUT", "UPSTREAM_BAD_ANSWER", "CIRCUIT_OPEN", "OVERLOADED"}
)
REFUSED: Final = frozenset({"INVALID_ARGUMENTS", "ATTEMPTS_EXHAUSTED"})


@dataclass(frozen=True)
class Call:
    """A call: the body that is sent, and the body that has to arrive, None where nothing may."""

    kind: str
    body: bytes
    arrives: bytes | None


@dataclass
class Told:
    """The outcome of the calls so far. `lost` has a line for each call that was not held."""

    held: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    disturbed: Counter[str] = field(default_factory=Counter)

    def say_lost(self, call: Call, why: str) -> None:
        """Notes a call that was not held."""
        self.lost.append(f"{call.kind}: {why}: {call.body[:120]!r}")


def made(random: Random, name: str) -> Call:
    """A call of any kind, with `name` as its id."""
    lat, days = round(random.uniform(-90, 90), 2), random.randint(1, 7)
    clean = {
        "as it is": f'{{"lat": {lat}, "lon": 2.350, "days": {days}, "id": "{name}"}}',
        "spaced": f'{{ "id" : "{name}",\n\t"lat" : {lat}e0 }}',
    }
    mended = {
        "numbers as text": (f'{{"lat": "{lat}", "id": "{name}"}}', f'{{"lat":{lat},"id":"{name}"}}'),
        "days as text": (
            f'{{"lat": {lat}, "days": "{days}", "id": "{name}"}}',
            f'{{"lat":{lat},"days":{days},"id":"{name}"}}',
        ),
    }
    broken = {
        "wrong type": f'{{"lat": [{lat}], "id": "{name}"}}',
        "missing": f'{{"lon": {lat}, "id": "{name}"}}',
        "out of range": f'{{"lat": {lat}, "days": {days + 7}, "id": "{name}"}}',
        "unknown key": f'{{"lat": {lat}, "id": "{name}", "city": "Paris"}}',
        "cut off": f'{{"lat": {lat}, "id": "{name}"',
        "twice the same key": f'{{"lat": {lat}, "lat": 1, "id": "{name}"}}',
        "no object": f'"{name}"',
    }
    turn = random.random()
    if turn < 0.5:
        text = random.choice(list(clean.values()))
        return Call("valid", text.encode(), text.encode())
    if turn < 0.7:
        text, repaired = random.choice(list(mended.values()))
        return Call("repairable", text.encode(), repaired.encode())
    return Call("invalid", random.choice(list(broken.values())).encode(), None)


def judge(call: Call, seen: Seen, told: Told) -> None:
    """Holds an answer against what had to come of the call."""
    if seen.status == 200:
        if call.arrives is None:
            told.say_lost(call, "an invalid call was delivered")
        elif seen.body != call.arrives:
            told.say_lost(call, f"the tool got other bytes: {seen.body[:120]!r}")
        else:
            told.held[f"{call.kind}, delivered"] += 1
        return
    try:
        code = json.loads(seen.body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        told.say_lost(call, f"an answer that is not ours: {seen.status} {seen.body[:80]!r}")
        return
    if call.arrives is None and code in REFUSED:
        told.held["invalid, refused"] += 1
    elif call.arrives is not None and code in DOWN:
        told.held[f"{call.kind}, told that the tool is down"] += 1
    else:
        told.say_lost(call, f"answered {seen.status} {code}")


async def caller(port: int, number: int, until: Callable[[], bool], told: Told, pause: float) -> None:
    """Calls one after the other over a kept connection, a new one where the last was closed."""
    random, count = Random(number), 0
    while not until():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            closing = False
            while not closing and not until():
                count += 1
                call = made(random, f"{number}-{count}")
                try:
                    writer.write(post(PATH, call.body, f"X-Conversation-Id: {random.randrange(CONVERSATIONS)}"))
                    async with asyncio.timeout(_PATIENCE):
                        seen = await read_message(reader)
                except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
                    told.say_lost(call, f"no answer ({type(error).__name__})")
                    break
                judge(call, seen, told)
                closing = seen.header("connection") == "close"
                await asyncio.sleep(random.uniform(0, 2 * pause))


# --- disturbances: none may hurt the others' calls --------------------------------------------------------------------
async def slow_sender(port: int, random: Random, told: Told) -> None:
    """Sends a call a few bytes at a time, and judges it like any other."""
    call = made(random, f"slow-{random.getrandbits(64):x}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        for part in _parts(post(PATH, call.body), 24):
            writer.write(part)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(_PATIENCE):
            judge(call, await read_message(reader), told)
    told.disturbed["slow senders"] += 1


async def cutter(port: int, random: Random, told: Told) -> None:
    """Sends a call or a part of it and is gone without reading."""
    whole = post(PATH, made(random, f"cut-{random.getrandbits(64):x}").body)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(whole[: random.choice((10, len(whole) // 2, len(whole) - 1, len(whole)))])
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    await asyncio.sleep(random.uniform(0, 0.05))
    writer.transport.abort()
    told.disturbed["clients that cut the connection"] += 1


async def slow_reader(port: int, random: Random, told: Told) -> None:
    """Asks for a large answer, reads a part of it slowly and is gone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /large HTTP/1.1\r\nHost: soak.test\r\nConnection: close\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        for _ in range(random.randrange(20)):
            if not await reader.read(16384):
                break
            await asyncio.sleep(0.05)
    writer.transport.abort()
    told.disturbed["slow readers of large answers"] += 1


async def staller(port: int, random: Random, told: Told) -> None:
    """Begins a head and says nothing more for a while."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /weather HTTP/1.1\r\nHo")
    await asyncio.sleep(random.uniform(1, 4))
    writer.transport.abort()
    told.disturbed["clients that stall"] += 1


DISTURBANCES: Final = (slow_sender, cutter, cutter, slow_reader, staller)


async def disturber(port: int, number: int, until: Callable[[], bool], told: Told) -> None:
    """One disturbance after the other."""
    random = Random(-number)
    while not until():
        try:
            await random.choice(DISTURBANCES)(port, random, told)
        except (asyncio.IncompleteReadError, OSError, TimeoutError) as error:
            told.lost.append(f"a disturber got no answer: {type(error).__name__}")
        await asyncio.sleep(random.uniform(0, 0.1))


def _parts(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
