"""Imports: published descriptions of tools become files that a user can edit.

    harvest.py      the tools of a source, those left out, and the record `imported.json`
    fetch.py        requests to the server that publishes a description
    openapi.py      an OpenAPI description -> Harvest
    files.py        Harvest -> config, schemas and record, as YAML
    live.py         compares a record with its sources as they are now

Another plugin that knows a kind of description (mcp) reads it into a Harvest too. Nothing here validates or serves a
call: the files written are a config like any other (`check` reads them back).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from proxy.plugin import Verb
from proxy.plugins import list_plugins

if TYPE_CHECKING:
    from proxy.core.model.values import Headers
    from proxy.extensions.operations.importing.harvest import Harvest, Recorded


@runtime_checkable
class ImportsTools(Protocol):
    """A plugin that reads sources of tools."""

    def load_import_kinds(self) -> Mapping[str, Verb]:
        """Kind of `import` -> its module."""

    async def read_source(self, recorded: Recorded, headers: Headers, folder: Path) -> Harvest | None:
        """A recorded source as it is now; None for the kinds of others. Raises ImportProblem."""


def list_import_kinds() -> dict[str, Verb]:
    """All kinds of `import`, each with its module."""
    plugins = [plugin for plugin in list_plugins() if isinstance(plugin, ImportsTools)]
    return {kind: module for plugin in plugins for kind, module in plugin.load_import_kinds().items()}


async def read_source_again(recorded: Recorded, headers: Headers, folder: Path) -> Harvest:
    """A recorded source as it is now. Raises ImportProblem."""
    from proxy.extensions.operations.importing.harvest import ImportProblem

    for plugin in list_plugins():
        found = await plugin.read_source(recorded, headers, folder) if isinstance(plugin, ImportsTools) else None
        if found is not None:
            return found
    raise ImportProblem(f"{recorded.source}: no plugin that reads sources of the kind {recorded.kind!r} is installed")
