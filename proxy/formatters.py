"""Tool-specific formatters: an operator's own lines in what a model reads about one tool (Acode 007.b, "extensible").

A formatter is a Python callable `(Failure) -> Iterable[str]`, installed as an entry point of the group
`toolcall_proxy.formatters` under the name of its tool (`*`: every tool). It adds lines to the sentence; it cannot
change the decision, the errors or the format. What it gives is bounded and masked like any other text, and an
exception of its own is reported and otherwise ignored: a broken formatter never costs an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from itertools import islice
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
            return tuple(str(line)[:_MAX_LINE] for line in islice(formatter(failure), _MAX_LINES))
        except Exception as error:  # noqa: BLE001 - foreign code: the answer goes out without its lines
            self._report(tool, error)
            return ()
