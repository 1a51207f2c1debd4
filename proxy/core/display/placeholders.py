"""Templates: texts with names in `{{ }}`, which values replace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


def find_placeholders(prompt: str) -> frozenset[str]:
    """The names that a text wants filled in."""
    return frozenset(_PLACEHOLDER.findall(prompt))


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders filled in. What is filled in is not looked through again."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)
