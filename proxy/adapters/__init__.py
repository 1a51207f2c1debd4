"""`ADAPTERS`: the wire protocols that a route can speak, by their names in the config. A new protocol is a file and a
line.

All adapters are pure: they see a whole request, never a socket. `base.py` defines the interface, `ladder.py` finds the
conversation of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.adapters.base import Adapter
from proxy.adapters.dispatch import DispatchAdapter
from proxy.adapters.http_operation import HttpOperationAdapter
from proxy.adapters.mcp import McpAdapter
from proxy.adapters.plain import PlainAdapter

ADAPTERS: Final[Mapping[str, Adapter]] = {
    adapter.name: adapter for adapter in (PlainAdapter(), DispatchAdapter(), HttpOperationAdapter(), McpAdapter())
}  # fmt: skip
