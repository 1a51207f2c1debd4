"""Operations of an HTTP API as one MCP server, an `Upstream`: their list is told here, calls go to the service."""

from __future__ import annotations

from proxy.upstream.operations.operations_upstream import OperationsUpstream
from proxy.upstream.operations.settings import OperationsSettings

__all__ = ["OperationsSettings", "OperationsUpstream"]
