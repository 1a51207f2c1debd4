"""The response headers that tell a client, without reading the body, what happened (contract section 1)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

from proxy.core.jsontext import format_pointer
from proxy.core.model import Headers, Repair, ToolResult, Violation

# More entries would make a header that proxies refuse (8 KB is a common limit).
_LISTED: Final = 20
_LONGEST_PATH: Final = 200
_SAFE_IN_PATH: Final = "/_-.~:@$*!'()"
_SECONDS: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*s?")
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")


def failure_headers(result: ToolResult, format_name: str, media_type: str) -> Headers:
    """All headers of a failed call's answer, but the request id and the length."""
    failure, attempt = result.failure, result.attempt
    headers = [
        ("Content-Type", media_type),
        ("Cache-Control", "no-store"),
        ("Tool-Error", failure.code.name),
        ("Tool-Format", format_name),
    ]
    if attempt is not None:
        headers.append(("Tool-Attempt", f"{attempt.number}/{attempt.limit}"))
    wait = retry_after(failure.details.get("retry_after", ""))
    if wait and all(name.lower() != "retry-after" for name, _ in failure.headers):
        headers.append(("Retry-After", wait))
    return (*headers, *repair_headers(result.repairs), *failure.headers)


def retry_after(text: str) -> str:
    """A `Retry-After` value from what a tool said (`60`, `60s`, `1.5`, an HTTP date); '' where it says neither."""
    text = text.strip()
    if found := _SECONDS.fullmatch(text):
        return str(math.ceil(float(found[1])))
    return text if _HTTP_DATE.fullmatch(text) else ""


def repair_headers(repairs: Sequence[Repair]) -> Headers:
    """`Tool-Repairs: rule;path=/a/b, ...`, at most 20 entries and then `more=n`; empty without repairs."""
    return _changes("Tool-Repairs", repairs)


def correction_headers(corrections: Sequence[Repair]) -> Headers:
    """`Tool-Corrections: semantic_retry;path=/amount, ...` likewise: the places that a model changed, by its layer."""
    return _changes("Tool-Corrections", corrections)


def _changes(name: str, made: Sequence[Repair]) -> Headers:
    entries = (f"{change.rule};path={_path(format_pointer(change.path))}" for change in made)
    return ((name, _listed(entries, len(made))),) if made else ()


def warning_headers(warnings: Sequence[Violation]) -> Headers:
    """`Tool-Warnings: VAL-005;path=/a;severity=warning, ...`, bounded likewise; empty without warnings."""
    entries = (
        f"{warning.code};path={_path(format_pointer(warning.path))};severity={warning.severity}" for warning in warnings
    )
    return (("Tool-Warnings", _listed(entries, len(warnings))),) if warnings else ()


def _listed(entries: Iterable[str], number: int) -> str:
    shown = [entry for _, entry in zip(range(_LISTED), entries, strict=False)]
    return ", ".join(shown + ([f"more={number - _LISTED}"] if number > _LISTED else []))


def _path(pointer: str) -> str:
    """A path as header text: percent-encoded where it is not plain ASCII or would end the entry."""
    return quote(pointer[:_LONGEST_PATH], safe=_SAFE_IN_PATH, errors="replace")


def prefers_problem(accept: str) -> bool:
    """Whether an Accept header asks for problem details, and not for plain JSON with more weight (RFC 9110, 12.5.1)."""
    weights: dict[str, float] = {}
    for part in accept[:4096].lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        weights[media_type] = next((_weight(item[2:]) for item in parameters if item.startswith("q=")), 1.0)
    wanted = weights.get("application/problem+json", 0.0)
    return wanted > 0 and wanted >= weights.get("application/json", 0.0)


def _weight(text: str) -> float:
    return float(text) if re.fullmatch(r"[01](?:\.[0-9]{0,3})?", text) else 0.0
