"""Tool-specific formatters: an operator's own lines in the text that a model reads about one tool (Acode 007.b).

A formatter is a Python callable `(Failure) -> Iterable[str]`, installed as an entry point of the group
`toolcall_proxy.formatters` under the name of its tool (`*` for every tool). It adds lines to the text; it cannot change
the decision, the errors or the format. Its lines are bounded and masked like any other text. An exception from it is
reported and otherwise ignored: a broken formatter never costs an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import Final

from proxy.core.model.values import Failure

Formatter = Callable[[Failure], Iterable[str]]

GROUP: Final = "toolcall_proxy.formatters"

# The most lines of one formatter: advice, not a page. The whole text is bounded as well.
_MAX_LINES: Final = 5
_MAX_LINE: Final = 300


class Formatters:
    """The formatters by tool name. `report` receives the tool's name and the exception of each failure."""

    def __init__(self, formatters: Mapping[str, Formatter], report: Callable[[str, Exception], None]) -> None:
        self._formatters = dict(formatters)
        self._report = report

    @classmethod
    def load_installed(cls, report: Callable[[str, Exception], None]) -> Formatters:
        """Loads every installed entry point of `GROUP`; reports and skips those that cannot be loaded."""
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

    @property
    def are_installed(self) -> bool:
        """Returns whether any tool has a formatter."""
        return bool(self._formatters)

    def lines(self, tool: str, failure: Failure) -> tuple[str, ...]:
        """The extra lines for a failed call of `tool`: at most five of 300 characters, often none."""
        formatter = self._formatters.get(tool) or self._formatters.get("*")
        if formatter is None:
            return ()
        try:
            return tuple(str(line)[:_MAX_LINE] for line in islice(formatter(_own(failure)), _MAX_LINES))
        except Exception as error:  # noqa: BLE001 - foreign code: the answer goes out without its lines
            self._report(tool, error)
            return ()


def _own(failure: Failure) -> Failure:
    """A copy of the failure for formatters: what they write into it does not reach the answer."""
    misuse = failure.container
    if misuse is not None:
        functions = tuple(map(replace, misuse.container.functions))
        misuse = replace(misuse, container=replace(misuse.container, functions=functions))
    violations = tuple(map(replace, failure.violations))
    return replace(failure, violations=violations, details=dict(failure.details), container=misuse)


def _any_installed() -> bool:
    """Returns whether some package may declare a formatter: the group's name occurs in its list of entry points.

    Python's own reader of these lists imports parsers of e-mail and of archives: 2 MB, and a tenth of the start. So it
    runs only if it may find something, or where packages come from somewhere other than a folder.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    folders = [Path(entry or ".") for entry in sys.path]
    if any(folder.is_file() for folder in folders):
        return True
    return any(
        GROUP.encode() in file.read_bytes() for folder in folders for file in folder.glob("*-info/entry_points.txt")
    )
