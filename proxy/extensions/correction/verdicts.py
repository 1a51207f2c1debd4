"""Reads an endpoint's answer into a verdict. Pure and bounded; it never raises.

    read_content(body)   an OpenAI chat completion -> the text of its one choice
    find_object(text)    the one JSON object in it: bare, in a Markdown fence, or inside prose
    make_verdict(object) its verdict, in either of the seeds' shapes

An unclear answer is not a verdict: several different objects, a cut-off answer, a shape of neither seed. The caller
then keeps the failure it had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from proxy.core.json.jsontext import are_equal, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.correction.core.words import Layer
from proxy.extensions.correction.rules import MATRIX, Action


class Unusable(StrEnum):
    """The reason why an answer is not a verdict."""

    NOT_JSON = "not_json"  # no chat completion, or no JSON object in its text
    CUT_OFF = "cut_off"  # `finish_reason: length`: the answer is incomplete
    DECLINED = "declined"  # the endpoint's filter, or a refusal
    AMBIGUOUS = "ambiguous"  # several objects that could be the answer
    SHAPE = "shape"  # an object, but of neither seed


@value_class
class ModelVerdict:
    """A model's verdict: all arguments (`whole`), those to change (`changes`), or neither.

    The model's `analysis` may quote arguments, so it stays in the debug log.
    """

    should_retry: bool
    transient: bool = False
    whole: JsonValue = field(default=None, repr=False)
    changes: JsonValue = field(default=None, repr=False)

    @property
    def action(self) -> Action:
        """The action for it, by MATRIX."""
        has_changes = self.whole is not None or bool(self.changes)
        return MATRIX[self.should_retry, has_changes, self.transient]


# --- the completion ---------------------------------------------------------------------------------------------------
_CUT_OFF: Final = "length"
_FILTERED: Final = "content_filter"
# No model takes more tokens; a larger number from an endpoint is cut to this.
_MOST_TOKENS: Final = 10_000_000


def read_content(body: bytes) -> str | Unusable:
    """The text of a chat completion's first choice (`choices[0].message.content`, a text or a list of text parts)."""
    completion = parse(body)
    choices = completion.get("choices") if isinstance(completion, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Unusable.NOT_JSON
    if choice.get("finish_reason") == _CUT_OFF:
        return Unusable.CUT_OFF
    if choice.get("finish_reason") == _FILTERED or message.get("refusal"):
        return Unusable.DECLINED
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_read_part(part) for part in content)
    return content if isinstance(content, str) and content.strip() else Unusable.NOT_JSON


@value_class
class Usage:
    """The tokens of a question and its answer, by the endpoint's own count; 0 if it does not say."""

    prompt: int = 0
    completion: int = 0


def read_usage(body: bytes) -> Usage:
    """The `usage` of a chat completion."""
    completion = parse(body)
    usage = completion.get("usage") if isinstance(completion, dict) else None
    return Usage(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def _count(usage: JsonValue, key: str) -> int:
    value = usage.get(key) if isinstance(usage, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return min(max(value, 0), _MOST_TOKENS)


def _read_part(part: JsonValue) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


# --- the object -------------------------------------------------------------------------------------------------------
# Reasoning models write their thoughts before this mark, and the answer after it.
_THOUGHTS: Final = "</think>"
_FENCE: Final = "```"
_MARK: Final = re.compile(r"[\"{}]")
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# How many characters of a text are searched, and how many places in it are parsed. Each character is visited once.
_SEARCHED: Final = 64 * 1024
_READ: Final = 16


def find_object(text: str) -> dict[str, JsonValue] | Unusable:
    """The one JSON object in a text. Among several the one with a verdict's keys wins; equal ones count as one."""
    text = text.rpartition(_THOUGHTS)[2].strip()
    whole = parse(text.encode("utf-8", "replace"))
    if not isinstance(whole, JsonProblem):
        return whole if isinstance(whole, dict) else Unusable.NOT_JSON
    text = text[:_SEARCHED]
    for candidates in (_find_fenced(text), _find_in_prose(text)):
        found = _parse_distinct(candidates)
        with_keys = [item for item in found if not _VERDICT_KEYS.isdisjoint(item)]
        best = with_keys or found
        if len(best) == 1:
            return best[0]
        if best:
            return Unusable.AMBIGUOUS
    return Unusable.NOT_JSON


def _find_fenced(text: str) -> Iterator[str]:
    """The texts between pairs of fences, without their first line."""
    start = text.find(_FENCE)
    for _ in range(_READ):
        begin = text.find("\n", start) if start >= 0 else -1
        end = text.find(_FENCE, begin) if begin >= 0 else -1
        if end < 0:
            return
        yield text[begin:end]
        start = text.find(_FENCE, end + len(_FENCE))


def _find_in_prose(text: str) -> Iterator[str]:
    """The longest pieces with balanced braces; braces inside strings do not count."""
    found: list[tuple[int, int]] = []
    opened: list[int] = []
    at = text.find("{")
    while at >= 0 and (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == "{":
            opened.append(mark.start())
        elif mark[0] == "}":
            start = opened.pop()
            while found and found[-1][0] > start:
                found.pop()
            found.append((start, at))
        elif (string := _STRING.match(text, mark.start())) is not None:
            at = string.end()
        else:
            break  # an unterminated string: what follows cannot be parsed
        if not opened:
            at = text.find("{", at)
    yield from (text[start:end] for start, end in found[:_READ])


def _parse_distinct(candidates: Iterator[str]) -> list[dict[str, JsonValue]]:
    found: list[dict[str, JsonValue]] = []
    for text in candidates:
        value = parse(text.encode("utf-8", "replace"))
        if isinstance(value, dict) and not any(are_equal(value, other) for other in found):
            found.append(value)
    return found


# --- the verdict ------------------------------------------------------------------------------------------------------
_WHOLE_KEY: Final = "corrected_payload"
_CHANGES_KEYS: Final = ("suggested_changes", "corrected_parameters")
_SAYS: Final = ("can_fix", "should_retry")
_VERDICT_KEYS: Final = frozenset({_WHOLE_KEY, *_CHANGES_KEYS, *_SAYS})


def make_verdict(answer: Mapping[str, JsonValue], layer: Layer) -> ModelVerdict | Unusable:
    """The verdict in an object. Layer 3 also accepts bare arguments, which the seed's own prompt asks for."""
    if _VERDICT_KEYS.isdisjoint(answer):
        bare = layer is Layer.VALIDATION_FEEDBACK
        return ModelVerdict(should_retry=True, whole=dict(answer)) if bare else Unusable.SHAPE
    wishes = [answer[key] for key in _SAYS if key in answer]
    transient = answer.get("is_transient_error", False)
    given = {key: answer[key] for key in (_WHOLE_KEY, *_CHANGES_KEYS) if answer.get(key) is not None}
    if not all(isinstance(item, bool) for item in (*wishes, transient)) or len(set(wishes)) > 1:
        return Unusable.SHAPE
    if not all(isinstance(item, dict) for item in given.values()):
        return Unusable.SHAPE
    if len(given) > 1:
        return Unusable.AMBIGUOUS
    changes = next((given[key] for key in _CHANGES_KEYS if key in given), None)
    return ModelVerdict(all(wishes), transient, given.get(_WHOLE_KEY), changes)


def read_verdict(body: bytes, layer: Layer) -> ModelVerdict | Unusable:
    """The verdict in an endpoint's answer."""
    content = read_content(body)
    if isinstance(content, Unusable):
        return content
    answer = find_object(content)
    return answer if isinstance(answer, Unusable) else make_verdict(answer, layer)
