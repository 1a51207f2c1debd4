"""Shows a file path in a value relative to the operator's roots, else as `…/parent/file` (Acode NFR-011).

This only handles text; no path is looked up. Known spellings: POSIX (`/a/b`), Windows (`C:\\a\\b`,
`\\\\server\\share`), `file://` URLs. The path of an http URL is not a file path and does not change.
"""

from __future__ import annotations

import re
from typing import Final

# One step of a path inside a longer text. A path there has two steps or more, so a single `/word` (a JSON Pointer, a
# command) stays.
_STEP: Final = r"[^\s/\\\"'<>|:*?,;()\[\]{}]"
_INSIDE: Final = re.compile(
    rf"(?<![\w/\\:.~%&=?#-])(?:file://)?(?:[A-Za-z]:[\\/]|\\\\(?=\w)|/)(?:{_STEP}+[\\/])+{_STEP}*"
    rf"|(?<=[=:])(?<!://)(?<!\w:/)/(?!/)(?:{_STEP}+/)+{_STEP}*"
)
# A text that is a path as a whole may contain spaces.
_WHOLE: Final = re.compile(r"(?:file://)?(?:[A-Za-z]:[\\/]|\\\\\w|/(?!/))[^\n\r\"'<>|*?]*[\\/][^\n\r\"'<>|*?]*")
_LONGEST_WHOLE: Final = 4096


def shorten_paths(text: str, roots: tuple[str, ...]) -> str:
    """`text` with every absolute file path made relative to one of `roots`, or shown as `…/parent/file`."""
    if "/" not in text and "\\" not in text:
        return text
    if len(text) <= _LONGEST_WHOLE and _WHOLE.fullmatch(text):
        return _show_path(text, roots)
    return _INSIDE.sub(lambda found: _show_path(found[0], roots), text)


def _show_path(path: str, roots: tuple[str, ...]) -> str:
    steps = _steps(path)
    for root in roots:
        inside = _below(steps, _steps(root))
        if inside is not None:
            return "/".join(inside) or "."
    return "/".join(("…", *steps[-2:])) if len(steps) > 1 else path


def _below(steps: list[str], root: list[str]) -> list[str] | None:
    """The remaining steps of a path inside `root`, or None outside of it. Drive letters compare without case."""
    head = steps[: len(root)]
    windows = bool(root) and root[0].endswith(":")
    same = [step.casefold() for step in head] == [step.casefold() for step in root] if windows else head == root
    return steps[len(root) :] if same else None


def _steps(path: str) -> list[str]:
    """The steps of a path with `.` and `..` resolved, so that `/base/../etc` does not count as below `/base`."""
    steps: list[str] = []
    for step in re.split(r"[\\/]+", path.removeprefix("file://")):
        if step == "..":
            del steps[-1:]
        elif step not in ("", "."):
            steps.append(step)
    return steps
