"""The header fields of a message: names and values, in their order. Those of requests can be asked by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

Headers = tuple[tuple[str, str], ...]


class Fields(tuple[tuple[str, str], ...]):
    """`Headers` that are asked by name again and again: the names, in lower case, are indexed at the first question."""

    @classmethod
    def indexed(cls, fields: Iterable[tuple[str, str]], index: Mapping[str, str]) -> Fields:
        """Fields whose index (name -> first value) whoever read them has made already."""
        made = cls(fields)
        made.by_name = index
        # A call asks a dozen times: the index itself answers, without a function of ours around it.
        made.get = index.get  # type: ignore[assignment, method-assign]
        return made

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Name -> first value."""
        return dict(reversed(self))  # of several with one name the first is written last

    def get(self, name: str) -> str | None:
        """The first value of a field (`name` in lower case), or None."""
        return self.by_name.get(name)
