"""Answers with masked places, in odd spellings and sizes: `answer:` hands on JSON that is short enough and hides them.

Each document is written with random escapes, white space and numbers, whole or cut off at the place where the proxy
would stop to read. It is an HTTP body, an MCP message or a stream of events. Python's own reader says what a model
would read of it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final

from proxy.core.check.validation import compile_check
from proxy.extensions.answer.core.answer_rules import AnswerRules
from proxy.extensions.answer.core.bodies import Filtered, FilterTask, filter_body
from proxy.extensions.answer.core.results import filter_message
from proxy.extensions.answer.core.shortening import NoteWriter
from proxy.extensions.answer.filtered_events import EventChange, FilteredEvents, decode_beginning
from tests.attacks import Found

# Part of every value that must not be shown.
MARK: Final = "qZx7Kd"
BEYOND: Final = 4096
NUMBERS: Final = (
    "0", "-0", "1", "1.50", "1e5", "1E+5", "-0.0", "0.30000000000000004", "9223372036854775808", "1" * 400,
    "1.10000000000000000000000000000000000001", "100000000000000000000.0", "5e-324",
)  # fmt: skip
TEXTS: Final = (
    "",
    "a",
    "\u00e9",
    "\U0001f600",
    "\x00\x1f",
    '"\\',
    "line\n" * 30,
    "x" * 300,
    "[1,2]",
    '{"a":1}',
    "\u2028",
)
NAMES: Final = ("a", "id", "n\u00e4me", "items", "a/b", "m~n", "", "_cut", "*", "0")
NOTES: Final = ("[Cut: ", "[cut: ")
_ESCAPED: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")


class Number(str):
    """A number by its own digits."""

    __slots__ = ()


def attack(seed: int, tries: int) -> Found:
    """Filters `tries` answers."""
    random, found = Random(seed), Found(tries)
    for _ in range(tries):
        kind = random.random()
        if kind < 0.05:
            _try_coded(random, found)
        elif kind < 0.1:
            _try_mutated(random, found)
        elif kind < 0.15:
            asyncio.run(_try_events(random, found))
        elif kind < 0.25:
            _try_text(random, found)
        else:
            _try_document(random, found)
    return found


# --- documents --------------------------------------------------------------------------------------------------------
def _make(random: Random, depth: int, places: list[tuple[str, ...]], at: tuple[str, ...] = ()) -> Any:
    """A document; `places` gets the pointers to the values that are to be masked."""
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice((Number(random.choice(NUMBERS)), random.choice(TEXTS), True, None))
    many = random.choice((0, 1, 3, 3, 10, 60)) if depth > 1 else random.randint(0, 6)
    if kind < 0.6:
        return [_make(random, depth - 1, places, (*at, str(index))) for index in range(many)]
    names = [f"{random.choice(NAMES)}{index}" if index else random.choice(NAMES) for index in range(min(many, 12))]
    made = {name: _make(random, depth - 1, places, (*at, name)) for name in names}
    if random.random() < 0.5:
        made["card"] = random.choice((MARK, {"deep": [MARK]}, [MARK, MARK], f"a {MARK} b" * 20))
        places.append((*at, "card"))
    return made


def _write(random: Random, value: Any) -> str:
    """A document as JSON in some spelling."""
    space = random.choice(("", "", " ", "\n", "\t"))
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(_spell(random, letter) for letter in value) + '"'
    if isinstance(value, list):
        return f"[{space}" + f"{space},".join(_write(random, item) for item in value) + f"{space}]"
    if isinstance(value, dict):
        pairs = (f"{_write(random, name)}{space}:{space}{_write(random, item)}" for name, item in value.items())
        return f"{{{space}" + f",{space}".join(pairs) + "}"
    return json.dumps(value)


def _spell(random: Random, letter: str) -> str:
    plain = json.dumps(letter, ensure_ascii=False)[1:-1]
    if random.random() < 0.9:
        return plain
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def _read(text: bytes | str) -> Any:
    """Returns what a model reads: every number by its digits. Raises ValueError for duplicate keys too."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("duplicate keys")
        return dict(pairs)

    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=unique)


def _hide(value: Any, places: list[tuple[str, ...]], at: tuple[str, ...] = ()) -> Any:
    """The document with its masks."""
    if at in places:
        return "***"
    if isinstance(value, list):
        return [_hide(item, places, (*at, str(index))) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: _hide(item, places, (*at, name)) for name, item in value.items()}
    return value


