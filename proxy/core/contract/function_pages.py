"""The functions of a container as a model reads them: with their parameters, and page by page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import ContainerFunction, JsonValue

# The tool that finds others, and how many functions a container has at least that is shown with it: fewer fit on one
# page.
SEARCH: Final = "search_tools"
SEARCHED: Final = 20
# Characters of one page of functions with their schemas.
PAGE: Final = 20_000


def show_function(function: ContainerFunction) -> dict[str, JsonValue]:
    """A function with its description and its parameters."""
    return {"name": function.name, "description": function.description, "parameters": dict(function.schema or {})}


def cut_pages(functions: Sequence[ContainerFunction]) -> list[tuple[ContainerFunction, ...]]:
    """The functions page by page, at least one on each."""
    return list(_pages(functions)) or [()]


def _pages(functions: Sequence[ContainerFunction]) -> Iterator[tuple[ContainerFunction, ...]]:
    page: list[ContainerFunction] = []
    size = 0
    for function in functions:
        own = len(dumps(show_function(function)))
        if page and size + own > PAGE:
            yield tuple(page)
            page, size = [], 0
        page.append(function)
        size += own
    if page:
        yield tuple(page)
