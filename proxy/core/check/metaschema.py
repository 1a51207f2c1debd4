"""Checks a schema against the meta-schema of its draft. A correct schema only costs the generated check; jsonschema
judges and explains every other schema."""

from __future__ import annotations

from proxy.core.check import fast_metaschema
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import Draft, SchemaError
from proxy.core.second_judge.reference import find_fault


def check_schema(schema: JsonValue, draft: Draft, path: Pointer = ()) -> None:
    """Raises SchemaError, with the place, for a schema that its draft's meta-schema refuses."""
    if fast_metaschema.ENABLED and fast_metaschema.accepts(schema, draft):
        return
    fault = find_fault(schema, draft)
    if fault is not None:
        raise SchemaError(fault.message, (*path, *fault.path))
