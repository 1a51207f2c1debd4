"""Reads `second_judge:`."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files
from proxy.config.model import UpstreamConfig


def read_second_judge(context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> str:
    """Reads which calls are judged twice: `off`, `sampled` or `always`."""
    return reveal(context.structure.entry("second_judge"))
