"""Finds the tool that a call names: the one of that name, else the only one that differs by case and separators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SEPARATORS: Final = re.compile(r"[\s_.\-/:]+")


def find_tool_name(named: str, tools: Iterable[str]) -> str | None:
    """The tool's own name; None where no tool, or more than one, can be meant."""
    known = list(tools)
    if named in known:
        return named
    folded = _fold_name(named)
    alike = [tool for tool in known if folded and _fold_name(tool) == folded]
    return alike[0] if len(alike) == 1 else None


def _fold_name(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()
