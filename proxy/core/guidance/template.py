"""Templates of the operator's own for guidance (`guidance: {template: FILE}`). Pure.

A template is text with `{{name}}` in it. A line that holds nothing but a name without a value is left out, with the
blank line behind it, so that a conversation without a state leaves no gap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from proxy.core.contract.correction import fill_placeholders

PLACEHOLDERS: Final = {
    "header": "the ReAct header",
    "type_rules": "the type rules",
    "state": "the state of the conversation and its progress hints; nothing where none is known",
    "tools": "the sections of the tools, and the names of those that find no room",
}
# Guidance without these is none: the header is always there, and the tools are its subject.
NEEDED: Final = frozenset({"header", "tools"})
_ALONE: Final = re.compile(r"^[ \t]*\{\{\s*([^{}]*?)\s*\}\}[ \t]*(?:\r?\n|\Z)(?:[ \t]*\r?\n)?", re.MULTILINE)


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with its placeholders filled in."""
    kept = _ALONE.sub(lambda found: found[0] if values[found[1]] else "", template)
    return fill_placeholders(kept, values).rstrip() + "\n"
