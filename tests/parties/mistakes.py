"""The mistakes that models make with arguments, as measured on real servers, and what has to become of each here.

Of these calls real servers accept some with a wrong value, and answer many with a JSON-RPC error that no model sees.
Here each is either put right, or is an `isError` that names what is wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

BOOK: Final[dict[str, Any]] = {
    "title": "Emma",
    "copies": 3,
    "price": 0.5,
    "gift": True,
    "size": "small",
    "tags": ["a", "b"],
    "place": {"city": "Bath", "floor": 2},
}
# Defaults that servers may add to a call without them.
DEFAULTS: Final[tuple[dict[str, Any], ...]] = ({}, {"shelf": 0}, {"shelf": 0, "note": None})
ABSENT: Final = object()
# How an escalation begins: a name that no tool has belongs to no route's `attempts`, so it counts for all clients.
_ESCALATED: Final = "validation failed after 3 attempts"


@dataclass(frozen=True)
class Mistake:
    """One damaged call. `arrives`: the arguments that the tool has to get. `names`: the words that the model has to
    read if the call is not repaired. `likely`: the arguments at the level `lenient`, which also makes repairs that are
    only likely.
    """

    name: str
    arguments: Any
    arrives: dict[str, Any] | None = None
    names: tuple[str, ...] = ()
    tool: str = "book"
    likely: dict[str, Any] | None = None


def _with(**changed: Any) -> dict[str, Any]:
    return {**BOOK, **changed}


def _without(*names: str) -> dict[str, Any]:
    return {key: value for key, value in BOOK.items() if key not in names}


# Those a client library can send: the arguments are an object.
OBJECTS: Final = (
    Mistake("good", BOOK, BOOK),
    Mistake("int as text", _with(copies="3"), BOOK),
    Mistake("float as text", _with(price="0.5"), BOOK),
    Mistake("bool as text true", _with(gift="true"), BOOK),
    Mistake("bool as text false", _with(gift="false"), _with(gift=False)),
    Mistake("array as JSON text", _with(tags='["a", "b"]'), BOOK),
    Mistake("object as JSON text", _with(place='{"city": "Bath", "floor": 2}'), BOOK),
    Mistake("array as Python text", _with(tags="['a', 'b']"), BOOK),
    Mistake("null where it may be left out", _with(shelf=None), names=("shelf", "leave it out")),
    Mistake("empty text where it may be left out", _with(shelf=""), names=("shelf", "leave it out")),
    Mistake("the text null", _with(shelf="null"), names=("shelf", "leave it out")),
    Mistake("missing", _without("copies"), names=("copies",)),
    Mistake("enum in another case", _with(size="Small"), BOOK),
    Mistake("int as 3.0", _with(copies=3.0), BOOK),
    Mistake("int as 3.7", _with(copies=3.7), names=("copies",)),
    Mistake("one value for a list", _with(tags="a"), names=("tags",)),
    Mistake("number for text", _with(title=5), names=("title",), likely=_with(title="5")),
    Mistake("int as text inside", _with(place={"city": "Bath", "floor": "2"}), BOOK),
    Mistake("wrapped", {"params": BOOK}, BOOK),
    Mistake("nothing", {}, names=("title", "copies", "place")),
    Mistake("hopeless", _with(copies="several"), names=("copies",)),
    Mistake("hopeless inside", _with(place={"city": "Bath", "floor": "top"}), names=("floor",)),
    Mistake("a value outside the enum", _with(size="medium"), names=("size",)),
    Mistake("wrong tool name", BOOK, names=("book",), tool="bok"),
)

# Those that need a raw request.
RAW: Final = (
    Mistake("arguments as JSON text", '{"title": "Emma", "copies": "3", "price": 0.5, "gift": true, "size": "small", '
            '"tags": ["a", "b"], "place": {"city": "Bath", "floor": 2}}', BOOK),
    Mistake("arguments null", None, names=("title", "copies", "place")),
    Mistake("arguments left out", ABSENT, names=("title", "copies", "place")),
    Mistake("arguments as a list", [BOOK], names=("book",)),
    Mistake("arguments as other text", "three copies of Emma", names=("book",)),
)  # fmt: skip


def verdict(mistake: Mistake, told: dict[str, Any], *, lenient: bool = False) -> str:
    """Returns what is wrong with an answer; '' where nothing is."""
    arrives = mistake.likely if lenient and mistake.likely is not None else mistake.arrives
    if "raised" in told:
        return f"a protocol error: {told['raised']}"
    if arrives is None:
        if mistake.tool != "book" and _ESCALATED in told["text"]:  # other clients sent the very same from this address
            return ""
        silent = [name for name in mistake.names if name not in told["text"]]
        return "not refused" if not told["error"] else f"does not name {silent}" if silent else ""
    if told["error"]:
        return f"refused: {told['text'][:200]}"
    seen = json.loads(told["text"])
    return "" if any(seen == {**added, **arrives} for added in DEFAULTS) else f"arrived as {seen}"
