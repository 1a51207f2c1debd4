"""The form that an endpoint is asked to answer in: `response_format`, made of the verdict and the tool's schema.

A model that is held to a schema cannot answer with prose or with arguments of a wrong type. What cannot be said in one
document of its own (arguments that are no object, a schema too long to send) is asked for as any JSON object. An
endpoint that does not know a form says so, and is asked without it (`Endpoint`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.core.contract.correction import AnswerFormat, Layer
from proxy.core.contract.policy import ToolPolicy
from proxy.core.guidance.vendorschema import is_strict
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.core.rules.facts import read_facts
from proxy.core.schema.dialects import bundle_schema

# Characters of a schema that is sent as a form; the prompt holds a longer one in short.
_LONGEST: Final = 16 * 1024
_NAME: Final = "correction"


@dataclass(frozen=True, slots=True)
class Form:
    """One value of `response_format`, and what it is called in logs."""

    kind: AnswerFormat
    value: JsonValue = field(repr=False)

    @property
    def key(self) -> bytes:
        """What tells this form from others."""
        return dumps(self.value)


ANY_OBJECT: Final = Form(AnswerFormat.OBJECT, {"type": "json_object"})
NO_FORM: Final = Form(AnswerFormat.TEXT, None)


def find_forms(layer: Layer, policy: ToolPolicy) -> Iterator[Form]:
    """The forms to ask for, the best first; the last one is none at all."""
    schema = _arguments(policy)
    if schema is not None:
        yield _schema_form(_VERDICTS[layer](schema))
    yield ANY_OBJECT
    yield NO_FORM


def _schema_form(schema: dict[str, JsonValue]) -> Form:
    strict = is_strict(schema)
    told = {"name": _NAME, "schema": schema, "strict": strict}
    return Form(
        AnswerFormat.STRICT if strict else AnswerFormat.SCHEMA, {"type": "json_schema", "json_schema": told}
    )  # fmt: skip


def _arguments(policy: ToolPolicy) -> dict[str, JsonValue] | None:
    """The tool's schema as a document that may stand inside another one, or None."""
    if policy.check is None or "object" not in read_facts(policy.check.root).site.types:
        return None
    whole = bundle_schema(policy.check.schemas)
    return whole if isinstance(whole, dict) and whole and len(dumps(whole)) <= _LONGEST else None


def _repair_schema(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Layer 3 answers with all arguments, or says that it cannot."""
    definitions = arguments.get("$defs")
    inner = {key: value for key, value in arguments.items() if key != "$defs"}
    properties = {
        "can_fix": {"type": "boolean"},
        "analysis": {"type": "string"},
        "corrected_payload": {"anyOf": [inner, {"type": "null"}]},
    }
    return _closed(properties, definitions)


def _changes_schema(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Layer 4 answers with the arguments to change, so none is required."""
    properties = {
        "should_retry": {"type": "boolean"},
        "is_transient_error": {"type": "boolean"},
        "analysis": {"type": "string"},
        "suggested_changes": {"type": "object", "properties": arguments.get("properties", {})},
    }
    return _closed(properties, arguments.get("$defs"))


def _closed(properties: dict[str, JsonValue], definitions: JsonValue) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip
    return {**made, "$defs": definitions} if definitions else made


_VERDICTS: Final = {Layer.VALIDATION_FEEDBACK: _repair_schema, Layer.SEMANTIC_RETRY: _changes_schema}
