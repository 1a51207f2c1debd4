"""The content of one answer, worked out once: the feedback and every wire format take their words from here.

A violation quotes what the caller sent, so each of its texts is masked, put on one line and cut before it is shown
(`preview.py`). Most answers hold nothing that has to be hidden: one look at all their texts together shows that. Log
lines and kept calls name places and tools as answers do (`list_places`, `show_path`, `show_name`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from proxy.core.display.graphemes import cut, escape, replace_surrogates
from proxy.core.display.preview import is_secret_path, make_hider, write_preview
from proxy.core.display.secrets import mask_credentials, may_hold_secret
from proxy.core.json.jsontext import format_pointer
from proxy.core.model.codes import REQUIRED_MISSING, Severity
from proxy.core.model.values import Absent, FeedbackLimits, JsonValue, Pointer, ToolResult, Violation

_SEVERITIES: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)

# How much of a text about one violation is looked at, and how much of it is shown, in code points.
_LOOKED_AT: Final = 4096
SHOWN: Final = 320
_PATH: Final = 120
_NAME: Final = 100
_STEPS: Final = 64


# What the part for machines holds: the words of the feedback once more (`full`), or each error in short.
Detail = Literal["compact", "full"]


class Shown(NamedTuple):
    """One violation as it may be shown. `message`, `expected` and `hint` are on one line and not yet cut; `path` and
    `actual` are; `actual` is what was sent there, None where nothing was."""

    violation: Violation
    path: str
    message: str
    expected: str
    hint: str
    actual: str | None


class FailureView:
    """The content of the answer to one failed call. `shown` are its violations in order, at most `max_errors` of them,
    `left_out` says how many more there are. `full`: the part for machines repeats what the feedback says."""

    def __init__(self, result: ToolResult, detail: Detail = "compact") -> None:
        self.result: Final = result
        self.full: Final = detail == "full"
        self.shown, self.left_out = show_violations(result.failure.violations, result.limits)
        self.brief_errors: list[JsonValue] | None = None  # those of the compact part, made by `parts.py`

    @property
    def first_hint(self) -> str:
        """The hint of the gravest violation, '' where there is none."""
        shown = self.shown  # `max_errors` may be 0
        shown = shown or show_violations(self.result.failure.violations, replace(self.result.limits, max_errors=1))[0]
        return cut(shown[0].hint, SHOWN) if shown else ""


def show_violations(violations: Sequence[Violation], limits: FeedbackLimits) -> tuple[tuple[Shown, ...], int]:
    """Violations as they may be shown, in order, at most `max_errors` of them, and how many are left out."""
    if not violations:
        return (), 0
    kept, left_out = select_violations(violations, limits.max_errors)
    joined = " ".join([text for each in kept for text in (each.message, each.expected, each.hint)])
    # Whether no text has anything to be masked or escaped, one value's own parts left aside.
    is_clean = joined.isascii() and joined.isprintable() and not may_hold_secret(joined)
    shown: list[Shown] = []
    for each in kept:
        secret = each.sensitive or is_secret_path(each.path, limits)
        hider = make_hider(each.value, limits, sensitive=secret)
        actual = None if isinstance(each.value, Absent) else write_preview(each.value, limits, sensitive=secret)
        texts = (each.message[:_LOOKED_AT], each.expected[:_LOOKED_AT], each.hint[:_LOOKED_AT])
        message, expected, hint = texts if is_clean and hider.idle else [escape(hider.hide(text)) for text in texts]
        if not hint and each.code is REQUIRED_MISSING and each.path:  # nothing better is known
            inside = f" to '{show_path(each.path[:-1])}'" if each.path[:-1] else ""
            hint = f"Add it{inside}, and do not guess its value."
        path = _known_paths.get(each.path) or show_path(each.path)
        shown.append(Shown(each, path, message, expected, hint, actual))
    return tuple(shown), left_out


def list_places(violations: Iterable[Violation], most: int) -> list[dict[str, JsonValue]]:
    """Path and code of each violation, in order, at most so many."""
    return [
        {"path": _known_paths.get(each.path) or show_path(each.path), "code": each.code.name}
        for each in select_violations(violations, most)[0]
    ]


def select_violations(violations: Iterable[Violation], max_errors: int) -> tuple[tuple[Violation, ...], int]:
    """The violations to show and how many are left out: each once, errors first, then by path (Acode FR-031..035)."""
    seen = {(violation.code.name, violation.path, violation.message): violation for violation in violations}
    ordered = sorted(seen.values(), key=_order) if len(seen) > 1 else list(seen.values())
    shown = tuple(ordered[: max(max_errors, 0)])
    return shown, len(ordered) - len(shown)


def _order(violation: Violation) -> tuple[int, list[tuple[bool, int, str]], str, str]:
    # Indexes compare as numbers: `/items/2` comes before `/items/10`.
    steps = [(False, step, "") if isinstance(step, int) else (True, 0, step) for step in violation.path]
    return _SEVERITIES.index(violation.severity), steps, violation.code.name, violation.message


def show_path(path: Pointer) -> str:
    """A path as RFC 6901 text on one line, cut short; '' for the root."""
    if path in _known_paths:
        return _known_paths[path]
    text = format_pointer(path[:_STEPS])
    shown = cut(escape(mask_credentials(replace_surrogates(text), _PATH)), _PATH)
    if shown == text:  # the places of a tool's mistakes come again and again; nothing that was hidden is kept
        if len(_known_paths) >= _MOST_PATHS:
            _known_paths.clear()
        _known_paths[path] = shown
    return shown


def show_name(name: str) -> str:
    """A tool's name as it was sent, on one line, cut short and without credentials: log lines, traces and kept calls
    have this one spelling."""
    if name in _plain_names:
        return name
    shown = cut(escape(mask_credentials(replace_surrogates(name[:_NAME]), _PATH)), _PATH)
    if shown == name:
        if len(_plain_names) >= _MOST_PATHS:
            _plain_names.clear()
        _plain_names.add(name)
    return shown


_known_paths: dict[Pointer, str] = {}
_plain_names: set[str] = set()  # names that are shown as they are
_MOST_PATHS: Final = 1024
