"""The section `record` of the config: which calls are recorded, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from proxy.config.context import Context
from proxy.config.files.source import Files
from proxy.config.model import Config, UpstreamConfig
from proxy.config.sections.units import read_size
from proxy.core.model.value_class import value_class

_SIZES: Final = ("longest", "max_size")
_OUTCOMES: Final = ("refused", "repaired", "failed", "delivered")


@value_class
class RecordConfig:
    """Recorded calls: the file (an absolute path), whether arguments are whole or stand-ins, the recorded share of
    calls by outcome, and bounds in bytes. `keep`: how many older files are kept, packed."""

    file: str
    values: Literal["standins", "full"] = "standins"
    refused: float = 1.0
    repaired: float = 1.0
    failed: float = 1.0
    delivered: float = 0.01
    longest: int = 64 * 1024
    max_size: int = 64 * 1024 * 1024
    keep: int = 4

    def share_of(self, outcome: str) -> float:
        """The recorded share of the calls with this outcome."""
        if outcome in ("tool_error", "upstream_error"):
            return self.failed
        if outcome in ("repaired", "corrected"):
            return self.repaired
        return self.refused if outcome == "refused" else self.delivered


def read_record(context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> RecordConfig | None:
    """Reads which calls are recorded; None without any."""
    written = context.structure.entry("record")
    if not isinstance(written, dict) or not isinstance(written.get("file"), str):
        return None
    found: dict[str, Any] = {name: written[name] for name in ("file", "values", "keep") if name in written}
    found |= {name: read_size(written[name]) for name in _SIZES if name in written}
    sample = written.get("sample", {})
    found |= {name: float(sample[name]) for name in _OUTCOMES if name in sample}
    return RecordConfig(**found)


def find_record(config: Config) -> RecordConfig | None:
    """The recording of a config; None where it records nothing."""
    found: RecordConfig | None = config.sections.get("record")
    return found
