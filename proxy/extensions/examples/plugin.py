"""The plugin `examples`."""

from __future__ import annotations

from proxy.plugin import Plugin


class ExamplesPlugin(Plugin):
    """Makes example arguments for other plugins."""

    name = "examples"
    adds = "example arguments made from a schema"
