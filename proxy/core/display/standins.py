"""What stands in for a value that must not be shown: a description, or the shape of a text.

An operator who may not see values still learns that a text of 19 characters came where a number is wanted
(`describe_value`), and that it had the shape `0000-00-00T00:00:00` (`make_shape`).
"""

from __future__ import annotations

from typing import Final

from proxy.core.json.jsontext import name_json_type
from proxy.core.model.values import Absent, JsonValue

LONGEST_SHAPE: Final = 40
# Signs of dates and times that stay as they are beside a digit.
_TIME_SIGNS: Final = frozenset("TZtz")


def describe_value(value: JsonValue) -> str:
    """Type and size: `text of 5`, `list of 2`, `object of 3`, `number`, `boolean`, `null`; `nothing` for no value."""
    if isinstance(value, str):
        return f"text of {len(value)}"
    if isinstance(value, Absent):
        return "nothing"
    if isinstance(value, list):
        return f"list of {len(value)}"
    if isinstance(value, dict):
        return f"object of {len(value)}"
    return name_json_type(value)


def make_shape(text: str) -> str:
    """The shape of a text: digits become 0, letters a; ASCII punctuation, spaces, and T and Z beside a digit stay; all
    else becomes ?. At most LONGEST_SHAPE characters, then `...`."""
    shown = text[:LONGEST_SHAPE]
    shape = "".join(_shape_sign(shown, index) for index in range(len(shown)))
    return shape + "..." if len(text) > LONGEST_SHAPE else shape


def _shape_sign(text: str, index: int) -> str:
    character = text[index]
    if character.isdecimal():
        return "0"
    if character in _TIME_SIGNS and index and text[index - 1].isdecimal():
        return character
    if character.isalpha():
        return "a"
    return character if character.isascii() and character.isprintable() else "?"
