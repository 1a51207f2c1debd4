"""Shows the sent arguments with the errors written into them as comments (optional, `feedback: {marks: true}`).

The idea is typia's: a model corrects a text better when it sees the mistake in its place. Every value is previewed, so
this shows no more than the list of errors does. Where the whole does not fit, nothing is shown.
"""

from __future__ import annotations

from typing import Final

from proxy.core.display.graphemes import cut, escape
from proxy.core.display.preview import clean_text, hide, write_preview
from proxy.core.model.values import Absent, Failure, FeedbackLimits, JsonValue, Pointer, Violation

_TITLE: Final = "Your arguments, with the errors marked:\n"
_DEPTH: Final = 6
_ENTRIES: Final = 30
_REMARK: Final = 120

_ByPath = dict[Pointer, list[Violation]]


def mark_errors(failure: Failure, limits: FeedbackLimits, room: int) -> str:
    """The arguments as indented JSON with `// ❌` behind each error; '' if unreadable, without errors or too long."""
    if isinstance(failure.sent, Absent) or not failure.violations:
        return ""
    by_path: _ByPath = {}
    for violation in failure.violations:
        by_path.setdefault(violation.path, []).append(violation)
    text = _TITLE + "\n".join(_lines("", failure.sent, (), by_path, limits, ""))
    return text if len(text) <= room else ""


def _lines(
    label: str, value: JsonValue, path: Pointer, errors: _ByPath, limits: FeedbackLimits, comma: str
) -> list[str]:
    indent = "  " * len(path)
    remark = _remark(errors.get(path, []), limits)
    if not _opens(value, path, errors):
        return [f"{indent}{label}{write_preview(value, limits, path=path)}{comma}{remark}"]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    entries = list(value.items() if isinstance(value, dict) else enumerate(value))
    lines = [f"{indent}{label}{opening}{remark}"]
    for index, (step, item) in enumerate(entries[:_ENTRIES]):
        key = f'"{escape(clean_text(step, 60), quotes=True)}": ' if isinstance(step, str) else ""
        lines += _lines(key, item, (*path, step), errors, limits, "" if index == len(entries) - 1 else ",")
    if len(entries) > _ENTRIES:
        lines.append(f"{indent}  ... (+{len(entries) - _ENTRIES} more)")
    present = {(*path, step) for step, _ in entries}
    lines += [f"{indent}  {_remark(found, limits).strip()}" for found in _missing(path, present, errors)]
    lines.append(f"{indent}{closing}{comma}")
    return lines


def _opens(value: JsonValue, path: Pointer, errors: _ByPath) -> bool:
    """Whether a container is written out, which happens only where an error lies inside it."""
    if not isinstance(value, dict | list) or len(path) >= _DEPTH:
        return False
    return any(len(place) > len(path) and place[: len(path)] == path for place in errors)


def _missing(path: Pointer, present: set[Pointer], errors: _ByPath) -> list[list[Violation]]:
    return [found for place, found in errors.items() if place[:-1] == path and place and place not in present]


def _remark(violations: list[Violation], limits: FeedbackLimits) -> str:
    if not violations:
        return ""
    said = "; ".join(
        hide(violation.message[:1024], violation.value, limits, path=violation.path, sensitive=violation.sensitive)
        for violation in violations
    )
    return "  // ❌ " + cut(escape(said), _REMARK)
