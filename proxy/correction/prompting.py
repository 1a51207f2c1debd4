"""Loads the bundled prompts and fills in their placeholders. Filled-in text holds no secrets and has a bounded length.

A prompt is a text file. The system message stands above a line `---`, the user message below it. `{{name}}` is a
placeholder (`core/contract/correction.py` lists the names).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from proxy.core.contract.correction import Layer, make_messages
from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.graphemes import cut, replace_surrogates
from proxy.core.display.secrets import mask_credentials
from proxy.core.envelope.feedback import write_feedback
from proxy.core.explain.expectation import write_signature
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Failure, JsonValue, ToolCall, ToolResult
from proxy.correction.rules import find_status

# The most characters of arguments and of a schema that are sent: a model cannot use more.
LONGEST_ARGUMENTS: Final = 16 * 1024
_LONGEST_SCHEMA: Final = 16 * 1024
_LONGEST_TEXT: Final = 2000


@cache
def load_prompt(layer: Layer) -> str:
    """The bundled prompt, for an operator who names no other."""
    return files("proxy.correction").joinpath("prompts", f"{layer.value}.txt").read_text(encoding="utf-8")


def write_messages(
    prompt: str, call: ToolCall, failure: Failure, policy: ToolPolicy, told: Mapping[str, str], note: str = ""
) -> list[dict[str, str]]:
    """The chat messages that ask about a failed call. `told` holds what the failure lacks: the arguments as they
    are shown, the attempt, the query and the trajectory. `note` is appended to the error."""
    result = ToolResult(call, failure, limits=policy.feedback)
    values = {
        "tool": call.tool,
        "description": cut(policy.description, _LONGEST_TEXT) or "unknown",
        "schema": _schema(policy),
        "error": write_feedback(result) + note,
        "status": str(find_status(failure)),
        "code": failure.code.name,
        "category": failure.code.category.value,
        "details": dumps({key: mask_credentials(text) for key, text in failure.details.items()}).decode(),
        **told,
    }
    return make_messages(prompt, {name: replace_surrogates(text) for name, text in values.items()})


def describe_wish(text: str) -> str:
    """The user's request as masked, shortened text, or `unknown`."""
    return cut(mask_credentials(replace_surrogates(text), _LONGEST_TEXT), _LONGEST_TEXT) or "unknown"


def write_json(value: JsonValue) -> str:
    """A value as JSON."""
    return dumps(value).decode()


def _schema(policy: ToolPolicy) -> str:
    if policy.check is None:
        return "unknown"
    text = write_json(policy.check.schemas.documents[policy.check.schemas.base])
    return text if len(text) <= _LONGEST_SCHEMA else cut(write_signature(policy.check.root), _LONGEST_SCHEMA)
