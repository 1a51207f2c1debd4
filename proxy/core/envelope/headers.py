"""The response headers that tell a client, without reading the body, what happened (contract section 1)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from proxy.core.display.graphemes import cut
from proxy.core.envelope.view import show_violations
from proxy.core.json.jsontext import format_pointer
from proxy.core.model.fields import read_seconds
from proxy.core.model.values import FeedbackLimits, Headers, Repair, ToolResult, Violation

# More entries would make a header that proxies refuse (8 KB is a common limit).
_LISTED: Final = 20
_LONGEST_PATH: Final = 200
_SAFE_IN_PATH: Final = "/_-.~:@$*!'()"
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/_.~:@$*!'()-]*")
# Messages of warnings, each and with their entries in all.
_LONGEST_MESSAGE: Final = 160
_WARNINGS_ROOM: Final = 4000
_SAFE_IN_TEXT: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")


def make_failure_headers(result: ToolResult, format_name: str, media_type: str) -> Headers:
    """All headers of a failed call's answer, but the request id and the length."""
    failure, attempt = result.failure, result.attempt
    headers = [
        ("Content-Type", media_type),
        ("Cache-Control", "no-store"),
        ("Tool-Error", failure.code.name),
        ("Tool-Format", format_name),
    ]
    if attempt is not None:
        headers.append(("Tool-Attempt", str(attempt)))
    wait = read_retry_after(failure.details["retry_after"]) if "retry_after" in failure.details else ""
    if wait and all(name.lower() != "retry-after" for name, _ in failure.headers):
        headers.append(("Retry-After", wait))
    return (*headers, *make_repair_headers(result.repairs), *failure.headers)


def read_retry_after(text: str) -> str:
    """A `Retry-After` value from what a tool said (`60`, `60s`, `1m0s`, an HTTP date); '' where it says neither."""
    text = text.strip()
    if (seconds := read_seconds(text)) is not None:
        return str(math.ceil(seconds))
    return text if _HTTP_DATE.fullmatch(text) else ""


def make_repair_headers(repairs: Sequence[Repair]) -> Headers:
    """`Tool-Repairs: rule;path=/a/b, ...`, at most 20 entries and then `more=n`; empty without repairs."""
    return _changes("Tool-Repairs", repairs)


def make_correction_headers(corrections: Sequence[Repair]) -> Headers:
    """`Tool-Corrections: semantic_retry;path=/amount, ...` likewise: the places that a model changed, by its layer."""
    return _changes("Tool-Corrections", corrections)


def _changes(name: str, made: Sequence[Repair]) -> Headers:
    if not made:
        return ()
    entries = [f"{change.rule};path={_path(format_pointer(change.path))}" for change in made[:_LISTED]]
    if len(made) > _LISTED:
        entries.append(f"more={len(made) - _LISTED}")
    return ((name, ", ".join(entries)),)


def make_warning_headers(warnings: Sequence[Violation], limits: FeedbackLimits) -> Headers:
    """`Tool-Warnings: VAL-005;path=/a;severity=warning;message="Unknown field 'a'", ...`, bounded likewise; empty
    without warnings. `limits` say what of the messages is masked."""
    if not warnings:
        return ()
    shown, left_out = show_violations(warnings, replace(limits, max_errors=_LISTED))
    entries, room = [], _WARNINGS_ROOM
    for each in shown:
        of, path = each.violation, _path(format_pointer(each.violation.path))
        entry = (
            f"{of.code};path={path};severity={of.severity};message={_quote_text(cut(each.message, _LONGEST_MESSAGE))}"
        )
        room -= len(entry) + 2
        if room < 0:
            break
        entries.append(entry)
    if more := left_out + len(shown) - len(entries):
        entries.append(f"more={more}")
    return (("Tool-Warnings", ", ".join(entries)),)


def _quote_text(text: str) -> str:
    """A text as a String of RFC 9651, or as a Display String where it is not plain ASCII."""
    if text.isascii() and text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return '%"' + quote(text, safe=_SAFE_IN_TEXT, errors="replace") + '"'


def _path(pointer: str) -> str:
    """A path as header text: percent-encoded where it is not plain ASCII or would end the entry."""
    if len(pointer) <= _LONGEST_PATH and _PLAIN_PATH.fullmatch(pointer):
        return pointer
    return quote(pointer[:_LONGEST_PATH], safe=_SAFE_IN_PATH, errors="replace")


@lru_cache(maxsize=64)  # clients send the same few
def prefers_problem(accept: str) -> bool:
    """Whether an Accept header asks for problem details, and not for plain JSON with more weight (RFC 9110, 12.5.1)."""
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((item[2:] for item in parameters if item.startswith("q=")), "1")
        weights[media_type] = float(weight) if re.fullmatch(r"[01](?:\.[0-9]{0,3})?", weight) else 0.0
    wanted = weights.get("application/problem+json", 0.0)
    return wanted > 0 and wanted >= weights.get("application/json", 0.0)
