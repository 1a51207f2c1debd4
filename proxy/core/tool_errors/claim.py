"""A tool's claim about one argument, before it is matched to what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.core.model.codes import ViolationCode
from proxy.core.model.values import JsonValue

# One place in a framework's spelling: `WeatherRequest.lat`, `/lat`, `$.stops[1].lat`, or a list of steps.
Place = str | tuple[str | int, ...]

# The place of the arguments as a whole.
ROOT: Final[Place] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """One complaint about one place, in the framework's terms.

    `place` is None where the framework does not name it. `name` is a key alone, whose object is not named (serde's
    `missing field`). `kind` is the framework's own name of the rule (`float_parsing`, `minLength`, `oneof`); `code` is
    our code where the dialect is sure. `expected` and `got` are type words. `quoted` is the value as the tool repeats
    it; it is used to find the place, and is never shown.
    """

    words: str
    place: Place | None = None
    name: str = ""
    kind: str = ""
    code: ViolationCode | None = None
    expected: str = ""
    got: str = ""
    quoted: JsonValue = None
