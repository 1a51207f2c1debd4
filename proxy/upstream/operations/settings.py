"""The settings of operations that are served as MCP tools: values only, filled in by `server/setup/upstreams.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.model.values import JsonValue


@dataclass(frozen=True, slots=True)
class OperationsSettings:
    """`tools` are the operations by name, as `tools/list` shows them."""

    name: str
    tools: Mapping[str, Mapping[str, JsonValue]] = field(repr=False)
    version: str = ""
