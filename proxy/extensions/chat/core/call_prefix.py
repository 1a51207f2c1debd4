"""Whether a text that is still coming can become calls in markup: one row of `SHAPES` for each of `MARKUPS`.

A shape says in which order the parts of a call come: literal text, and the elements below. `TextWatch` looks for the
first sign of markup. From there it walks all shapes at once and drops each at the first character that differs. Names
have to be those of tools, and arguments the beginning of a JSON object, or of one that can be repaired.

The work for each part of a text depends on that part: no walk reads a character again, and only the text from the sign
on is kept, up to `LONGEST` characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.extensions.chat.core.call_markup import LONGEST, SIGNS, PassedText

# A walk waits (yields) for more text at its end, gives the place behind the taken part, and raises _Differs.
_Walk = Generator[None, None, int]


class _Differs(Exception):  # noqa: N818 - it names an event
    """The text does not have this shape."""


class _Coming:
    """The text from the sign on, as characters: adding to a list copies nothing."""

    def __init__(self, names: frozenset[str], *, inner_quotes: bool) -> None:
        self.text: list[str] = []
        self.names = names
        self.inner_quotes = inner_quotes

    def cut(self, start: int, end: int) -> str:
        """The text between two places."""
        return "".join(self.text[start:end])

    def may_begin_name(self, start: int, end: int) -> bool:
        """Whether the name of a tool begins with the text between two places."""
        if end - start > max(map(len, self.names), default=0):
            return False
        read = self.cut(start, end)
        return any(name.startswith(read) for name in self.names)


_Element = Callable[[_Coming, int], _Walk]


# --- elements ---------------------------------------------------------------------------------------------------------
def _take_literal(coming: _Coming, at: int, literal: str) -> _Walk:
    while (come := coming.cut(at, at + len(literal))) != literal:
        if not literal.startswith(come):
            raise _Differs
        yield
    return at + len(literal)


def _take_space(coming: _Coming, at: int) -> _Walk:
    while True:
        while at < len(coming.text) and coming.text[at].isspace():
            at += 1
        if at < len(coming.text):
            return at
        yield


def _take_word(coming: _Coming, at: int) -> _Walk:
    """Letters, digits, `_`, `.` and `-`."""
    while True:
        while at < len(coming.text) and (coming.text[at].isalnum() or coming.text[at] in "_.-"):
            at += 1
        if at < len(coming.text):
            return at
        yield


def _take_name(coming: _Coming, at: int) -> _Walk:
    """The name of a tool."""
    begun = at
    while True:
        while at < len(coming.text) and (coming.text[at].isalnum() or coming.text[at] in "_.-"):
            at += 1
        if not coming.may_begin_name(begun, at):
            raise _Differs
        if at < len(coming.text):
            if coming.cut(begun, at) not in coming.names:
                raise _Differs
            return at
        yield


def _take_until(coming: _Coming, at: int, literal: str) -> _Walk:
    """Any text, and this literal behind it."""
    while True:
        while at + len(literal) <= len(coming.text):
            if coming.text[at] == literal[0] and coming.cut(at, at + len(literal)) == literal:
                return at + len(literal)
            at += 1
        yield


def _maybe(literal: str, element: _Element | None = None) -> _Element:
    """A literal, and what follows it, that may be left out."""

    def take(coming: _Coming, at: int) -> _Walk:
        if not (yield from _begins(coming, at, (literal,))):
            return at
        at += len(literal)
        return (yield from element(coming, at)) if element is not None else at

    return take


def _begins(coming: _Coming, at: int, literals: Iterable[str]) -> Generator[None, None, bool]:
    """Whether one of these stands here; waits until that is clear."""
    literals = tuple(literals)
    longest = max(map(len, literals))
    while True:
        rest = coming.cut(at, at + longest)
        if rest.startswith(literals):
            return True
        if not any(literal.startswith(rest) for literal in literals):
            return False
        yield


def _pairs(opening: str, middle: str, closing: str, between: _Element = _take_space) -> _Element:
    """Arguments as pairs of a key and any text."""

    def take(coming: _Coming, at: int) -> _Walk:
        while (yield from _begins(coming, at, (opening,))):
            for end in (middle, closing):
                at = yield from _take_until(coming, at, end)
                if end == middle and middle.endswith("</arg_key>"):
                    at = yield from _take_literal(coming, (yield from _take_space(coming, at)), "<arg_value>")
            at = yield from between(coming, at)
        return at

    return take


def _take_object(coming: _Coming, at: int) -> _Walk:
    """An object that holds name and arguments."""
    return (yield from _take_json(coming, at, has_name=True))


def _take_arguments(coming: _Coming, at: int) -> _Walk:
    return (yield from _take_json(coming, at, has_name=False))


def _take_json(coming: _Coming, at: int, *, has_name: bool) -> _Walk:
    """An object, as far as text repairs may still make one: tokens and structure are looked at, not their grammar."""
    at = yield from _take_literal(coming, at, "{")
    depth, key, was_value = 1, "", False
    while depth:
        at = yield from _take_space(coming, at)
        char = coming.text[at]
        if char in "{}[],:":
            depth += (char in "{[") - (char in "}]")
            was_value = char in "}]"
            at += 1
        elif was_value:
            raise _Differs
        elif char in "\"'“":
            names_tool = has_name and depth == 1 and key == "name"
            begun, at = at + 1, (yield from _take_string(coming, at, names_tool=names_tool))
            key, was_value = coming.cut(begun, at - 1), True
        elif char.isalnum() or char in "_$+-.":
            begun, at = at, (yield from _take_bare(coming, at))
            key, was_value = coming.cut(begun, at), True
        elif char == "/":
            at = yield from _take_comment(coming, at)
        else:
            raise _Differs
    return at


def _take_bare(coming: _Coming, at: int) -> _Walk:
    while True:
        while at < len(coming.text) and (coming.text[at].isalnum() or coming.text[at] in "_$+-."):
            at += 1
        if at < len(coming.text):
            return at
        yield


def _take_comment(coming: _Coming, at: int) -> _Walk:
    if not (yield from _begins(coming, at, ("//", "/*"))):
        raise _Differs
    return (yield from _take_until(coming, at + 2, "\n" if coming.text[at + 1] == "/" else "*/"))


def _take_string(coming: _Coming, at: int, *, names_tool: bool) -> _Walk:
    quote = {"“": "”"}.get(coming.text[at], coming.text[at])
    begun = at = at + 1
    while True:
        while at < len(coming.text) and coming.text[at] != quote:
            is_escape = coming.text[at] == "\\"
            names_tool = names_tool and not is_escape
            at += 2 if is_escape else 1
        if names_tool and not coming.may_begin_name(begun, at):
            raise _Differs
        if at >= len(coming.text):
            yield
            continue
        if names_tool and coming.cut(begun, at) not in coming.names:
            raise _Differs
        after = yield from _take_space(coming, at + 1)
        if coming.text[after] in ",:]}" or not coming.inner_quotes:
            return at + 1
        at += 1  # a quote within the text, which a repair may escape


# --- shapes -----------------------------------------------------------------------------------------------------------
@value_class
class Shape:
    """The parts of a text with calls: the opening, a call, the beginning of a further one, and the closing."""

    call: tuple[str | _Element, ...]
    more: tuple[str, ...]
    opening: tuple[str | _Element, ...] = ()
    closing: tuple[str | _Element, ...] = ()


_CODER: Final = _pairs("<parameter=", ">", "</parameter>")
_GLM: Final = _pairs("<arg_key>", "</arg_key>", "</arg_value>")
_TAG: Final = _maybe("<tool_call>", _take_space)
_END_TAG: Final = _maybe("</tool_call>")
_FUNCTION: Final = (_TAG, "<function=", _take_name, ">", _take_space)
_DEEPSEEK: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>")
_ARGS: Final = (_maybe("[CALL_ID]", _take_word), _maybe("[ARGS]"), _take_space, _take_arguments)
_KIMI: Final = (
    "<|tool_call_begin|>", _take_space, _maybe("functions."), _take_name, ":", _take_word, _take_space,
    "<|tool_call_argument_begin|>", _take_space, _take_arguments, _take_space, "<|tool_call_end|>",
)  # fmt: skip
_HARMONY: Final = (
    _maybe("<|start|>assistant"), "<|channel|>commentary to=functions.", _take_name, _take_space,
    _maybe("<|constrain|>json"), "<|message|>", _take_arguments, "<|call|>",
)  # fmt: skip

SHAPES: Final[dict[str, Shape]] = {
    "hermes": Shape(
        ("<tool_call>", _take_space, _take_object, _take_space, "</tool_call>"), ("<tool_call>",)
    ),
    "qwen_coder": Shape((*_FUNCTION, _CODER, "</function>", _take_space, _END_TAG), ("<tool_call>", "<function=")),
    "function": Shape(
        (*_FUNCTION, _take_arguments, _take_space, "</function>", _take_space, _END_TAG), ("<tool_call>", "<function=")
    ),
    "glm": Shape(("<tool_call>", _take_space, _take_name, _take_space, _GLM, "</tool_call>"), ("<tool_call>",)),
    "mistral": Shape(("[TOOL_CALLS]", _take_space, _take_name, *_ARGS), ("[TOOL_CALLS]",)),
    "mistral_list": Shape(
        (_maybe(",", _take_space), _take_object), (",",), ("[TOOL_CALLS]", _take_space, "[", _take_space), ("]",)
    ),
    "llama": Shape((_maybe(";", _take_space), _take_object), (";", "{"), ("<|python_tag|>", _take_space)),
    "deepseek": Shape(
        (_DEEPSEEK[1], "function<｜tool▁sep｜>", _take_name, "\n```json\n", _take_arguments, "\n```", _take_space,
         "<｜tool▁call▁end｜>"), (_DEEPSEEK[1],), (_DEEPSEEK[0], _take_space), (_DEEPSEEK[2],),
    ),
    "deepseek_31": Shape(
        (_DEEPSEEK[1], _take_name, "<｜tool▁sep｜>", _take_arguments, _take_space, "<｜tool▁call▁end｜>"),
        (_DEEPSEEK[1],), (_DEEPSEEK[0], _take_space), (_DEEPSEEK[2],),
    ),
    "kimi": Shape(
        _KIMI, ("<|tool_call_begin|>",), ("<|tool_calls_section_begin|>", _take_space),
        ("<|tool_calls_section_end|>",),
    ),
    "gpt_oss": Shape(_HARMONY, ("<|start|>assistant", "<|channel|>")),
}  # fmt: skip
# Marks that templates put behind a turn.
_TURN_ENDS: Final = (
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|call|>", "</s>",
)  # fmt: skip


def _walk(shape: Shape, coming: _Coming, at: int) -> _Walk:
    """Walks a text to its end."""
    at = yield from _take_all(shape.opening, coming, at)
    while True:
        at = yield from _take_space(coming, (yield from _take_all(shape.call, coming, at)))
        if not (yield from _begins(coming, at, shape.more)):
            break
    at = yield from _take_all(shape.closing, coming, at)
    while True:
        at = yield from _take_space(coming, at)
        if not (yield from _begins(coming, at, _TURN_ENDS)):
            raise _Differs
        at += next(len(end) for end in _TURN_ENDS if coming.cut(at, at + len(end)) == end)


def _take_all(elements: tuple[str | _Element, ...], coming: _Coming, at: int) -> _Walk:
    for element in elements:
        at = yield from _take_literal(coming, at, element) if isinstance(element, str) else element(coming, at)
    return at


# --- the text of an answer --------------------------------------------------------------------------------------------
_LONGEST_SIGN: Final = max(map(len, SIGNS))
_SIGN_HEADS: Final = sorted({sign[:2] for sign in SIGNS})
_BEGUN_SIGN: Final = re.compile("|".join([*map(re.escape, _SIGN_HEADS), r"[<\[]\Z"]))
_BEGUN_SIGNS: Final = frozenset(sign[:size] for sign in SIGNS for size in range(1, len(sign)))


class TextWatch:
    """Watches the text of one answer. `start` is the place where calls may begin, None before there is one; `is_over`:
    no calls can begin any more, because the first sign of markup began no call. `inner_quotes`: the route repairs
    quotes in texts."""

    def __init__(self, names: Iterable[str], *, inner_quotes: bool) -> None:
        self._coming = _Coming(frozenset(names), inner_quotes=inner_quotes)
        self._walks: list[_Walk] = []
        self._passed = PassedText()
        self._begun = ""  # the end of the text, if a sign may have begun there
        self.start: int | None = None
        self.is_over = False

    @property
    def text(self) -> str:
        """The text from `start` on, once the sign is whole."""
        return "".join(self._coming.text)

    def feed(self, text: str) -> None:
        """Takes the next part of the text."""
        if not self.is_over:
            self._walk_on(text) if self._walks else self._look_for_sign(self._begun + text)

    def _look_for_sign(self, text: str) -> None:
        heads = [head for head in _SIGN_HEADS if head in text] if "<" in text or "[" in text else []
        found = [at for sign in SIGNS if sign[:2] in heads and (at := text.find(sign)) >= 0]
        at = min(found, default=_find_begun_sign(text))
        self._passed.add(text[:at])
        self._begun = text[at:]
        self.start = self._passed.length if self._begun else None
        if found:
            self._walks = [_walk(shape, self._coming, 0) for shape in SHAPES.values()]
            self.is_over = self._passed.is_example
            self._walk_on(self._begun)

    def _walk_on(self, text: str) -> None:
        self._coming.text += text[: LONGEST + 1]
        self._walks = [walk for walk in self._walks if _goes_on(walk)]
        if not self._walks or len(self._coming.text) > LONGEST:
            self.is_over = True
        if self.is_over:
            self.start, self._walks = None, []


def _find_begun_sign(text: str) -> int:
    """The place from which the end of a text may become a sign; the length of the text if there is none."""
    at = max(0, len(text) - _LONGEST_SIGN + 1)
    while (found := _BEGUN_SIGN.search(text, at)) is not None:
        at = found.start()
        if text[at:] in _BEGUN_SIGNS:
            return at
        at += 1
    return len(text)


def _goes_on(walk: _Walk) -> bool:
    try:
        next(walk)
    except (StopIteration, _Differs):
        return False
    return True
