"""Forwards the body of an HTTP answer unchanged, masks it, cuts it, or withholds it."""

from __future__ import annotations

import codecs
from typing import Final, Literal

from proxy.core.json.jsontext import parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue, Violation
from proxy.extensions.answer.core.answer_rules import LIMITS, AnswerRules
from proxy.extensions.answer.core.hiding import hide_credentials, holds_data, mask_json
from proxy.extensions.answer.core.shortening import NOTE_ROOM, Missing, NoteWriter, shorten_json
from proxy.extensions.answer.core.texts import end_at_line
from proxy.extensions.answer.core.unfinished import close_text
from proxy.plugin import Check, list_violations

_TEXTS: Final = ("json", "jsonl", "ndjson", "xml", "yaml", "javascript", "x-www-form-urlencoded", "csv", "graphql")

# Why an answer is withheld: it is too large, cannot be read, or breaks its schema.
Withheld = Literal["", "large", "unread", "schema"]


@value_class
class FilterTask:
    """The task for the answers to one call. They have to match the schema `check`; None without one."""

    rules: AnswerRules
    notes: NoteWriter
    check: Check | None = None


@value_class
class Filtered:
    """The result for an answer: the new `body`, None for the same bytes; or the reason why it is `withheld`.
    `is_masked` and `is_cut` say what was done; `verdict` is what its schema says of it, '' if it was not validated."""

    body: bytes | None = None
    withheld: Withheld = ""
    is_masked: bool = False
    is_cut: bool = False
    verdict: Literal["", "passed", "broken", "unread"] = ""
    broken: tuple[Violation, ...] = ()


UNCHANGED: Final = Filtered()
TOO_LARGE: Final = Filtered(withheld="large")
UNREAD: Final = Filtered(withheld="unread")


def filter_body(text: bytes, media_type: str, charset: str, task: FilterTask, *, is_whole: bool) -> Filtered:
    """Filters a decoded body. `is_whole` False: only its beginning has been read, because it is too large."""
    rules, kind = task.rules, find_kind(media_type)
    is_large = not is_whole or len(text) > rules.max_bytes
    if is_large and (not rules.cuts or kind == "binary"):
        return TOO_LARGE
    if not text or kind == "binary":
        return _leave_unread(task, UNCHANGED)
    closed = None if is_whole else close_text(text)
    data = text if closed is None else closed.text
    value = parse(data, LIMITS)
    if isinstance(value, JsonProblem) or (kind != "json" and not isinstance(value, dict | list)):
        if kind == "json" or (rules.masks and holds_data(text)):
            return UNREAD if rules.masks else TOO_LARGE if is_large else _leave_unread(task, UNCHANGED)
        return _leave_unread(task, _filter_text(text, kind, charset, task, is_whole=is_whole))
    judged = judge(value, task) if is_whole else _leave_unread(task, UNCHANGED)
    if judged.withheld:
        return judged
    open_at = None if closed is None else closed.open_at
    masked = mask_json(data, value, rules, open_at)
    is_masked = masked is not data
    if is_whole and len(masked) <= rules.max_bytes:
        return Filtered(masked if is_masked else None, "", is_masked, False, judged.verdict, judged.broken)
    shown = value if not is_masked else parse(masked, LIMITS)
    cut = shorten_json(shown, rules.max_bytes, task.notes, open_at) if rules.cuts else None
    if cut is None:
        return TOO_LARGE
    return Filtered(cut, "", is_masked, True, judged.verdict, judged.broken)


def judge(value: JsonValue, task: FilterTask) -> Filtered:
    """Returns the result of validating a value against the schema."""
    check = task.check
    if check is None or not task.rules.schema:
        return UNCHANGED
    if check.accepts(value):
        return Filtered(verdict="passed")
    broken = list_violations(check, value, ())
    withheld: Withheld = "schema" if task.rules.schema == "enforce" else ""
    return Filtered(None, withheld, verdict="broken", broken=broken)


def _leave_unread(task: FilterTask, filtered: Filtered) -> Filtered:
    """The same for an answer that cannot be validated: withheld if it has to match a schema."""
    if task.check is None or not task.rules.schema or filtered.withheld:
        return filtered
    if task.rules.schema == "enforce":
        return Filtered(withheld="unread", verdict="unread")
    return Filtered(filtered.body, "", filtered.is_masked, filtered.is_cut, "unread")


def find_kind(media_type: str) -> Literal["json", "text", "binary", ""]:
    """Returns the kind of body that a media type names; '' for none."""
    name = media_type.rpartition("/")[2].rpartition("+")[2]
    if name == "json":
        return "json"
    if media_type.startswith("text/") or name in _TEXTS:
        return "text"
    return "binary" if media_type else ""


def _filter_text(text: bytes, kind: str, charset: str, task: FilterTask, *, is_whole: bool) -> Filtered:
    """Filters a text that is not JSON. A text in an unknown charset is read by its bytes."""
    rules = task.rules
    found = _decode(text, charset or "utf-8", is_whole=is_whole)
    if found is None and kind != "text":
        return UNCHANGED if is_whole and len(text) <= rules.max_bytes else TOO_LARGE
    used = charset or "utf-8"
    if found is None:
        used, found = "latin-1", text.decode("latin-1")
    shown = hide_credentials(found, is_open=not is_whole) if rules.secrets else found
    is_masked = is_whole and shown != found
    data = shown.encode(used) if is_masked else text
    if is_whole and len(data) <= rules.max_bytes:
        return Filtered(data if is_masked else None, is_masked=is_masked)
    if not rules.cuts:
        return TOO_LARGE
    kept = end_at_line(_decode(shown.encode(used)[: rules.max_bytes - NOTE_ROOM], used, is_whole=False) or "")
    note = task.notes.write([Missing((), "characters", len(kept), len(found) if is_whole else None)])
    cut = f"{kept}\n{note}".encode(used)
    return Filtered(cut, "", is_masked, True) if len(cut) <= rules.max_bytes else TOO_LARGE


def _decode(text: bytes, charset: str, *, is_whole: bool) -> str | None:
    try:
        "".encode(charset)  # refuses codecs that are not of text
        return codecs.getincrementaldecoder(charset)().decode(text, final=is_whole)
    except (LookupError, UnicodeError):
        return None
