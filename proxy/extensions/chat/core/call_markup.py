"""Calls that stand as markup in the text of an answer: one row of `MARKUPS` for each way in which models write them.

The forms come from the models' chat templates, as the tests of the parsers of vLLM (tests/tool_use), SGLang
(test/srt/test_function_call_parser.py) and llama.cpp (tests/test-chat.cpp) have them; `source` names the place. Those
that servers leak without a part of their markup come from public reports, which the samples of the tests name.

Text becomes calls only if it is complete markup from the first sign to the end of the answer (`text_watch.py` finds the
sign). If a mark that ends a call is missing, its arguments have to be JSON without a repair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Document, JsonProblem, JsonValue

# Reads a text as the route reads arguments, with the repairs of its level.
ReadText = Callable[[bytes], Document | JsonProblem]


@value_class
class TextCall:
    """A call as it stands in a text: the name, and the arguments as JSON text."""

    name: str
    arguments: bytes


@value_class
class CallMarkup:
    """One way to write calls. `signs`: how its markup begins. `opening` and `closing` stand around all calls, `call` is
    one of them. Its groups: `object` holds name and arguments, or `name` stands beside `json` or `pairs`; without one
    of these, JSON follows. `closed` is the mark that ends the call, if that may be missing. `pair` is one argument
    among `pairs`: its `key`, its `value`, which is text, and maybe `string`, `false` for a value that is JSON."""

    name: str
    source: str
    signs: tuple[str, ...]
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
    name: str, source: str, signs: tuple[str, ...], call: str, around: tuple[str, str] = ("", ""), pair: str = ""
) -> CallMarkup:
    opening, closing = (re.compile(text) for text in around)
    made = re.compile(pair, re.DOTALL) if pair else None
    return CallMarkup(name, source, signs, re.compile(call, re.DOTALL), opening, closing, made)


_NAME: Final = r"(?P<name>[\w.\-]+)"
_JSON: Final = r"(?P<json>\{.*?\})"
# Marks that templates put behind a turn.
_TURN_ENDS: Final = r"(?:\s|<\|(?:eot_id|eom_id|im_end|end|endoftext|call)\|>|</s>)*+\Z"
_END_OF_TURN: Final = re.compile(_TURN_ENDS)
_WITHIN_TAG: Final = (r"\s*(?:<tool_call>\s*)?<function=", r"\s*</function>(?:\s*</tool_call>)?")
_TOOL_CALL: Final = ("<tool_call>",)
_FUNCTION: Final = ("<tool_call>", "<function=")
_DEEPSEEK: Final = ("<｜tool▁calls▁begin｜>",)
_INVOKE: Final = r"(?:antml:|｜DSML｜)?"
_HARMONY: Final = ("<|channel|>commentary to=", "<|start|>assistant<|channel|>commentary to=", "<|start|>assistant to=")
_MESSAGE: Final = (
    rf"\s*(?:<\|constrain\|>)?(?:json)?\s*<\|message\|>{_JSON}\s*+(?:(?P<closed><\|call\|>)|(?={_TURN_ENDS}))"
)

MARKUPS: Final = (
    _row(
        "hermes", "vLLM hermes_tool_parser (Hermes, Qwen 2.5)", _TOOL_CALL,
        r"\s*<tool_call>\s*(?P<object>\{(?:(?!<tool_call>).)*?\})\s*+"
        rf"(?:(?P<closed></tool_call>)|(?={_TURN_ENDS}))",
    ),
    _row(
        "qwen_coder", "vLLM test_qwen3coder_tool_parser", _FUNCTION,
        rf"{_WITHIN_TAG[0]}{_NAME}>\s*+(?P<pairs>(?:<parameter=[^<>]+>(?:(?!</parameter>).)*</parameter>\s*+)*){_WITHIN_TAG[1]}",
        pair=r"<parameter=(?P<key>[^<>]+)>\n?(?P<value>.*?)\n?</parameter>",
    ),
    _row(
        "function", "llama.cpp tests/test-chat.cpp (Llama 3.1, Functionary)", _FUNCTION,
        rf"{_WITHIN_TAG[0]}{_NAME}>\s*{_JSON}{_WITHIN_TAG[1]}",
    ),
    _row(
        "invoke", "vLLM deepseekv32_tool_parser, minimax_m2_tool_parser (DSML, MiniMax M2, Claude)",
        ("<invoke name=", "<｜DSML｜invoke name=", "<function_calls>", "<minimax:tool_call>",
         "<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
        rf"\s*<(?P<prefix>{_INVOKE})invoke name=\"{_NAME}\">\s*+"
        r"(?P<pairs>(?:<(?P=prefix)parameter name=\"[^<>\"]+\"(?: string=\"(?:true|false)\")?>"
        r"(?:(?!</(?P=prefix)parameter>).)*</(?P=prefix)parameter>\s*+)*)</(?P=prefix)invoke>",
        (rf"\s*(?:<(?:minimax:tool_call|{_INVOKE}function_calls|｜DSML｜tool_calls)>)?",
         rf"\s*(?:</(?:minimax:tool_call|{_INVOKE}function_calls|｜DSML｜tool_calls)>)?"),
        pair=rf"<{_INVOKE}parameter name=\"(?P<key>[^<>\"]+)\"(?: string=\"(?P<string>true|false)\")?>"
        rf"\n?(?P<value>.*?)\n?</{_INVOKE}parameter>",
    ),
    _row(
        "glm", "vLLM test_glm4_moe_tool_parser", _TOOL_CALL,
        rf"\s*<tool_call>\s*{_NAME}\s*"
        r"(?P<pairs>(?:<arg_key>[^<]*</arg_key>\s*<arg_value>(?:(?!</arg_value>).)*</arg_value>\s*)*)</tool_call>",
        pair=r"<arg_key>(?P<key>[^<]*)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
    ),
    _row(
        "mistral", "vLLM test_mistral_tool_parser (tokenizers from v11 on)", ("[TOOL_CALLS]",),
        rf"\s*\[TOOL_CALLS\]\s*{_NAME}(?:\[CALL_ID\][\w\-]+)?(?:\[ARGS\])?\s*(?=\{{)",
    ),
    _row(
        "mistral_list", "vLLM test_mistral_tool_parser (older tokenizers)", ("[TOOL_CALLS]",),
        r"(?:\s*,)?\s*(?=\{)", (r"\s*\[TOOL_CALLS\]\s*\[", r"\s*\]"),
    ),
    _row(
        "llama", "SGLang test_function_call_parser (Llama32Detector)", ("<|python_tag|>",),
        r"\s*;?\s*(?=\{)", (r"\s*<\|python_tag\|>", ""),
    ),
    _row(
        "deepseek", "SGLang test_function_call_parser (DeepSeekV3Detector)", _DEEPSEEK,
        r"\s*<｜tool▁call▁begin｜>function<｜tool▁sep｜>(?P<name>[\w.\-]+)\n```json\n(?P<json>\{.*?\})\n```\s*<｜tool▁call▁end｜>",
        (r"\s*<｜tool▁calls▁begin｜>", r"\s*<｜tool▁calls▁end｜>"),
    ),
    _row(
        "deepseek_31", "vLLM test_deepseekv31_tool_parser", _DEEPSEEK,
        rf"\s*<｜tool▁call▁begin｜>{_NAME}<｜tool▁sep｜>{_JSON}\s*<｜tool▁call▁end｜>",
        (r"\s*<｜tool▁calls▁begin｜>", r"\s*<｜tool▁calls▁end｜>"),
    ),
    _row(
        "kimi", "SGLang test_function_call_parser (KimiK2Detector)", ("<|tool_calls_section_begin|>",),
        rf"\s*<\|tool_call_begin\|>\s*(?:functions\.)?{_NAME}:\d+\s*<\|tool_call_argument_begin\|>\s*{_JSON}\s*<\|tool_call_end\|>",
        (r"\s*<\|tool_calls_section_begin\|>", r"\s*<\|tool_calls_section_end\|>"),
    ),
    _row(
        "gpt_oss", "OpenAI harmony, \"Handling tool calls\"", _HARMONY,
        rf"\s*(?:<\|start\|>assistant)?<\|channel\|>commentary to=functions\.{_NAME}{_MESSAGE}",
    ),
    _row(
        "gpt_oss_role", "OpenAI harmony, \"Handling tool calls\": the recipient in the role section", _HARMONY,
        rf"\s*<\|start\|>assistant to=functions\.{_NAME}<\|channel\|>commentary{_MESSAGE}",
    ),
)  # fmt: skip

# How markup begins.
SIGNS: Final = tuple({sign for row in MARKUPS for sign in row.signs})
# Longer texts are not read.
LONGEST: Final = 64 * 1024


def find_text_calls(text: str, start: int, read: ReadText) -> FoundText | None:
    """The calls that a text is from a place on to its end; None if it is anything else."""
    for row in MARKUPS:
        if text.startswith(row.signs, start) and (calls := _read_calls(row, text, start, read)):
            return FoundText(text[:start].rstrip(), tuple(calls))
    return None


def find_lone_call(text: str, start: int, read: ReadText) -> FoundText | None:
    """The call that a text is from a place on, as a JSON object with `name` and `arguments` and nothing else."""
    call = _read_object(text[start:].strip(), read) if text.startswith("{", start) else None
    return FoundText(text[:start].rstrip(), (call,)) if call is not None else None


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
    if row.pair is not None:
        pairs = _read_pairs(row.pair, parts["pairs"])
        return None if pairs is None else TextCall(parts["name"], dumps(pairs))
    text = parts.get("object") or parts["json"]
    is_cut = "closed" in parts and not parts["closed"]
    if is_cut and not _is_strict(read(text.encode("utf-8", "surrogatepass"))):
        return None
    if "object" in parts:
        return _read_object(text, read)
    return TextCall(parts["name"], text.encode("utf-8", "surrogatepass"))


def _read_pairs(pair: re.Pattern[str], text: str) -> dict[str, JsonValue] | None:
    """The arguments that pairs of a key and a value make; None if a key comes twice."""
    pairs: dict[str, JsonValue] = {}
    for found in pair.finditer(text):
        key, value = found["key"].strip(), found["value"]
        is_json = found.groupdict().get("string") == "false"
        if key in pairs or isinstance(read := parse(value.encode()) if is_json else value, JsonProblem):
            return None
        pairs[key] = read
    return pairs


def _is_strict(document: Document | JsonProblem) -> bool:
    """Returns whether a text is JSON without a repair."""
    return isinstance(document, Document) and not document.repairs


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
