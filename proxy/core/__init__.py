"""The pure core: no I/O, no clock, no randomness, no logging, no async (floor 0).

Exports the public API of the engine, for programs that decide calls in their own process (docs/library.md). A name is
imported when it is first used, since each module of the core passes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.core.library import (
        AcceptedCall,
        AppliedRepair,
        CallError,
        CallPolicy,
        CompiledTool,
        RejectedCall,
        SchemaError,
        compile_tool,
    )

__all__ = [
    "AcceptedCall", "AppliedRepair", "CallError", "CallPolicy", "CompiledTool", "RejectedCall", "SchemaError",
    "compile_tool",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proxy.core import library

    return getattr(library, name)
