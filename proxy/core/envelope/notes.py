"""What is said of a failed call as a whole: its hint, whether the tool ran, when to come back, the tool's own words.

Nothing is told twice: the tool's own words stand here only as far as nothing above holds them.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.contract import container
from proxy.core.display.graphemes import cut, escape
from proxy.core.display.preview import clean_text
from proxy.core.model.values import FeedbackLimits, ToolResult

LONGEST_NOTE: Final = 480
# What a detail means in words. `{value}` is the detail's text.
_NOTES: Final = {
    ("executed", "no"): "The tool did not run.",
    ("executed", "yes"): "The tool did run.",
    (
        "executed",
        "unknown",
    ): "It is not known whether the tool ran: make sure before you repeat what must not happen twice.",
    ("blocked", "every call"): "Every further call of this tool is refused in this conversation.",
    ("blocked", "refused by the tool"): "This call was not sent to the tool.",
    ("blocked", "these arguments"): "These very arguments were refused before and are refused without another look.",
}


_OWN_WORDS: Final = "original_error"
_OWN_WORDS_ARE: Final = "The tool's own words:"
# Code points of one line of them.
_WORDS: Final = 1500
_OPEN_NOTES: Final = {
    "answer_errors": "What is wrong with its answer: {value}",
    "errors": "What it answered: {value}",
    "retry_after": "Wait {value} before the next call.",
}


# Details for machines alone.
_NO_NOTES: Final = frozenset(
    {"upstream_status", "executed", "reason", "sends", "failed_with", "hint", "did_you_mean", "used", "limit"}
)


def write_notes(result: ToolResult, limits: FeedbackLimits, said: str, room: int) -> str:
    """What is to be said of the call as a whole; nothing that has been `said` before."""
    failure = result.failure
    notes = (
        [container.write_guidance(failure.container.container)] if failure.container and not result.escalated else []
    )
    notes.append(failure.hint)
    for key, value in failure.details.items():
        if (key, value) in _NOTES:
            notes.append(_NOTES[key, value])
        elif value == failure.message or value == failure.hint:  # the answer says that already
            continue
        elif key == _OWN_WORDS:
            notes.append(_show_own_words(value, limits, said))
        elif key in _OPEN_NOTES:
            notes.append(_OPEN_NOTES[key].format(value=_unit(key, value)))
        elif failure.status is not None and key not in _NO_NOTES and value:  # a detail that the tool sent itself
            notes.append(f"{key}: {value}")
    notes += result.extra
    lines: list[str] = []
    for note in filter(None, notes):
        most = _WORDS if note is failure.hint else LONGEST_NOTE
        line = note if note.startswith(_OWN_WORDS_ARE) else cut(escape(clean_text(note, most, limits)), most)
        if line and len(line) + 1 <= room:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(lines)


def _show_own_words(value: str, limits: FeedbackLimits, said: str) -> str:
    """The lines of the tool's own words that nothing above holds; one for each error that it lists."""
    lines = [cut(escape(clean_text(line.strip(), _WORDS, limits)), _WORDS) for line in value.split("\n")]
    kept = [line for line in lines if line and not _is_said(line, said)]
    if len(kept) < 2:
        return f"{_OWN_WORDS_ARE} {kept[0]}" if kept else ""
    return "\n- ".join([_OWN_WORDS_ARE, *kept])


# A line of the tool's words: its place or the library that speaks, its words, and the data behind them.
_SENTENCE_END: Final = re.compile(r"[.;!] ")


_LINE_OF_WORDS: Final = re.compile(r"(?:[\w.$/#\[\]-]{1,120}: )?(.+?)(?: \((\w[\w .-]{0,60}: .+)\))?")


def _is_said(line: str, said: str) -> bool:
    """Whether a text holds the words of a line and each value of its data; a code alone is no news."""
    found = _LINE_OF_WORDS.fullmatch(line)
    if line in said or found is None:
        return line in said
    data = [piece.partition(": ") for piece in (found[2] or "").split(", ") if piece]
    sentences = [sentence.strip(" .;!") for sentence in _SENTENCE_END.split(found[1])]
    return all(sentence in said for sentence in sentences) and all(
        name == "code" or (text or name) in said for name, _, text in data
    )


def _unit(key: str, value: str) -> str:
    if key != "retry_after":
        return value
    if value.replace(".", "", 1).isdecimal():
        return "1 second" if value == "1" else f"{value} seconds"
    return f"until {value}" if "GMT" in value else value
