"""Numbers for the second judge: `int` and `Decimal`, with which both libraries compute exactly."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from proxy.core.json.jsontext import FRACTIONS, make_decimal
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft

# An integer with a larger exponent stays a Decimal: as an int it would be written out digit by digit.
_MAX_EXPONENT: Final = 4_300


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
    if draft is not Draft.D4:
        return _whole(number)
    # `-0` is an integer that is read as a Decimal
    return 0 if number == 0 and number.as_tuple().exponent == 0 else number


def _whole(number: Decimal) -> int | Decimal:
    _, digits, exponent = number.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if not isinstance(exponent, int) or exponent > _MAX_EXPONENT or (any(digits) and exponent + zeros < 0):
        return number
    return int(number) if any(digits) else 0
