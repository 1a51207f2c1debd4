"""`ADAPTERS`: the wire protocols that a route can speak, by their names in the config. A new protocol is a file and a
line.

All adapters are pure: they see a whole request, never a socket. `base.py` defines the interface, `ladder.py` finds the
conversation of a request. Plugins add their own adapters (`find_adapter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.adapters.base import Adapter
from proxy.adapters.dispatch import DispatchAdapter, PlainAdapter
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins

__all__ = ["ADAPTERS", "PlainAdapter", "find_adapter"]

ADAPTERS: Final[Mapping[str, Adapter]] = {adapter.name: adapter for adapter in (PlainAdapter(), DispatchAdapter())}


def find_adapter(name: str) -> Adapter:
    """The adapter of this name, a plugin's too. Raises KeyError for any other name."""
    plugin = next((each for each in find_plugins(SpeaksProtocol) if each.adapter == name), None)
    return ADAPTERS[name] if plugin is None else plugin.load_adapter()
