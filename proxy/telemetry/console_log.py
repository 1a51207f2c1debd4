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
    "tool_error": "35", "withheld": "33", "upstream_error": "31", "client_gone": "2",
}  # fmt: skip
_REASON: Final = 100
_NAME: Final = 60

Entry = Mapping[str, Any]


def format_note(entry: Entry) -> str:
    """The line of a note on the config; without its line end."""
    return f"{_format_time(entry)} note: {escape(str(entry['note']))}".lstrip()


def _format_time(entry: Entry) -> str:
    try:
        return datetime.fromisoformat(str(entry.get("timestamp", ""))).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return ""


def format_call(entry: Entry, *, colors: bool = False) -> str:
    """The line of an entry, as `/-/calls` lists them; without its line end."""
    time = _format_time(entry)
    # The tool, with the model that called it where its answer was judged; or method and route of any other request.
    tool, model = entry.get("gen_ai.tool.name"), entry.get("gen_ai.request.model")
    route = entry.get("http.route") or entry.get("url.path") or "(no route)"
    subject = str(tool) if tool else f"{entry.get('http.request.method', '')} {route}"
    outcome = str(entry["outcome"])
    shown = outcome if not entry.get("would_refuse") else f"{outcome} (would refuse)"
    if entry.get("retry_attempt"):
        shown += f" {min(entry['retry_attempt'], entry['max_retries'])}/{entry['max_retries']}"
    if colors:
        shown = f"\x1b[{_COLOURS.get(outcome, '0')}m{shown}\x1b[0m"
    head = (time, cut(escape(f"{subject} ({model})" if tool and model else subject), _NAME), shown)
    # The error in the last of a model's replaced answers.
    answers = entry.get("replaced", ())
    wrong = next((call for call in (answers[-1]["calls"] if answers else ()) if "error.type" in call), None)
    own = f" (own {entry['overhead_ms']:.1f})" if "overhead_ms" in entry else ""
    parts = [
        " ".join(filter(None, head)),
        _format_reason(entry),
        f"nearest route: {escape(str(entry['nearest_route']))}" if "nearest_route" in entry else "",
        f"asked again for {_format_reason(wrong)}" if wrong is not None else "",
        f"{entry.get('duration_ms', 0.0):.3g} ms{own}",
    ]
    if conversation := str(entry.get("conversation", "")):
        parts.append(f"conv {conversation[:4]}")
    return "  ".join((parts[0], *filter(None, parts[1:])))


def _format_reason(entry: Entry) -> str:
    """The first error with its place and how many more there are, else the failure, else the first repair."""
    errors, repairs, failure = entry.get("errors", ()), entry.get("repairs", ()), str(entry.get("error.type", ""))
    if errors:
        first, more = errors[0], max(len(errors), int(entry.get("error_count", 0))) - 1
        wants = f" wants {cut(first['expected'], _NAME)}," if first.get("expected") else ""
        got = f"{wants} got {first['got']}" if first.get("got") else ""
        return _format_line(f"{first['path'] or 'arguments'} {first['code']}{got}", more)
    if failure:
        return escape(failure + (f" by {entry['refused_by']}" if "refused_by" in entry else ""))
    if repairs:
        first = repairs[0]
        change = f" ({first['got']} -> {first['became']})" if "became" in first else ""
        return _format_line(f"{first['path'] or 'arguments'} {first['rule']}{change}", len(repairs) - 1)
    return ""


def _format_line(text: str, more: int) -> str:
    return cut(escape(text), _REASON) + (f" (+{more} more)" if more > 0 else "")
