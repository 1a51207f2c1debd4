"""Schemas and values that nobody wrote: what `decide` lets through, against two engines of others."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import jsonschema_rs
from hypothesis import HealthCheck, given, seed, settings

from proxy.core.check.metaschema import make_exact
from proxy.core.check.validation import SchemaError, compile_check
from proxy.core.decide import decide
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Document, Forward, JsonValue
from proxy.core.schema.drafts import Draft
from tests.attacks import Found
from tests.core.repairing import call, policy
from tests.core.schemas import schemas, values

LEVELS: Final = ("off", "basic", "standard", "lenient")


def attack(number: int, tries: int) -> Found:
    """Judges `tries` pairs at every repair level: nothing invalid may go on, nothing valid may be changed or refused.
    A finding is what both other engines hold against us."""
    found = Found()

    @seed(number)
    @settings(max_examples=tries, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(schemas(), values())
    def judge(schema: JsonValue, value: JsonValue) -> None:
        found.tries += 1
        try:
            compile_check(schema)
            others = (
                jsonschema.Draft202012Validator(make_exact(schema, Draft.D2020)),
                jsonschema_rs.Draft202012Validator(make_exact(schema, Draft.D2020)),
            )
        except (SchemaError, ValueError, jsonschema.SchemaError):
            return
        text = dumps(value)
        valid = _verdict(others, value)
        for level in LEVELS:
            sent = call(text.decode())
            if not isinstance(sent.arguments, Document):
                return
            decision = decide(sent, policy(schema, level))
            if isinstance(decision, Forward):
                found.through += 1
                if _verdict(others, decision.checked.value) is False:
                    found.add(f"invalid and forwarded ({level})", (schema, text, decision.checked.arguments))
            elif valid is True:
                found.add(f"valid and refused ({level})", (schema, text))
            if valid is True and level == "off" and isinstance(decision, Forward) and decision.checked.repairs:
                found.add("valid and changed", (schema, text))

    judge()
    return found


def _verdict(others: tuple[Any, Any], value: JsonValue) -> bool | None:
    """Returns what both engines say; None where they differ."""
    try:
        shown = json.loads(dumps(value))
        one, other = (bool(engine.is_valid(shown)) for engine in others)
    except (ValueError, OverflowError, RecursionError, jsonschema.exceptions.RefResolutionError):
        return None
    except Exception:  # noqa: BLE001 - an engine that fails on a hostile schema says nothing
        return None
    return one if one is other else None
