"""Finds the place where a text may begin to be calls in markup: the beginning of the answer, or of the line right
behind closed thinking.

Markup anywhere else is a quotation: behind words, in code, in a quote, in thinking. A quotation never becomes a call.
The work for each part of a text depends on that part, and only the text from the sign on is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Document, JsonProblem, JsonValue

# --- calls that are as markup in the text of an answer --------------------------------------------------------------
# Calls that are as markup in the text of an answer: one row of `MARKUPS` for each way in which models write them.
#
# The forms come from the models' chat templates, as the tests of the parsers of vLLM (tests/tool_use), SGLang
# (test/srt/test_function_call_parser.py) and llama.cpp (tests/test-chat.cpp) have them; `source` names the place.
# Those that servers leak without a part of their markup come from public reports, which the samples of the tests
# name.
#
# Text becomes calls only if it is complete markup from the first sign to the end of the answer (`text_watch.py` finds
# the sign). If a mark that ends a call is missing, its arguments have to be JSON without a repair.

# Reads a text as the route reads arguments, with the repairs of its level.
ReadText = Callable[[bytes], Document | JsonProblem]


@value_class
class TextCall:
    """A call in a text: the name, and the arguments as JSON text."""

    name: str
    arguments: bytes


@value_class
class CallMarkup:
    """One way to write calls. `signs`: how its markup begins. `opening` and `closing` are around all calls, `call` is
    one of them. Its groups: `object` holds name and arguments, or `name` is next to `json` or `pairs`; without one
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
    """Returns the call in an object with `name` and `arguments` (Llama: `parameters`)."""
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


# --- finds the place where a text may begin to be calls in markup -----------------------------------------------------
# How a model's thinking begins, and how it ends. Thinking of any other kind is text.
_THINKING: Final = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|end|>",
}
_MARKS: Final = {begin: re.compile(f"{re.escape(begin)}|{re.escape(end)}") for begin, end in _THINKING.items()}
_LONGEST_MARK: Final = max(map(len, _THINKING))
# Markdown reads a line behind so many blanks as code.
_CODE: Final = 4


class TextWatch:
    """Watches the text of one answer. `start` is the place where calls may begin, None before there is one; `is_over`:
    no calls can begin any more. `takes_objects`: a JSON object counts as markup, too."""

    def __init__(self, *, takes_objects: bool = False) -> None:
        self.start: int | None = None
        self.is_over = False
        self._signs = (*SIGNS, "{") if takes_objects else SIGNS
        self._beginnings = (*self._signs, *_THINKING)
        self._length = 0
        self._rest = ""  # the end of the text, if it is not decided
        self._indent = ""  # the blanks at the beginning of the last line
        self._needs_line = False  # whether thinking has ended on the last line
        self._thinking = ""  # how the present thinking began
        self._markup: list[str] = []

    @property
    def text(self) -> str:
        """The text from `start` on, once the sign is whole."""
        return "".join(self._markup)

    def feed(self, text: str) -> None:
        """Takes the next part of the text."""
        self._length += len(text)
        if self.is_over:
            return
        if self._length > LONGEST:
            self._end()
        elif self._markup:
            self._markup.append(text)
        else:
            self._look(self._rest + text)

    def _look(self, text: str) -> None:
        """Looks for a sign until the text is decided or has to go on."""
        self._rest, left = "", text
        while left:
            left = self._skip_thinking(left) if self._thinking else self._read_beginning(left)

    def _skip_thinking(self, text: str) -> str:
        """The text behind the thinking that ends in this one; none if it does not end, or contains another one."""
        found = _MARKS[self._thinking].search(text)
        if found is None:
            self._rest = text[1 - _LONGEST_MARK :]
            return ""
        if found[0] == self._thinking:
            self._end()
            return ""
        self._thinking, self._indent, self._needs_line = "", "", found[0] != "<|end|>"
        return text[found.end() :]

    def _read_beginning(self, text: str) -> str:
        """The text behind blanks and the beginning of thinking; none if it is decided or has to go on."""
        begun = text.lstrip()
        _, line_end, blanks = text[: len(text) - len(begun)].rpartition("\n")
        self._indent = blanks if line_end else self._indent + blanks
        self._needs_line = self._needs_line and not line_end
        if len(self._indent.expandtabs(_CODE)) >= _CODE or (begun and self._needs_line):
            self._end()
        elif begun.startswith(self._signs):
            self.start, self._markup = self._length - len(begun), [begun]
        elif thinking := next((each for each in _THINKING if begun.startswith(each)), ""):
            self.start, self._thinking = None, thinking
            return begun[len(thinking) :]
        elif begun and any(each.startswith(begun) for each in self._beginnings):
            self.start, self._rest = self._length - len(begun), begun
        elif begun:
            self._end()
        return ""

    def _end(self) -> None:
        self.is_over, self.start, self._rest, self._markup = True, None, "", []
