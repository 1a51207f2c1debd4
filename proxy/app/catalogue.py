"""The tools of one list as one route treats them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from proxy.adapters.mcpheaders import Mirror, mirrors
from proxy.core.learned import LearnedTools, LearnPolicy, Listing, Policies
from proxy.core.policy import ToolPolicy

# Lists of one route whose policies are kept: servers that list other tools to every user are few.
_MOST: Final = 64


class Catalogue:
    """The tools of one list under one route's rules."""

    def __init__(self, listing: Listing, rules: LearnPolicy, policies: Policies) -> None:
        self.listing: Final = listing
        self.tools: Final = LearnedTools(listing, rules, policies)
        self._told: set[str] = set()
        self._mirrors: dict[str, tuple[Mirror, ...]] = {}

    def mirrors(self, name: str) -> tuple[Mirror, ...]:
        """The parameters of a tool that headers repeat."""
        found = self._mirrors.get(name)
        if found is None:
            listed = self.listing.tools.get(name)
            found = mirrors(listed.schema) if listed is not None else ()
            self._mirrors[name] = found
        return found

    def first_told(self, name: str) -> bool:
        """Whether this is the first time that something is told of a tool."""
        told = name in self._told
        self._told.add(name)
        return not told


class Catalogues:
    """The catalogues of one route, by their lists: the least recently used go first."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, Catalogue] = OrderedDict()
        self._policies = Policies()

    def of(self, listing: Listing, rules: LearnPolicy) -> Catalogue:
        """The catalogue of a list."""
        found = self._made.get(listing.digest)
        if found is None:
            found = self._made[listing.digest] = Catalogue(listing, rules, self._policies)
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
        self._made.move_to_end(listing.digest)
        return found

    def latest(self, rules: LearnPolicy) -> Mapping[str, ToolPolicy]:
        """The tools of the list that was last used; those that the config alone knows where nothing was learned."""
        return next(reversed(self._made.values())).tools if self._made else rules.whole()
