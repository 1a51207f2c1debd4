"""Tool-specific formatters: an operator's own lines in what a model reads about one tool (Acode 007.b, "extensible").

A formatter is a Python callable `(Failure) -> Iterable[str]`, installed as an entry point of the group
`toolcall_proxy.formatters` under the name of its tool (`*`: every tool). It adds lines to the sentence; it cannot
change the decision, the errors or the format. What it gives is bounded and masked like any other text, and an
exception of its own is reported and otherwise ignored: a broken formatter never costs an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import Final

from proxy.core.model import Failure

Formatter = Callable[[Failure], Iterable[str]]

GROUP: Final = "toolcall_proxy.formatters"

# A few words of advice, not a page: the sentence as a whole is bounded anyway.
_MAX_LINES: Final = 5
_MAX_LINE: Final = 300


class Formatters:
    """The formatters by tool name. `report` is told of each one that fails: the tool's name and the exception."""

    def __init__(self, formatters: Mapping[str, Formatter], report: Callable[[str, Exception], None]) -> None:
        self._formatters = dict(formatters)
        self._report = report

    @classmethod
    def installed(cls, report: Callable[[str, Exception], None]) -> Formatters:
        """Loads every installed entry point of `GROUP`; one that cannot be loaded is reported and left out."""
        if not _any_installed():
            return cls({}, report)
        from importlib.metadata import entry_points

        found: dict[str, Formatter] = {}
        for entry in entry_points(group=GROUP):
            try:
                found[entry.name] = entry.load()
            except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises must not stop the proxy
                report(entry.name, error)
        return cls(found, report)

    def lines(self, tool: str, failure: Failure) -> tuple[str, ...]:
        """The extra lines for a failed call of `tool`, at most five of 300 characters; () where there are none."""
        formatter = self._formatters.get(tool) or self._formatters.get("*")
        if formatter is None:
            return ()
        try:
            return tuple(str(line)[:_MAX_LINE] for line in islice(formatter(_own(failure)), _MAX_LINES))
        except Exception as error:  # noqa: BLE001 - foreign code: the answer goes out without its lines
            self._report(tool, error)
            return ()


def _own(failure: Failure) -> Failure:
    """A formatter's own copy: nothing stands guard over a failure at run time, and what one writes into it is no part
    of the answer."""
    return replace(failure, violations=tuple(replace(violation) for violation in failure.violations))


def _any_installed() -> bool:
    """Whether some package may declare a formatter: the name of the group stands in its list of entry points.

    Python's own reader of that list brings along a parser of e-mail and of archives: 2 MB, and a tenth of a start. So
    it is only asked where it may find something, or where packages come from what is no folder.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    folders = [Path(entry or ".") for entry in sys.path]
    if any(folder.is_file() for folder in folders):
        return True
    return any(
        GROUP.encode() in file.read_bytes() for folder in folders for file in folder.glob("*-info/entry_points.txt")
    )
