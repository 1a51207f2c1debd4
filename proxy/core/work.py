"""A bound on what one call may cost: the work that repairs and explanations do is counted, and ends at a limit.

One unit is one or two microseconds of an ordinary machine: judging a scalar, or reading a hundred characters of text.
What counts is how much is looked at, not how long it took, so the same call always ends at the same place.
"""

from __future__ import annotations

from typing import Final

from proxy.core.model import JsonValue

# Characters of text that cost as much as one value.
_CHARACTERS: Final = 100


class TooMuchWorkError(Exception):
    """The value and the schema together are more than one call may cost."""


class Work:
    """The work left to one call. `spend` and `look` raise TooMuchWorkError when nothing is left."""

    __slots__ = ("_sizes", "left")

    def __init__(self, limit: int) -> None:
        self.left = limit
        # By identity; the container is kept beside its size so that its id stays taken.
        self._sizes: dict[int, tuple[JsonValue, int]] = {}

    def spend(self, amount: int) -> None:
        """Takes `amount` units away."""
        self.left -= amount
        if self.left < 0:
            raise TooMuchWorkError

    def look(self, value: JsonValue) -> None:
        """Takes away what it costs to look at a whole value once."""
        self.left -= self.size(value) if isinstance(value, dict | list | str) else 1
        if self.left < 0:
            raise TooMuchWorkError

    def size(self, value: JsonValue) -> int:
        """Values inside a value, itself included; long text counts for several."""
        if isinstance(value, str):
            return 1 + len(value) // _CHARACTERS
        if not isinstance(value, dict | list):
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            items = value.values() if isinstance(value, dict) else value
            known = self._sizes[id(value)] = (value, 1 + sum(map(self.size, items)))
        return known[1]
