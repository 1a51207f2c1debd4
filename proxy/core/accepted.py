"""What is still to be done or said about a value that its schema accepts: next to nothing, and mostly nothing at all.

Two things may be left. A number such as 3.0 is written anew where the schema says integer (`respell.py`), and what the
schema marks is told of (`misplaced.notices`). Whether a schema leaves either is found out once, and where the integers
of nearly every tool stand: at the root. A valid call then costs a look at these few keys, and no walk over its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.core.rules import RULES
from proxy.core.schema import Schemas

_RESPELT: Final = RULES["integral_float"].name
_INTEGER: Final = frozenset({"integer"})


@dataclass(frozen=True, slots=True)
class Leftover:
    """`integers` are the keys of the root object where alone a number may stand that is written anew; None: anywhere.
    `told`: the schema has marks that are told of."""

    integers: tuple[str, ...] | None
    told: bool


def leftover(schemas: Schemas, rules: frozenset[str]) -> Leftover:
    """What a schema leaves under these repair rules: found out once, whatever policies share the schema."""
    memo: dict[bool, Leftover] = schemas.memos.setdefault("leftover", {})
    respells = _RESPELT in rules
    found = memo.get(respells)
    if found is None:
        integers = _integers(schemas) if respells else ()
        found = memo[respells] = Leftover(integers, schemas.mentions("deprecated"))
    return found


def _integers(schemas: Schemas) -> tuple[str, ...] | None:
    """A reference may lead to an integer from anywhere, so where there is one nothing is known."""
    if schemas.has_references:
        return None
    at_root = {id(node): key for key, node in schemas.root.properties.items()}
    found = [at_root.get(id(node)) for node in schemas.nodes() if node.types == _INTEGER]
    keys = tuple(key for key in found if key is not None)
    return keys if len(keys) == len(found) else None
