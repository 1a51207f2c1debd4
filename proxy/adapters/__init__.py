"""`ADAPTERS`: the wire protocols a route can speak, by the name the config uses. A new one is one file and one line.

All are pure: they see a whole request, never a socket. `base.py` says what an adapter is, `ladder.py` finds the
conversation a request belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.adapters.base import Adapter
from proxy.adapters.dispatch import DispatchAdapter
from proxy.adapters.mcp import McpAdapter
from proxy.adapters.plain import PlainAdapter

ADAPTERS: Final[Mapping[str, Adapter]] = {
    adapter.name: adapter for adapter in (PlainAdapter(), DispatchAdapter(), McpAdapter())
}  # fmt: skip
