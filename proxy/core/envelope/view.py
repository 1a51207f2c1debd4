"""The content of one answer, worked out once: the feedback and every wire format take their words from here.

A violation quotes what the caller sent, so each of its texts is masked, put on one line and cut before it is shown
(`preview.py`). Most answers hold nothing that has to be hidden: one look at all their texts together shows that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final, Literal, NamedTuple

from proxy.core.display.graphemes import cut, escape, replace_surrogates
from proxy.core.display.preview import DisplayedValue, display_value
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


class DisplayedValues:
    """What may be shown of the values of one answer, worked out once for each value."""

    def __init__(self, limits: FeedbackLimits) -> None:
        self._limits = limits
        self._known: dict[tuple[int, Pointer, bool], tuple[JsonValue, DisplayedValue]] = {}

    def display(self, value: JsonValue, path: Pointer = (), sensitive: bool = False) -> DisplayedValue:
        """What may be shown of a value that was sent at `path`; `sensitive` says that all of it is a secret."""
        key = (id(value), path, sensitive)
        found = self._known.get(key)
        if found is None:  # the value is kept as well, so that no other one gets its id
            found = self._known[key] = (value, display_value(value, self._limits, path=path, sensitive=sensitive))
        return found[1]


class FailureView:
    """The content of the answer to one failed call. `shown` are its violations in order, at most `max_errors` of them,
    `left_out` says how many more there are. `full`: the part for machines repeats what the feedback says."""

    def __init__(self, result: ToolResult, detail: Detail = "compact") -> None:
        self.result: Final = result
        self.full: Final = detail == "full"
        violations, limits = result.failure.violations, result.limits
        self.shown: tuple[Shown, ...] = ()
        self.left_out = 0
        self.values: Final = DisplayedValues(limits)
        self.brief_errors: list[JsonValue] | None = None  # those of the compact part, made by `parts.py`
        if violations:
            kept, self.left_out = select_violations(violations, limits.max_errors)
            clean = _all_clean(kept)
            self.shown = tuple([_show_violation(violation, self.values, clean) for violation in kept])

    @cached_property
    def first_hint(self) -> str:
        """The hint of the gravest violation, '' where there is none."""
        if self.shown:
            return cut(self.shown[0].hint, SHOWN)
        kept, _ = select_violations(self.result.failure.violations, 1)  # `max_errors` may be 0
        return cut(_show_violation(kept[0], self.values, clean=False).hint, SHOWN) if kept else ""


def show_warnings(warnings: Iterable[Violation], limits: FeedbackLimits) -> tuple[tuple[Shown, ...], int]:
    """Warnings about a delivered call as they may be shown, at most `max_errors` of them, and how many are left out."""
    kept, left_out = select_violations(warnings, limits.max_errors)
    values = DisplayedValues(limits)
    return tuple([_show_violation(warning, values, clean=False) for warning in kept]), left_out


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


def _all_clean(violations: tuple[Violation, ...]) -> bool:
    """Whether no text of these violations has anything to be masked or escaped, one value's own parts left aside."""
    texts = [text for each in violations for text in (each.message, each.expected, each.hint)]
    joined = " ".join(texts)
    return joined.isascii() and joined.isprintable() and not may_hold_secret(joined)


def _show_violation(violation: Violation, values: DisplayedValues, clean: bool) -> Shown:
    """`clean`: the violation's texts need neither mask nor escape of their own."""
    texts = (violation.message[:_LOOKED_AT], violation.expected[:_LOOKED_AT], violation.hint[:_LOOKED_AT])
    displayed = values.display(violation.value, violation.path, violation.sensitive)
    hider = displayed.hider
    message, expected, hint = texts if clean and hider.idle else [escape(hider.hide(text)) for text in texts]
    actual = None if isinstance(violation.value, Absent) else displayed.preview
    return Shown(violation, show_path(violation.path), message, expected, hint or _hint_at_missing(violation), actual)


def _hint_at_missing(violation: Violation) -> str:
    """What to do about a missing key of which nothing better is known."""
    if violation.code is not REQUIRED_MISSING or not violation.path:
        return ""
    inside = f" to '{show_path(violation.path[:-1])}'" if violation.path[:-1] else ""
    return f"Add it{inside}, and do not guess its value."


def show_path(path: Pointer) -> str:
    """A path as RFC 6901 text on one line, cut short; '' for the root."""
    return _known_paths.get(path) or _show_path(path)


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


def _show_path(path: Pointer) -> str:
    text = format_pointer(path[:_STEPS])
    shown = cut(escape(mask_credentials(replace_surrogates(text), _PATH)), _PATH)
    if shown == text:  # the places of a tool's mistakes come again and again; nothing that was hidden is kept
        if len(_known_paths) >= _MOST_PATHS:
            _known_paths.clear()
        _known_paths[path] = shown
    return shown


_known_paths: dict[Pointer, str] = {}
_plain_names: set[str] = set()  # names that are shown as they are
_MOST_PATHS: Final = 1024
