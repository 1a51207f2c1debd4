"""The tools of one list under one route's rules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from proxy.core.contract.listed_tool import BadSchemaError, parse_schema
from proxy.core.contract.policy import ListRules, ToolPolicy
from proxy.extensions.mcp.adapters.mcpmessage import Mirror, find_mirrors
from proxy.extensions.mcp.core.listed_tools import LearnedTools, LearnPolicy, Listing, Policies
from proxy.server.bound_route import RouteBinding

# The most lists of one route whose policies are kept: few servers list other tools to every user.
_MOST: Final = 64


class Catalogue:
    """The tools of one list under one route's rules."""

    def __init__(self, listing: Listing, rules: LearnPolicy, policies: Policies) -> None:
        self.listing: Final = listing
        self.tools: Final = LearnedTools(listing, rules, policies, careful=True)
        self._reported: set[str] = set()
        self._mirrors: dict[str, tuple[Mirror, ...]] = {}

    def mirrors(self, name: str) -> tuple[Mirror, ...]:
        """Returns the parameters of a tool that headers have to repeat."""
        found = self._mirrors.get(name)
        if found is None:
            listed = self.listing.tools.get(name)
            try:
                found = find_mirrors(parse_schema(listed.schema)) if listed is not None else ()
            except BadSchemaError:
                found = ()
            self._mirrors[name] = found
        return found

    def is_first_report(self, name: str) -> bool:
        """Returns whether this is the first report about a tool ('': about the whole list), and remembers it."""
        is_first = name not in self._reported
        self._reported.add(name)
        return is_first


class Catalogues:
    """The catalogues of one route by list. The least recently used one is dropped first."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, str], Catalogue] = OrderedDict()
        self._policies = Policies()

    def of(self, listing: Listing, rules: LearnPolicy) -> Catalogue:
        """Returns the catalogue of a list under the rules of one group of clients."""
        key = (listing.digest, rules.scope)
        found = self._made.get(key)
        if found is None:
            shown = listing if rules.shows_all else rules.show(listing)
            found = self._made[key] = Catalogue(shown, rules, self._policies)
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return found

    def get_latest(self, rules: ListRules) -> Mapping[str, ToolPolicy]:
        """The tools of the list that was last used, or those of the config."""
        return next(reversed(self._made.values())).tools if self._made else rules.whole()


def get_catalogues(binding: RouteBinding) -> Catalogues:
    """The catalogues of a route that learns its tools."""
    if not isinstance(binding.catalogues, Catalogues):
        raise TypeError("the route learns no tools")
    return binding.catalogues
