"""The questions to the model endpoint: the messages of one, and the form of its answer.

The messages are a bundled prompt with its placeholders filled in. A prompt is a text file: the system message is above
a line `---`, the user message below it; `{{name}}` is a placeholder (`core/settings.py` lists the names). Filled-in
text holds no secrets and has a bounded length.

The form is the value of `response_format`, made of the layer's verdict and the tool's schema. A model that has to
follow a schema cannot answer with prose or with arguments of a wrong type. If the schema cannot be a separate document
(arguments that are not an object, a schema too long to send), the form is any JSON object. If an endpoint refuses a
form, the question is sent without it (`Endpoint`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Final

from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.graphemes import cut, replace_surrogates
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Failure, JsonValue, ToolCall, ToolResult
from proxy.core.rules.facts import read_facts
from proxy.core.schema.dialects import bundle_schema, is_strict
from proxy.extensions.correction.core.settings import make_messages
from proxy.extensions.correction.core.words import AnswerFormat, Layer
from proxy.extensions.correction.rules import find_status
from proxy.plugin import write_feedback, write_signature

# The most characters of arguments and of a schema that are sent: a model cannot use more.
LONGEST_ARGUMENTS: Final = 16 * 1024
_LONGEST_SCHEMA: Final = 16 * 1024
_LONGEST_TEXT: Final = 2000


@cache
def load_prompt(layer: Layer) -> str:
    """The bundled prompt of a layer, used where the config names no other."""
    return files("proxy.extensions.correction").joinpath("prompts", f"{layer.value}.txt").read_text(encoding="utf-8")


def write_messages(
    prompt: str, call: ToolCall, failure: Failure, policy: ToolPolicy, own_values: Mapping[str, str], note: str = ""
) -> list[dict[str, str]]:
    """The chat messages that ask about a failed call. `own_values` fill the placeholders that the failure does not: the
    arguments without secrets, the attempt, the query and the trajectory. `note` is appended to the error."""
    result = ToolResult(call, failure, limits=policy.feedback)
    values = {
        "tool": call.tool,
        "description": cut(policy.description, _LONGEST_TEXT) or "unknown",
        "schema": _write_schema(policy),
        "error": write_feedback(result) + note,
        "status": str(find_status(failure)),
        "code": failure.code.name,
        "category": failure.code.category.value,
        "details": dumps({key: mask_credentials(text) for key, text in failure.details.items()}).decode(),
        **own_values,
    }
    return make_messages(prompt, {name: replace_surrogates(text) for name, text in values.items()})


def describe_wish(text: str) -> str:
    """The user's request as masked, shortened text, or `unknown`."""
    return cut(mask_credentials(replace_surrogates(text), _LONGEST_TEXT), _LONGEST_TEXT) or "unknown"


def write_json(value: JsonValue) -> str:
    """A value as JSON."""
    return dumps(value).decode()


def _write_schema(policy: ToolPolicy) -> str:
    if policy.check is None:
        return "unknown"
    text = write_json(policy.check.schemas.documents[policy.check.schemas.base])
    return text if len(text) <= _LONGEST_SCHEMA else cut(write_signature(policy.check.root), _LONGEST_SCHEMA)


# The longest schema sent as a form, in bytes of JSON; for a longer one the prompt holds its signature.
_LONGEST: Final = 16 * 1024
_NAME: Final = "correction"


@value_class
class Form:
    """One value of `response_format`, and its name in logs."""

    kind: AnswerFormat
    value: JsonValue = field(repr=False)

    @property
    def key(self) -> bytes:
        """Identifies the form: its JSON."""
        return dumps(self.value)


ANY_OBJECT: Final = Form(AnswerFormat.OBJECT, {"type": "json_object"})
NO_FORM: Final = Form(AnswerFormat.TEXT, None)


def find_forms(layer: Layer, policy: ToolPolicy) -> Iterator[Form]:
    """The forms to ask for, the best first; the last is `NO_FORM`."""
    schema = _find_arguments_schema(policy)
    if schema is not None:
        yield _make_schema_form(_VERDICTS[layer](schema))
    yield ANY_OBJECT
    yield NO_FORM


def _make_schema_form(schema: dict[str, JsonValue]) -> Form:
    strict = is_strict(schema)
    json_schema = {"name": _NAME, "schema": schema, "strict": strict}
    return Form(
        AnswerFormat.STRICT if strict else AnswerFormat.SCHEMA, {"type": "json_schema", "json_schema": json_schema}
    )  # fmt: skip


def _find_arguments_schema(policy: ToolPolicy) -> dict[str, JsonValue] | None:
    """Returns the tool's schema as a document that another can contain; None if there is no such document."""
    if policy.check is None or "object" not in read_facts(policy.check.root).site.types:
        return None
    whole = bundle_schema(policy.check.schemas)
    return whole if isinstance(whole, dict) and whole and len(dumps(whole)) <= _LONGEST else None


def _make_repair_schema(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema of layer 3's answer: all arguments, or that it cannot fix them."""
    definitions = arguments.get("$defs")
    inner = {key: value for key, value in arguments.items() if key != "$defs"}
    properties = {
        "can_fix": {"type": "boolean"},
        "analysis": {"type": "string"},
        "corrected_payload": {"anyOf": [inner, {"type": "null"}]},
    }
    return _close_object(properties, definitions)


def _make_changes_schema(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema of layer 4's answer: the arguments to change, so none is required."""
    properties = {
        "should_retry": {"type": "boolean"},
        "is_transient_error": {"type": "boolean"},
        "analysis": {"type": "string"},
        "suggested_changes": {"type": "object", "properties": arguments.get("properties", {})},
    }
    return _close_object(properties, arguments.get("$defs"))


def _close_object(properties: dict[str, JsonValue], definitions: JsonValue) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip
    return {**made, "$defs": definitions} if definitions else made


_VERDICTS: Final = {Layer.VALIDATION_FEEDBACK: _make_repair_schema, Layer.SEMANTIC_RETRY: _make_changes_schema}
