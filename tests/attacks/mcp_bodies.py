"""Bodies around valid and invalid `tools/call`: whatever reaches the server is read as lenient readers would.

None of them (the first or the last of two members counts, names without their case) may see a call whose arguments the
tool's schema refuses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, Final

import jsonschema

from tests.attacks import Found
from tests.extensions.mcp.conversation import Talk, talk
from tests.extensions.mcp.server import McpServer
from tests.serving.wire import Seen, answer, exchange, post

SCHEMA: Final = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 10}, "s": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
ARGUMENTS: Final = (
    '{"a":1}', '{"a":"1"}', '{"a":99}', '{"a":1,"evil":1}', '{"a":1,"a":99}', r'{"a":1,"\u0061":99}', '{"A":1}',
    '{"a":99,"A":1}', "{}", "null", "[]", r'"{\"a\":1}"', r'"{\"a\":99}"', '{"a":1.0}', '{"a":1e1}', '{"a":11.0}',
    '{"a":NaN}', '{"a":1}x', '{"arguments":{"a":99}}', r'{"a":1,"s":"\ud800"}', '{"a":1,}', '{"a":1e400}',
)  # fmt: skip
NAMES: Final = ('"add"', '"Add"', '"add "', r'"\u0061dd"', '"functions.add"', '"nope"', "1", "null", '["add"]')
METHODS: Final = ('"tools/call"', r'"tools\/call"', r'"tools/c\u0061ll"', '"Tools/Call"', '"ping"', '"tools/list"')
IDS: Final = ("1", '"x"', "null", "1.0", "{}", "1e400", "true", "123456789012345678901234567890")


def attack(seed: int, tries: int) -> Found:
    """Sends `tries` bodies to an MCP route."""
    return asyncio.run(_attack(Random(seed), tries))


class _Patient(McpServer):
    """A server that answers a list also where nobody can tell to whom."""

    def _answer(self, message: Any, seen: Seen) -> Awaitable[bytes] | bytes:
        if not isinstance(message, dict) or "id" not in message:
            return answer("202 Accepted", b"")
        return super()._answer(message, seen)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        try:
            await super().__call__(reader, writer, seen)
        except (ValueError, KeyError, TypeError):
            writer.write(answer("400 Bad Request", b"{}"))


async def _attack(random: Random, tries: int) -> Found:
    found = Found(tries)
    async with talk(_Patient([{"name": "add", "inputSchema": SCHEMA}])) as client:
        for _ in range(tries):
            body, seen = _body(random), len(client.upstream.seen)
            await _send(client, body, found)
            for request in client.upstream.seen[seen:]:
                found.through += 1
                found.findings += [f"{why}: {body!r} as {request.body!r}" for why in _wrongs(request.body)]
            del client.upstream.seen[:]
    return found


async def _send(client: Talk, body: bytes, found: Found) -> None:
    try:
        seen = await exchange(client.proxy.port, post("/mcp", body))
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as error:
        found.add(f"no answer ({type(error).__name__})", body)
        return
    if seen.status >= 500 and b"INTERNAL_ERROR" in seen.body:
        found.add("a defect", body)


def _body(random: Random) -> bytes:
    def pick(values: tuple[str, ...]) -> str:
        return values[0] if random.random() < 0.6 else random.choice(values)

    def key(name: str) -> str:
        other = random.choice((name.upper(), name.capitalize(), name + " ", name.replace("s", "\u017f")))
        return name if random.random() < 0.9 else other

    def member(name: str, value: str) -> str:
        return f'"{key(name)}":{value}'

    def message() -> str:
        params = [member("name", pick(NAMES)), member("arguments", random.choice(ARGUMENTS))]
        params += [member("arguments", random.choice(ARGUMENTS))] * (random.random() < 0.2)
        random.shuffle(params)
        made = ['"jsonrpc":"2.0"', member("method", pick(METHODS)), member("params", "{" + ",".join(params) + "}")]
        made += [member("id", pick(IDS))] * (random.random() < 0.9)
        made += [member("method", random.choice(METHODS))] * (random.random() < 0.1)
        random.shuffle(made)
        return "{" + ",".join(made) + "}"

    text, kind = message(), random.random()
    if kind < 0.08:
        text = f"[{text},{message()}]"
    elif kind < 0.12:
        text = text + message()
    elif kind < 0.14:
        text = "\ufeff" + text
    return text.encode("utf-16") if kind > 0.98 else text.encode("utf-8", "surrogatepass")


# --- lenient readers --------------------------------------------------------------------------------------------------
def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _caseless(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = ("method", "params", "name", "arguments", "id", "a", "s")
    return {key.casefold() if key.casefold() in known else key: value for key, value in pairs}


READERS: Final[tuple[Callable[[list[tuple[str, Any]]], dict[str, Any]], ...]] = (dict, _first, _caseless)


def _wrongs(body: bytes) -> Iterator[str]:
    for reader in READERS:
        try:
            value = json.loads(body.decode("utf-8", "replace"), object_pairs_hook=reader)
        except ValueError:
            continue
        for message in value if isinstance(value, list) else [value]:
            if isinstance(message, dict) and message.get("method") == "tools/call":
                params = message.get("params")
                arguments = params.get("arguments", {}) if isinstance(params, dict) else None
                if not jsonschema.Draft202012Validator(SCHEMA).is_valid(arguments):
                    yield f"{reader.__name__} reads an invalid call"
