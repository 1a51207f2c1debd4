"""Finds the place where a text may begin to be calls in markup: the beginning of the answer, or of the line right
behind closed thinking.

Markup anywhere else is a quotation: behind words, in code, in a quote, in thinking. A quotation never becomes a call.
The work for each part of a text depends on that part, and only the text from the sign on is kept.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.extensions.chat.core.call_markup import LONGEST, SIGNS

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
