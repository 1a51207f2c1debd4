"""Calls that stand as markup in the text of an answer: one row of `MARKUPS` for each way in which models write them.

The forms come from the models' chat templates, as the tests of the parsers of vLLM (tests/tool_use), SGLang
(test/srt/test_function_call_parser.py) and llama.cpp (tests/test-chat.cpp) have them; `source` names the place.

Text becomes calls only where it is complete markup from the first sign to the end. An example in a code fence or in
quotes, and a model's reasoning (`<think>`), is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Document, JsonProblem

# Reads a text as the route reads arguments, with the repairs of its level.
ReadText = Callable[[bytes], Document | JsonProblem]


@value_class
class TextCall:
    """A call as it stands in a text: the name, and the arguments as JSON text."""

    name: str
    arguments: bytes


@value_class
class CallMarkup:
    """One way to write calls. `sign`: how its markup begins. `opening` and `closing` stand around all calls, `call` is
    one of them. Its groups: `object` holds name and arguments, or `name` stands beside `json` or `pairs`; without one
    of these, JSON follows. `pair` is one argument among `pairs`, whose values are text."""

    name: str
    source: str
    sign: str
    call: re.Pattern[str]
    opening: re.Pattern[str] = re.compile("")
    closing: re.Pattern[str] = re.compile("")
    pair: re.Pattern[str] | None = None


@value_class
class FoundText:
    """The calls in a text, and the text before them."""

    before: str
    calls: tuple[TextCall, ...]


def _row(
    name: str, source: str, sign: str, call: str, around: tuple[str, str] = ("", ""), pair: str = ""
) -> CallMarkup:
    opening, closing = (re.compile(text) for text in around)
    made = re.compile(pair, re.DOTALL) if pair else None
    return CallMarkup(name, source, sign, re.compile(call, re.DOTALL), opening, closing, made)


_NAME: Final = r"(?P<name>[\w.\-]+)"
_JSON: Final = r"(?P<json>\{.*?\})"
_WITHIN_TAG: Final = (r"\s*(?P<tag><tool_call>\s*)?<function=", r"\s*</function>(?(tag)\s*</tool_call>)")

MARKUPS: Final = (
    _row(
        "hermes", "vLLM hermes_tool_parser (Hermes, Qwen 2.5)", "<tool_call>",
        r"\s*<tool_call>\s*(?P<object>\{.*?\})\s*</tool_call>",
    ),
    _row(
        "qwen_coder", "vLLM test_qwen3coder_tool_parser", "<function=",
        rf"{_WITHIN_TAG[0]}{_NAME}>\s*+(?P<pairs>(?:<parameter=[^<>]+>(?:(?!</parameter>).)*</parameter>\s*+)*){_WITHIN_TAG[1]}",
        pair=r"<parameter=([^<>]+)>\n?(.*?)\n?</parameter>",
    ),
    _row(
        "function", "llama.cpp tests/test-chat.cpp (Llama 3.1, Functionary)", "<function=",
        rf"{_WITHIN_TAG[0]}{_NAME}>\s*{_JSON}{_WITHIN_TAG[1]}",
    ),
    _row(
        "glm", "vLLM test_glm4_moe_tool_parser", "<tool_call>",
        rf"\s*<tool_call>\s*{_NAME}\s*"
        r"(?P<pairs>(?:<arg_key>[^<]*</arg_key>\s*<arg_value>(?:(?!</arg_value>).)*</arg_value>\s*)*)</tool_call>",
        pair=r"<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>",
    ),
    _row(
        "mistral", "vLLM test_mistral_tool_parser (tokenizers from v11 on)", "[TOOL_CALLS]",
        rf"\s*\[TOOL_CALLS\]\s*{_NAME}(?:\[CALL_ID\][\w\-]+)?(?:\[ARGS\])?\s*(?=\{{)",
    ),
    _row(
        "mistral_list", "vLLM test_mistral_tool_parser (older tokenizers)", "[TOOL_CALLS]",
        r"(?:\s*,)?\s*(?=\{)", (r"\s*\[TOOL_CALLS\]\s*\[", r"\s*\]"),
    ),
    _row(
        "llama", "SGLang test_function_call_parser (Llama32Detector)", "<|python_tag|>",
        r"\s*;?\s*(?=\{)", (r"\s*<\|python_tag\|>", ""),
    ),
    _row(
        "deepseek", "SGLang test_function_call_parser (DeepSeekV3Detector)", "<｜tool▁calls▁begin｜>",
        r"\s*<｜tool▁call▁begin｜>function<｜tool▁sep｜>(?P<name>[\w.\-]+)\n```json\n(?P<json>\{.*?\})\n```\s*<｜tool▁call▁end｜>",
        (r"\s*<｜tool▁calls▁begin｜>", r"\s*<｜tool▁calls▁end｜>"),
    ),
    _row(
        "deepseek_31", "vLLM test_deepseekv31_tool_parser", "<｜tool▁calls▁begin｜>",
        rf"\s*<｜tool▁call▁begin｜>{_NAME}<｜tool▁sep｜>{_JSON}\s*<｜tool▁call▁end｜>",
        (r"\s*<｜tool▁calls▁begin｜>", r"\s*<｜tool▁calls▁end｜>"),
    ),
    _row(
        "kimi", "SGLang test_function_call_parser (KimiK2Detector)", "<|tool_calls_section_begin|>",
        rf"\s*<\|tool_call_begin\|>\s*(?:functions\.)?{_NAME}:\d+\s*<\|tool_call_argument_begin\|>\s*{_JSON}\s*<\|tool_call_end\|>",
        (r"\s*<\|tool_calls_section_begin\|>", r"\s*<\|tool_calls_section_end\|>"),
    ),
    _row(
        "gpt_oss", "OpenAI harmony, \"Handling tool calls\"", "<|channel|>",
        rf"\s*(?:<\|start\|>assistant)?<\|channel\|>commentary to=functions\.{_NAME}\s*(?:<\|constrain\|>json)?"
        rf"<\|message\|>{_JSON}<\|call\|>",
    ),
)  # fmt: skip

# How markup begins.
SIGNS: Final = (*{row.sign for row in MARKUPS}, "<|start|>assistant<|channel|>")
_SIGN: Final = re.compile("|".join(map(re.escape, sorted(SIGNS, key=len, reverse=True))))
# Marks that templates put behind a turn.
_END_OF_TURN: Final = re.compile(r"(?:\s|<\|(?:eot_id|eom_id|im_end|end|endoftext|call)\|>|</s>)*\Z")
# Longer texts are not read.
LONGEST: Final = 64 * 1024


class _Count:
    """The occurrences of a mark in a text that comes in parts."""

    def __init__(self, mark: str) -> None:
        self.number = 0
        self._mark = mark
        self._begun = ""  # the end of the text, if the mark may have begun there

    def add(self, text: str) -> None:
        """Takes the next part of the text."""
        mark = self._mark
        if not self._begun and (mark[0] not in text or (mark[:2] not in text and not text.endswith(mark[0]))):
            return
        *before, rest = (self._begun + text).split(mark)
        self.number += len(before)
        self._begun = next((mark[:size] for size in range(len(mark) - 1, 0, -1) if rest.endswith(mark[:size])), "")


class PassedText:
    """The text before a place, of which only counts are kept."""

    def __init__(self) -> None:
        self.length = 0
        self._fences, self._thoughts, self._ends = _Count("```"), _Count("<think>"), _Count("</think>")

    def add(self, text: str) -> None:
        """Takes the next part of the text."""
        self.length += len(text)
        for count in (self._fences, self._thoughts, self._ends):
            count.add(text)

    @property
    def is_example(self) -> bool:
        """Whether the place behind the text is in an example or in reasoning."""
        return self._fences.number % 2 == 1 or self._thoughts.number > self._ends.number


def find_text_calls(text: str, read: ReadText) -> FoundText | None:
    """The calls with which a whole text ends; None where it has none, or they are in doubt."""
    found = _SIGN.search(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    before, passed = text[: found.start()], PassedText()
    passed.add(before)
    if passed.is_example:
        return None
    # `<tool_call>` may stand before `<function=`, and both belong to the markup.
    rows = [row for row in MARKUPS if row.sign == found[0] or found[0].startswith(("<tool_call>", "<|start|>"))]
    for row in rows:
        calls = _read_calls(row, text, found.start(), read)
        if calls:
            return FoundText(before.rstrip(), tuple(calls))
    return None


def find_lone_call(text: str, read: ReadText) -> FoundText | None:
    """The call that a whole text is, as a JSON object with `name` and `arguments` and nothing else."""
    stripped = text.strip()
    if len(text) > LONGEST or not stripped.startswith("{"):
        return None
    call = _read_object(stripped, read)
    return FoundText("", (call,)) if call is not None else None


def _read_calls(row: CallMarkup, text: str, at: int, read: ReadText) -> list[TextCall] | None:
    """The calls in one dialect from a place to the end of the text; None where any of that is incomplete."""
    if (found := row.opening.match(text, at)) is None:
        return None
    at, calls = found.end(), list[TextCall]()
    while (found := row.call.match(text, at)) is not None:
        parts, at = found.groupdict(), found.end()
        if not parts.keys() & {"object", "json", "pairs"}:
            if (end := _find_json_end(text, at)) is None:
                return None
            parts["json" if "name" in parts else "object"], at = text[at:end], end
        if (call := _make_call(row, parts, read)) is None:
            return None
        calls.append(call)
    closed = row.closing.match(text, at)
    return calls if closed is not None and _END_OF_TURN.match(text, closed.end()) else None


def _make_call(row: CallMarkup, parts: dict[str, Any], read: ReadText) -> TextCall | None:
    if "object" in parts:
        return _read_object(parts["object"], read)
    if row.pair is None or "pairs" not in parts:
        return TextCall(parts["name"], parts["json"].encode("utf-8", "surrogatepass"))
    pairs = [(key.strip(), value) for key, value in row.pair.findall(parts["pairs"])]
    if len(dict(pairs)) != len(pairs):
        return None
    return TextCall(parts["name"], dumps(dict(pairs)))


def _read_object(text: str, read: ReadText) -> TextCall | None:
    """The call that an object with `name` and `arguments` (Llama: `parameters`) stands for."""
    document = read(text.encode("utf-8", "surrogatepass"))
    value = document.value if isinstance(document, Document) else None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    keys = [key for key in ("arguments", "parameters") if key in value]
    if len(keys) != 1 or value.keys() - {"name", keys[0], "id", "type"}:
        return None
    inner = value[keys[0]]
    if isinstance(inner, str):
        return TextCall(value["name"], inner.encode("utf-8", "surrogatepass"))
    return TextCall(value["name"], dumps(inner)) if isinstance(inner, dict) else None


def _find_json_end(text: str, at: int) -> int | None:
    try:
        return json.JSONDecoder().raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None
