"""Reads `record`: where calls are recorded, which of them, and how much."""

from __future__ import annotations

from typing import Any, Final

from proxy.config.context import Context
from proxy.config.model import RecordConfig
from proxy.config.sections.units import read_size

_SIZES: Final = ("longest", "max_size")
_OUTCOMES: Final = ("refused", "repaired", "failed", "delivered")


def read_record(context: Context) -> RecordConfig | None:
    """What calls are recorded; None where nothing is."""
    written = context.structure.entry("record")
    if not isinstance(written, dict) or not isinstance(written.get("file"), str):
        return None
    found: dict[str, Any] = {name: written[name] for name in ("file", "values", "keep") if name in written}
    found |= {name: read_size(written[name]) for name in _SIZES if name in written}
    sample = written.get("sample", {})
    found |= {name: float(sample[name]) for name in _OUTCOMES if name in sample}
    return RecordConfig(**found)