def _shows(body: bytes) -> bool:
    """Returns whether a value that must be masked is readable in a text, however it is escaped."""
    text = body.decode("utf-8", "replace")
    return MARK in text or MARK in _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def _is_beginning(shown: Any, whole: Any) -> bool:
    """Returns whether a value is a part of another one that was cut."""
    if isinstance(shown, Number) or isinstance(whole, Number):
        return type(shown) is type(whole) and str(shown) == str(whole)
    if isinstance(shown, str) and isinstance(whole, str):
        kept = shown.removesuffix("... [cut]").partition("\n[Cut: ")[0]
        return shown == whole or whole.startswith(kept)
    if isinstance(shown, list) and isinstance(whole, list):
        items = [item for item in shown if not (isinstance(item, str) and item.startswith(NOTES))]
        return len(items) <= len(whole) and all(_is_beginning(*pair) for pair in zip(items, whole, strict=False))
    if isinstance(shown, dict) and isinstance(whole, dict):
        return all(
            _is_beginning(item, whole[name]) if name in whole else str(item).startswith(NOTES)
            for name, item in shown.items()
        )
    return bool(shown == whole)


def _make_task(random: Random, places: list[tuple[str, ...]], *, secrets: bool = False) -> FilterTask:
    most = random.choice((2000, 2048, 3000, 5000, 20_000, 100_000))
    rules = AnswerRules(most, cuts=random.random() < 0.8, pointers=tuple(places), secrets=secrets)
    return FilterTask(rules, NoteWriter.of("orders", most, ("limit", "page", "status"), changes=random.random() < 0.1))


def _try_document(random: Random, found: Found) -> None:
    places: list[tuple[str, ...]] = []
    document = _make(random, random.choice((1, 2, 3, 4)), places)
    if random.random() < 0.2 and isinstance(document, dict):
        document["password"] = f"{MARK}-{'y' * random.choice((3, 4000))}"
        places.append(("password",))
    secrets = any(place[-1] == "password" for place in places)
    task = _make_task(random, [place for place in places if place[-1] != "password"], secrets=secrets)
    text = _write(random, document)
    if places and places[-1] and random.random() < 0.05 and isinstance(document, dict) and "card" in document:
        text = text[:-1] + f',"card":"{MARK}"}}'  # a second value under the same key
        _judge(random, found, text, None, task)
    elif isinstance(document, dict | list):
        _judge(random, found, text, _hide(document, places), task)


def _judge(random: Random, found: Found, text: str, wanted: Any, task: FilterTask) -> None:
    """Filters a document as a body or as a message, and looks at what comes of it. `wanted` None: it is no JSON."""
    if random.random() < 0.5:
        data = text.encode()
        most = task.rules.max_bytes + BEYOND
        media_type = random.choice(("application/json", "application/json", "text/plain", ""))
        made = filter_body(data[:most], media_type, "", task, is_whole=len(data) <= most)
        if (shown := _look(found, data, made, task)) is not None and wanted is not None:
            _compare(found, data, shown, wanted, made)
        return
    structured = random.random() < 0.5
    blocks = f'[{{"type":"text","text":{_write(random, text)}}}]'
    parts = [f'"content":{blocks}', *([f'"structuredContent":{text}'] if structured else [])]
    random.shuffle(parts)
    data = f'{{"jsonrpc":"2.0","id":7,"result":{{{",".join(parts)}}}}}'.encode()
    most = task.rules.max_bytes + BEYOND
    check = compile_check({"type": ["object", "array"]}) if structured and random.random() < 0.5 else None
    task = FilterTask(task.rules, task.notes, check)
    made = filter_message(data[:most], task, _put, is_whole=len(data) <= most)
    shown = _look(found, data, made, task)
    if shown is None or wanted is None:
        return
    result = shown["result"]
    if shown["id"] != "7" or not isinstance(result["content"], list) or (check and "structuredContent" not in result):
        found.add("no result of the call", (data, made))
    if structured and "structuredContent" in result:
        _compare(found, data, result["structuredContent"], wanted, made)
    for block in result["content"]:
        if not block["text"].startswith("[Cut: "):
            try:
                _compare(found, data, _read(block["text"]), wanted, made)
            except ValueError:
                found.add("a text block is not JSON", (data, made))
    if made.is_cut and not any("[Cut: " in block["text"] for block in result["content"]):
        found.add("nothing says that it was cut", (data, made))


def _put(result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "result": result}


def _look(found: Found, data: bytes, made: Filtered, task: FilterTask) -> Any:
    """Returns what a model reads of an answer; None if it is withheld. Finds what holds of every answer."""
    if made.withheld:
        return None
    body = data if made.body is None else made.body
    if len(body) > task.rules.max_bytes:
        found.add(f"{len(body)} bytes, although {task.rules.max_bytes} are allowed", (data, made))
    if task.rules.masks and _shows(body):
        found.add("a masked value is shown", (data, made, task.rules))
    if not made.is_cut and not made.is_masked and body != data:
        found.add("changed without a reason", (data, made))
    found.through += 1
    try:
        return _read(body)
    except ValueError:
        found.add("not JSON", (data, made))
        return None


