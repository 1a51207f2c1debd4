"""Turns of models for `evaluate --side model`: requests with tools, a model's answer, and the calls that are right.

The bundled set is made here: each of a few calls as it should be, in every known markup, in broken JSON, with wrong
types, and under wrong names; and turns without a call, or with one that is ambiguous. A file may add others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from proxy.core.model.value_class import value_class

Calls = tuple[tuple[str, Any], ...]


@value_class
class EvaluatedAnswer:
    """One turn. `tools` are name -> schema; `message` is the assistant's message of Chat Completions. `expected` are
    name and arguments of each call that is right; None where the turn has to stay as it is."""

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
    """A message with text alone."""
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
