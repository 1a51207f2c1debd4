"""One finished request as one line for people: the console log, and `toolcall-proxy calls`.

    11:42:39 add_reminder refused 2/3  /at VAL-010 wants date-time, got text of 19   14 ms (own 1.1)  conv 9f3a

The parts are: time, tool, outcome, attempt, place and reason, why a model was asked again, total time and the proxy's
own, conversation. A line holds no value of a call, and shows control and bidirectional characters as escapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from proxy.core.display.graphemes import cut, escape

_COLOURS: Final = {
    "delivered": "32", "answered": "32", "repaired": "36", "corrected": "36", "passthrough": "2", "refused": "33",
    "tool_error": "35", "upstream_error": "31", "client_gone": "2",
}  # fmt: skip
_REASON: Final = 100
_NAME: Final = 60

Entry = Mapping[str, Any]


def format_call(entry: Entry, *, colors: bool = False) -> str:
    """The line of an entry, as `/-/calls` lists them; without its line end."""
    outcome = str(entry["outcome"])
    shown = outcome if not entry.get("would_refuse") else f"{outcome} (would refuse)"
    if entry.get("retry_attempt"):
        shown += f" {min(entry['retry_attempt'], entry['max_retries'])}/{entry['max_retries']}"
    parts = [
        _format_time(str(entry.get("timestamp", ""))),
        _format_subject(entry),
        _add_colour(shown, outcome) if colors else shown,
    ]
    head = " ".join(part for part in parts if part)
    tail = [_format_reason(entry), _format_replaced(entry), _format_times(entry)]
    if conversation := str(entry.get("conversation", "")):
        tail.append(f"conv {conversation[:4]}")
    return "  ".join((head, *(part for part in tail if part)))


def _format_time(stamp: str) -> str:
    """The local time of day."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return ""


def _format_subject(entry: Entry) -> str:
    """The tool, with the model that called it where its answer was judged; or method and route of any other request."""
    tool = entry.get("gen_ai.tool.name")
    name = str(tool) if tool else f"{entry.get('http.request.method', '')} {entry.get('http.route') or '(no route)'}"
    model = entry.get("gen_ai.request.model")
    return cut(escape(f"{name} ({model})" if tool and model else name), _NAME)


def _add_colour(text: str, outcome: str) -> str:
    return f"\x1b[{_COLOURS.get(outcome, '0')}m{text}\x1b[0m"


def _format_reason(entry: Entry) -> str:
    """The first error or repair with its place, and how many more there are; else the error code."""
    errors, repairs = entry.get("errors", ()), entry.get("repairs", ())
    if errors:
        first, more = errors[0], max(len(errors), int(entry.get("error_count", 0))) - 1
        wants = f" wants {cut(first['expected'], _NAME)}," if first.get("expected") else ""
        got = f"{wants} got {first['got']}" if first.get("got") else ""
        return _format_line(f"{first['path'] or 'arguments'} {first['code']}{got}", more)
    if repairs:
        first = repairs[0]
        change = f" ({first['got']} -> {first['became']})" if "became" in first else ""
        return _format_line(f"{first['path'] or 'arguments'} {first['rule']}{change}", len(repairs) - 1)
    return escape(str(entry.get("error.type", "")))


def _format_replaced(entry: Entry) -> str:
    """What was wrong in the last of a model's answers that others took the place of."""
    answers = entry.get("replaced", ())
    wrong = next((call for call in (answers[-1]["calls"] if answers else ()) if "error.type" in call), None)
    return f"asked again for {_format_reason(wrong)}" if wrong is not None else ""


def _format_line(text: str, more: int) -> str:
    return cut(escape(text), _REASON) + (f" (+{more} more)" if more > 0 else "")


def _format_times(entry: Entry) -> str:
    own = f" (own {entry['overhead_ms']:.1f})" if "overhead_ms" in entry else ""
    return f"{entry.get('duration_ms', 0.0):.3g} ms{own}"
