"""`evaluate --side model`: the share of models' turns that are right as they come, with a plain JSON repair, and
through the proxy. Every turn goes through a real proxy in this process to a model server that answers with it."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.core.json.jsontext import are_equal, parse
from proxy.core.json.textrepair import repair_text
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem
from proxy.core.rules.rules import TEXT_RULES
from proxy.extensions.chat.cli.evaluated_answers import Calls, EvaluatedAnswer, list_bundled_turns, read_turns
from proxy.file_writing import replace_file

# The ways that are measured, in order; the last two are levels of `repair`.
WAYS: Final = ("as it comes", "plain JSON repair", "standard", "lenient")
_LEVELS: Final = WAYS[2:]


@value_class
class AnswerResult:
    """One turn in one way. `right`: it has the expected calls, or expects none and stayed the same; `wrong`: it was
    changed into other calls; `same`: not a byte of the answer changed."""

    way: str
    turn: EvaluatedAnswer
    right: bool
    wrong: bool
    same: bool


def run(args: argparse.Namespace) -> int:
    """Measures and prints the table; gives the exit code: 1 where a wrong call was accepted or a clean answer
    changed."""
    try:
        turns = list_bundled_turns() + (read_turns(args.file) if args.file else [])
    except (OSError, ValueError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    found = asyncio.run(measure_turns(turns))
    print(write_table(found))
    return 1 if any(each.wrong for each in found) or _list_changed(found) else 0


def _list_changed(found: Sequence[AnswerResult]) -> list[AnswerResult]:
    """Clean turns of which a byte was changed."""
    return [each for each in found if each.way in _LEVELS and each.turn.kind == "clean" and not each.same]


async def measure_turns(turns: Sequence[EvaluatedAnswer]) -> list[AnswerResult]:
    """The results of all turns in all ways."""
    from proxy.config.load import load
    from proxy.server import start_serving

    answers = {str(number): _write_answer(turn) for number, turn in enumerate(turns)}
    server = await asyncio.start_server(_ModelServer(answers).serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        replace_file(config, json.dumps(_make_config(port)).encode())
        serving = await start_serving(load(config, os.environ), log_to=io.StringIO())
        try:
            own = urlsplit(serving.url).port or 0
            found = []
            for number, turn in enumerate(turns):
                sent = answers[str(number)]
                found += [_judge(WAYS[0], turn, sent, sent), _judge(WAYS[1], turn, sent, _repair_plainly(turn, sent))]
                for level in _LEVELS:
                    found.append(_judge(level, turn, sent, await _ask(own, level, str(number), turn)))
            return found
        finally:
            await serving.stop(grace=1.0)
            server.close()
            await server.wait_closed()


def _make_config(port: int) -> dict[str, Any]:
    routes: list[dict[str, Any]] = [
        {"path": f"/{level}", "upstream": "model", "model": {"text_calls": "leaked"}, "repair": level}
        for level in _LEVELS
    ]
    upstreams = {"model": {"url": f"http://127.0.0.1:{port}"}}
    return {"version": 1, "listen": "127.0.0.1:0", "admin": "off", "upstreams": upstreams, "routes": routes}


class _ModelServer:
    """Answers each request with the turn that it names."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self._answers = answers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                fields = dict(line.split(": ", 1) for line in head if ": " in line)
                await reader.readexactly(int(fields.get("content-length", "0")))
                body = self._answers[fields["x-turn"]]
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def _write_answer(turn: EvaluatedAnswer) -> bytes:
    finish = "tool_calls" if "tool_calls" in turn.message else "stop"
    choice = {"index": 0, "message": turn.message, "finish_reason": finish}
    return json.dumps({"id": turn.id, "object": "chat.completion", "choices": [choice]}, indent=1).encode()


async def _ask(port: int, level: str, number: str, turn: EvaluatedAnswer) -> bytes:
    """The answer that a client gets through the proxy."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in turn.tools.items()
    ]
    body = json.dumps({"model": "scripted", "messages": [], "tools": tools}).encode()
    head = f"POST /{level}/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    rest = f"X-Turn: {number}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write((head + rest).encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


def _repair_plainly(turn: EvaluatedAnswer, sent: bytes) -> bytes:
    """The answer after every text repair, without regard to schemas and names."""
    value = json.loads(sent)
    for call in turn.message.get("tool_calls") or ():
        text = call["function"]["arguments"].encode()
        repaired = repair_text(text, TEXT_RULES) if isinstance(parse(text), JsonProblem) else None
        if repaired is not None:
            value["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = repaired[0].decode()
    return json.dumps(value).encode()


def _judge(way: str, turn: EvaluatedAnswer, sent: bytes, got: bytes) -> AnswerResult:
    calls = _read_calls(got)
    same = sent == got or calls == _read_calls(sent)
    right = same if turn.expected is None else calls is not None and _are_same(calls, turn.expected)
    return AnswerResult(way, turn, right, way in _LEVELS and not right and not same, sent == got)


def _read_calls(answer: bytes) -> Calls | None:
    """The calls of an answer as a client reads them; None where their arguments are not JSON."""
    found = []
    for call in json.loads(answer)["choices"][0]["message"].get("tool_calls") or ():
        arguments = parse(call["function"]["arguments"].encode("utf-8", "surrogatepass"))
        if isinstance(arguments, JsonProblem):
            return None
        found.append((call["function"]["name"], arguments))
    return tuple(found)


def _are_same(calls: Calls, expected: Calls) -> bool:
    return len(calls) == len(expected) and all(
        name == expected_name and are_equal(arguments, expected_arguments)
        for (name, arguments), (expected_name, expected_arguments) in zip(calls, expected, strict=True)
    )


def write_table(found: Sequence[AnswerResult]) -> str:
    """The share of turns that are right, by kind and way."""
    kinds = list(dict.fromkeys(each.turn.kind for each in found))
    rows = [["", "turns", *WAYS]]
    for kind in (*kinds, "all"):
        here = [each for each in found if kind in (each.turn.kind, "all")]
        right = Counter(each.way for each in here if each.right)
        total = len(here) // len(WAYS)
        rows.append([kind, str(total), *(f"{right[way] / total:.1%}" for way in WAYS)])
    wrong = Counter(each.way for each in found if each.wrong)
    rows.append(["wrong and accepted", "", "", "", *(str(wrong[level]) for level in _LEVELS)])
    changed = Counter(each.way for each in _list_changed(found))
    rows.append(["clean and changed", "", "", "", *(str(changed[level]) for level in _LEVELS)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
