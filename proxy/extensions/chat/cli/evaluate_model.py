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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.core.json.jsontext import are_equal, parse
from proxy.core.json.textrepair import repair_text
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem
from proxy.core.rules.rules import TEXT_RULES
from proxy.file_writing import replace_file

# --- turns of models for `evaluate --side model` ----------------------------------------------------------------------
# Turns of models for `evaluate --side model`: requests with tools, a model's answer, and the calls that are right.
#
# The bundled set is made here. It has each of a few calls in its right form, in every known markup, in broken JSON,
# with wrong types, and under wrong names. It also has turns without a call, or with an ambiguous one. A file may add
# others.

Calls = tuple[tuple[str, Any], ...]


@value_class
class EvaluatedAnswer:
    """One turn. `tools` are name -> schema; `message` is the assistant's message of Chat Completions. `expected` are
    name and arguments of each call that is right; None if the turn has to stay as it is."""

    id: str
    kind: str
    tools: Mapping[str, Any]
    message: Mapping[str, Any]
    expected: Calls | None


TOOLS: Final[dict[str, Any]] = {
    "get_weather": {
        "type": "object", "additionalProperties": False, "required": ["city"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
    "createInvoice": {
        "type": "object", "additionalProperties": False, "required": ["customer", "items"],
        "properties": {
            "customer": {"type": "string"}, "paid": {"type": "boolean"},
            "items": {"type": "array", "items": {"type": "string"}},
        },
    },
    "set-light": {
        "type": "object", "additionalProperties": False, "required": ["room", "level"],
        "properties": {"room": {"enum": ["hall", "kitchen"]}, "level": {"type": "number"}},
    },
}  # fmt: skip
# The calls that all turns are made of.
_CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("get_weather", {"city": "Oslo", "days": 3}),
    ("get_weather", {"city": "San José, CR"}),
    ("get_weather", {"city": 'It\'s "here"', "days": 14}),
    ("createInvoice", {"customer": "ACME & Söhne", "items": ["a", "b c"], "paid": True}),
    ("createInvoice", {"customer": "7", "items": [], "paid": False}),
    ("set-light", {"room": "hall", "level": 0.5}),
    ("set-light", {"room": "kitchen", "level": 12}),
)


def list_bundled_turns() -> list[EvaluatedAnswer]:
    """The bundled set."""
    return [
        EvaluatedAnswer(f"{number}/{kind}/{at}", kind, TOOLS, message, expected)
        for number, (name, arguments) in enumerate(_CALLS)
        for at, (kind, message, expected) in enumerate(_make_turns(name, arguments))
    ]


def read_turns(path: Path) -> list[EvaluatedAnswer]:
    """The answers in a file, one JSON object a line with these fields. Raises OSError or ValueError."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            written = json.loads(line)
            expected = written["expected"]
            calls = None if expected is None else tuple((name, arguments) for name, arguments in expected)
            found.append(EvaluatedAnswer(written["id"], written["kind"], written["tools"], written["message"], calls))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: this is no turn: {error!r}") from None
    return found


def make_call_message(name: str, arguments: str) -> dict[str, Any]:
    """A message with one call; `arguments` is its text."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def make_text_message(text: str) -> dict[str, Any]:
    """Returns a message that holds only text."""
    return {"role": "assistant", "content": text}


Turn = tuple[str, dict[str, Any], Calls | None]


def _make_turns(name: str, arguments: dict[str, Any]) -> Iterator[Turn]:
    right: Calls = ((name, arguments),)
    text = json.dumps(arguments, ensure_ascii=False)
    for written in (text, json.dumps(arguments, separators=(",", ":")), json.dumps(arguments, indent=2)):
        yield "clean", make_call_message(name, written), right
    yield "clean", make_text_message(f"I would call {name}, but which one do you mean?"), None
    for markup in _write_markup(name, arguments, text):
        yield "markup", make_text_message(markup), right
        yield "markup", make_text_message(f"<think>Let me do that.</think>\n{markup}"), right
    for broken in _break_json(text):
        yield "broken JSON", make_call_message(name, broken), right
    for wrong in _misspell(name):
        yield "wrong name", make_call_message(wrong, text), right
    for retyped in _retype(arguments):
        yield "wrong type", make_call_message(name, retyped), right
    for kind, message in _list_hopeless(name, arguments, text):
        yield kind, message, None


def _write_markup(name: str, arguments: dict[str, Any], text: str) -> Iterator[str]:
    """The call in the markup of models (core/call_markup.py)."""
    whole = f'{{"name": "{name}", "arguments": {text}}}'
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in plain.items())
    pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in plain.items())
    calls = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    yield f"<tool_call>\n{whole}\n</tool_call>"
    yield f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"
    yield f"<function={name}>{text}</function>"
    yield f"<tool_call>{name}\n{pairs}</tool_call>"
    yield f"[TOOL_CALLS]{name}{text}"
    yield f"[TOOL_CALLS] [{whole}]"
    yield f'<|python_tag|>{{"name": "{name}", "parameters": {text}}}<|eom_id|>'
    yield (
        f"{calls[0]}<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{text}\n```<｜tool▁call▁end｜>{calls[1]}"
    )
    yield f"{calls[0]}<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{text}<｜tool▁call▁end｜>{calls[1]}"
    yield (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{text}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    )
    yield f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{text}<|call|>"


def _break_json(text: str) -> Iterator[str]:
    """The arguments as models break them, with one meaning left."""
    yield f"```json\n{text}\n```"
    yield f"<tool_call>{text}</tool_call>"
    yield text + text
    yield f"{text[:-1]},}}"
    yield text.replace('{"', "{", 1).replace('":', ":", 1)
    yield text.replace("true", "True").replace("false", "False")
    if "'" not in text and '\\"' not in text:
        yield text.replace('"', "'")
    yield json.dumps(text, ensure_ascii=False)


def _misspell(name: str) -> Iterator[str]:
    yield name.upper()
    yield name.replace("_", "-") if "_" in name else name.replace("-", "_")
    yield name.replace("_", "").replace("-", "")
    yield f"{name[:3]} {name[3:]}" if name.isalpha() else name.replace("_", " ").replace("-", ".")


def _retype(arguments: dict[str, Any]) -> Iterator[str]:
    """The arguments with texts in place of other types."""
    retyped = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    if retyped != arguments:
        yield json.dumps(retyped)
        yield json.dumps(retyped, indent=1)


def _list_hopeless(name: str, arguments: dict[str, Any], text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Turns whose calls are ambiguous, and texts without a call."""
    whole = f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>'
    first = next(iter(arguments))
    yield "cut off", make_call_message(name, text[:-3])
    yield "cut off", make_text_message(whole[:-4])
    yield "another tool", make_call_message(f"{name}s_for_all", text)
    yield "another tool", make_text_message(whole.replace(f'"{name}"', '"delete_all"'))
    lacking = {key: value for key, value in arguments.items() if key != first}
    yield "missing", make_call_message(name, json.dumps(lacking))
    yield "missing", make_text_message(f"<function={name}>{json.dumps(lacking)}</function>")
    yield "example", make_text_message(f"A call looks like this:\n```\n{whole}\n```")
    yield "example", make_text_message(f"{whole} is how I would call it.")
    yield "example", make_text_message(f"The page ends with:\n\n{whole}")
    yield "example", make_text_message(f"> {whole}")
    yield "example", make_text_message(f'{{"name": "{name}", "arguments": {text}}}')


# --- `evaluate --side model` ------------------------------------------------------------------------------------------
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
    """Measures and prints the table; returns the exit code: 1 if a wrong call was accepted or a clean answer
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
    from proxy.plugin import load
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