def _compare(found: Found, data: bytes, shown: Any, wanted: Any, made: Filtered) -> None:
    if made.is_cut and not _is_beginning(shown, wanted):
        found.add("not the beginning of what the tool said", (data, shown))
    elif not made.is_cut and shown != wanted:
        found.add("not what the tool said", (data, shown))


# --- other bytes ------------------------------------------------------------------------------------------------------
def _try_mutated(random: Random, found: Found) -> None:
    """Bytes that are nearly JSON: they stay, are cut, or are withheld, and nothing raises."""
    data = bytearray(_write(random, _make(random, 4, [])).encode())
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randint(0, 2)] = random.choice(
            (b"", b"\xff", b'"', b"{", b"]", b"\\", b",", b"\x00", b"1e999")
        )
    secrets = random.random() < 0.5
    task = _make_task(random, [("a",)] if random.random() < 0.5 else [], secrets=secrets)
    most = task.rules.max_bytes + BEYOND
    body, is_whole = bytes(data[:most]), len(data) <= most
    made = filter_body(body, random.choice(("application/json", "text/plain", "")), "", task, is_whole=is_whole)
    filter_message(body, task, _put, is_whole=is_whole)
    shown = bytes(data) if made.body is None else made.body
    if not made.withheld and len(shown) > task.rules.max_bytes:
        found.add("too long", (bytes(data), made))


def _try_coded(random: Random, found: Found) -> None:
    """Coded bodies, whole, cut, doubled, or that decode to a thousand times their size."""
    plain = random.choice((b"a" * random.randint(0, 9000), b"\x00" * 3_000_000, random.randbytes(3000)))
    coding, pack = random.choice((("gzip", gzip.compress), ("deflate", zlib.compress), ("br", bytes)))
    data = pack(plain)
    if random.random() < 0.3:
        data += random.choice((data, b"x", b"\x1f\x8b"))
    if random.random() < 0.3:
        data = data[: random.randint(0, len(data))]
    most = random.choice((2000, 10_000))
    text, is_whole = decode_beginning(data, coding, most)
    if text is not None and (len(text) > most or not (plain * 2).startswith(text)):
        found.add("decoded to something else", (coding, data[:200], text[:200]))
    if is_whole and text not in (plain, plain * 2):
        found.add("a part taken for the whole", (coding, data[:200]))


def _try_text(random: Random, found: Found) -> None:
    """A text with credentials everywhere, so that one lies across each place at which a text may be cut."""
    secret = f"ghp_{MARK}0123456789abcdefghij"
    words = [
        secret if random.random() < 0.4 else "w" * random.randint(1, 30) for _ in range(random.choice((9, 300, 900)))
    ]
    text = random.choice((" ", "\n", ", ")).join(words)
    task = _make_task(random, [], secrets=True)
    most, form = task.rules.max_bytes + BEYOND, random.choice(("plain", "json", "message"))
    written = _write(random, text)
    if form == "message":
        data = f'{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":{written}}}]}}}}'.encode()
        made = filter_message(data[:most], task, _put, is_whole=len(data) <= most)
    else:
        data = text.encode() if form == "plain" else f'{{"log": {written}}}'.encode()
        media_type = "text/plain" if form == "plain" else "application/json"
        made = filter_body(data[:most], media_type, "", task, is_whole=len(data) <= most)
    body = data if made.body is None else made.body
    if not made.withheld and (_shows(body) or len(body) > task.rules.max_bytes):
        found.add("a credential is shown, or it is too long", (form, task.rules, data, body))
    found.through += not made.withheld


async def _try_events(random: Random, found: Found) -> None:
    """A stream in random pieces gives what it gives in one piece, and keeps the bytes of unchanged events."""
    end = random.choice((b"\n\n", b"\r\n\r\n", b"\r\r"))
    events = [
        b"data: " + b"x" * random.choice((0, 5, 700)) + end,
        b": note" + end,
        b"id: 1\nevent: a\ndata: 1\ndata: 2" + end,
    ]
    body = b"".join(random.choices(events, k=random.randint(0, 12))) + random.choice((b"", b"data: rest", b"\r"))

    async def pieces() -> AsyncIterator[bytes]:
        at = 0
        while at < len(body):
            step = random.choice((1, 2, 50, 5000))
            yield body[at : at + step]
            at += step

    async def keep(_data: bytes, is_whole: bool, _size: int) -> EventChange:
        return EventChange(is_dropped=not is_whole)

    most = random.choice((300, 100_000))
    shown = b"".join([event async for event in FilteredEvents(pieces(), most, keep)])
    large = b"data: " + b"x" * 700 + end
    if shown.replace(large, b"") != body.replace(large, b"") or (most == 100_000 and shown != body):
        found.add("a stream was changed", (body, shown))
