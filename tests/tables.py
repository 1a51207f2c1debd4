"""Tests over a large table: one test for all of its rows, whose failure names each row that failed.

`pytest.mark.parametrize` makes a test of each row, which every worker collects and one reports. For rows that take
less than that, `each_row` is in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

# The rows that a failure shows, and the characters of a row's name.
_SHOWN: Final = 20
_NAME: Final = 200


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], ids: Sequence[str] | Callable[[Any], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls the test with each row; a row's name is of `ids`, or the row itself. All rows are tried."""
    table = list(rows)
    assert table, "a test without a row shows nothing"
    named = [str(row) if ids is None else ids(row) if callable(ids) else ids[at] for at, row in enumerate(table)]
    keys = [names] if isinstance(names, str) else list(names)

    def over(test: Callable[..., None]) -> Callable[..., None]:
        def run(**others: Any) -> None:
            failed = []
            for name, row in zip(named, table, strict=True):
                values = [row] if isinstance(names, str) else row
                try:
                    test(**dict(zip(keys, values, strict=True)), **others)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever the test raises
                    failed.append(f"{name[:_NAME]}\n{type(error).__name__}: {error}")
            if failed:
                text = "\n\n".join(failed[:_SHOWN])
                pytest.fail(f"{len(failed)} of {len(table)} rows failed:\n\n{text}", pytrace=False)

        own = inspect.signature(test)
        left = [parameter for name, parameter in own.parameters.items() if name not in keys]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.__signature__ = own.replace(parameters=left)  # type: ignore[attr-defined]  # what is left for pytest
        return run

    return over
