"""The names under which tools (or prompts) of several servers are listed, and back. Pure, but for what it remembers.

A prefix is always understood. Where names go without one, a name belongs to the first server that lists it, for as long
as the process runs; once a second server lists it too, both get their prefixes and the bare name means nothing any
more. So a call never reaches another server than the one its name was listed for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

# Bare names that are remembered; later ones get prefixes.
MOST_BARE: Final = 50_000


class ListedNames:
    """`prefixes`: server -> its prefix, none of which begins another one."""

    def __init__(self, prefixes: Mapping[str, str], *, always: bool) -> None:
        self._prefixes = prefixes
        self._always = always
        self._owners: dict[str, str | None] = {}
        self.clashes = 0
        """How many bare names were taken back; merged lists that are older are out of date."""

    def note(self, server: str, names: Iterable[str]) -> None:
        """Takes notice of the names that a server lists."""
        if self._always:
            return
        for name in names:
            owner = self._owners.get(name, server)
            if name not in self._owners and len(self._owners) < MOST_BARE:
                self._owners[name] = server
            elif owner is not None and owner != server:
                self._owners[name] = None
                self.clashes += 1

    def shown(self, server: str, name: str) -> str:
        """The name under which a server's tool is listed. A bare name never looks like one with a prefix."""
        is_bare = not self._always and self._owners.get(name) == server and self._prefixed(name) is None
        return name if is_bare else self._prefixes[server] + name

    def find(self, shown: str) -> tuple[str, str] | None:
        """The server, and the name there; None for a name that nobody has."""
        prefixed = self._prefixed(shown)
        if prefixed is not None:
            return prefixed
        owner = self._owners.get(shown)
        return None if owner is None else (owner, shown)

    def _prefixed(self, shown: str) -> tuple[str, str] | None:
        for server, prefix in self._prefixes.items():
            if shown.startswith(prefix) and len(shown) > len(prefix):
                return server, shown[len(prefix) :]
        return None
