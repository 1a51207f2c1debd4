"""What extensions add to a config that has one of their sections: paths that they answer, and texts about tools."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.config.model import Config
from proxy.extensions import EXTENSIONS, Extension, load_place
from proxy.interfaces import ToolTexts
from proxy.server.handler import AnswerPath


def make_answers(config: Config) -> dict[str, AnswerPath]:
    """What answers the paths that extensions serve beside the routes, by path."""
    found: dict[str, AnswerPath] = {}
    for row in _list_used(config):
        if row.answers:
            found |= load_place(row.answers)(config)
    return found


def make_tool_texts(config: Config) -> ToolTexts | None:
    """What MCP clients are told of tools; None where the config wants nothing told."""
    made: list[ToolTexts | None] = [load_place(row.tool_texts)(config) for row in _list_used(config) if row.tool_texts]
    return next((texts for texts in made if texts is not None), None)


def _list_used(config: Config) -> Iterator[Extension]:
    """The extensions that have a section in a config."""
    return (row for row in EXTENSIONS if not row.sections.keys().isdisjoint(config.sections))
