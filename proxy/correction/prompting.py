"""The prompts: the bundled ones, and what is filled in. Everything filled in is without secrets and bounded.

A prompt is a text file. What stands before a line `---` is the system's message, what stands behind it the user's;
`{{name}}` is filled in (`core/correction.py` lists the names).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from proxy.core.correction import Layer, messages
from proxy.core.graphemes import cut, encodable
from proxy.core.guidance import signature
from proxy.core.jsontext import dumps
from proxy.core.model import Failure, JsonValue, ToolCall, ToolResult
from proxy.core.policy import ToolPolicy
from proxy.core.secrets import mask
from proxy.core.sentence import compose
from proxy.correction.rules import status_of

# Characters of arguments and of a schema that are sent: what no model takes in is not worth asking about.
LONGEST_ARGUMENTS: Final = 16 * 1024
_LONGEST_SCHEMA: Final = 16 * 1024
_LONGEST_TEXT: Final = 2000


@cache
def bundled(layer: Layer) -> str:
    """The prompt that is used where the operator names none."""
    return files("proxy.correction").joinpath("prompts", f"{layer.value}.txt").read_text(encoding="utf-8")


def conversation(
    prompt: str, call: ToolCall, failure: Failure, policy: ToolPolicy, told: Mapping[str, str], note: str = ""
) -> list[dict[str, str]]:
    """The chat messages that ask about a failed call. `told` holds what the failure does not know: the arguments as
    they are shown, the attempt, the query and the trajectory; `note` goes behind the error."""
    result = ToolResult(call, failure, limits=policy.feedback)
    values = {
        "tool": call.tool,
        "description": cut(policy.description, _LONGEST_TEXT) or "unknown",
        "schema": _schema(policy),
        "error": compose(result) + note,
        "status": str(status_of(failure)),
        "code": failure.code.name,
        "category": failure.code.category.value,
        "details": dumps({key: mask(text) for key, text in failure.details.items()}).decode(),
        **told,
    }
    return messages(prompt, {name: encodable(text) for name, text in values.items()})


def wish(text: str) -> str:
    """What the user wants, as far as it is known."""
    return cut(mask(encodable(text), _LONGEST_TEXT), _LONGEST_TEXT) or "unknown"


def as_text(value: JsonValue) -> str:
    """A value as JSON."""
    return dumps(value).decode()


def _schema(policy: ToolPolicy) -> str:
    if policy.check is None:
        return "unknown"
    text = as_text(policy.check.schemas.documents[policy.check.schemas.base])
    return text if len(text) <= _LONGEST_SCHEMA else cut(signature(policy.check.root), _LONGEST_SCHEMA)
