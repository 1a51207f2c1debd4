"""Judges a schema by its draft's meta-schema, with jsonschema, and says what is wrong with it.

jsonschema is loaded on first use. It gets exact numbers (`int` and `Decimal`), and never fetches anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any, Final

from proxy.core.json.jsontext import FRACTIONS, dumps, find_at_pointer, is_integral, make_decimal
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import Draft, SchemaError

_NAMES: Final = {
    Draft.D4: "Draft4Validator", Draft.D6: "Draft6Validator", Draft.D7: "Draft7Validator",
    Draft.D2019: "Draft201909Validator", Draft.D2020: "Draft202012Validator",
}  # fmt: skip
# An integer with a larger exponent stays a Decimal: as an int it would be written out digit by digit.
_MAX_EXPONENT: Final = 4_300
# The faults of a schema among which the first is looked for.
_MOST_FAULTS: Final = 1000


def list_faults(schema: JsonValue, draft: Draft) -> list[SchemaError]:
    """The faults in a schema by its draft's meta-schema, each at its deepest place; none for a correct schema. Their
    order is that of the schema's text: jsonschema finds the faults of neighbours in the order of a set."""
    from jsonschema.exceptions import best_match

    validator_class = load_validator_class(draft)
    try:
        validator = validator_class(validator_class.META_SCHEMA)
        found = list(islice(validator.iter_errors(make_exact(schema, draft)), _MOST_FAULTS))
    except (RecursionError, ValueError, ArithmeticError) as error:
        return [SchemaError(f"the schema cannot be read: {error}", ())]
    faults: dict[Pointer, SchemaError] = {}
    for fault in sorted(found, key=lambda fault: _find_position(schema, fault.absolute_path)):
        best = best_match([fault])
        path = tuple(best.absolute_path)
        shown = repr(best.instance)  # jsonschema's texts begin with Python's spelling, such as `True`
        message = best.message
        if message.startswith(shown):
            message = dumps(find_at_pointer(schema, path)).decode() + message.removeprefix(shown)
        faults.setdefault(path, SchemaError(message, path))
    return list(faults.values())


def _find_position(schema: Any, path: Iterable[str | int]) -> list[int]:
    """Returns the position of a place among the members of each object and array on the way to it."""
    position = []
    for step in path:
        position.append(step if isinstance(step, int) else list(schema).index(step))
        schema = schema[step]
    return position


@cache
def load_validator_class(draft: Draft) -> Any:
    """jsonschema's class for a draft."""
    import jsonschema

    return getattr(jsonschema, _NAMES[draft])


def make_exact(value: JsonValue, draft: Draft) -> JsonValue:
    """A copy of a value in which each number is an `int` where the draft counts it as an integer, else a `Decimal`.

    Draft 4 goes by the spelling of a number (1.0 is not an integer), later drafts by its value. Raises ArithmeticError
    for a number that no Decimal holds.
    """
    if isinstance(value, dict):
        return {key: make_exact(item, draft) for key, item in value.items()}
    if isinstance(value, list):
        return [make_exact(item, draft) for item in value]
    if not isinstance(value, FRACTIONS):
        return value
    number = make_decimal(value)
    if not number:  # for draft 4 `-0` is an integer, and 0.0 is not
        return number if draft is Draft.D4 and number.as_tuple().exponent else 0
    is_whole = draft is not Draft.D4 and is_integral(number) and number.adjusted() <= _MAX_EXPONENT
    return int(number) if is_whole else number
