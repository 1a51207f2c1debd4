"""The lists of several servers as one: pages are merged, names get prefixes, and capabilities are united.

    ListedNames      the names under which tools and prompts are listed, and back to server and name
    Pages            pages by their bytes: a page is parsed once as long as its server sends the same bytes
    MergedLists      the pages of all servers -> one list
    ResourceOwners   which server has which resource

A name with a prefix always works. A name without one belongs to the first server that lists it, for as long as the
process runs. Once a second server lists it, too, both get their prefixes and the bare name becomes invalid. So a call
only reaches the server whose tool was listed under that name.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue

# The most bare names; later names get prefixes.
MOST_BARE: Final = 50_000


class ListedNames:
    """`prefixes`: server -> its prefix; no prefix begins another one. `always`: no bare names."""

    def __init__(self, prefixes: Mapping[str, str], *, always: bool) -> None:
        self._prefixes = prefixes
        self._always = always
        self._owners: dict[str, str | None] = {}
        self.clashes = 0
        """How often names have changed their meaning; lists merged before the last time are out of date."""

    def keeps_meaning(self, prefixes: Mapping[str, str]) -> bool:
        """Returns whether no name that was listed so far would mean another tool with other prefixes."""
        renamed = (
            (prefix, other)
            for server, prefix in self._prefixes.items()
            for name, other in prefixes.items()
            if (server, prefix) != (name, other)
        )
        if any(prefix.startswith(other) or other.startswith(prefix) for prefix, other in renamed):
            return False
        bare = (name for name, owner in self._owners.items() if owner is not None)
        return not any(name.startswith(tuple(prefixes.values())) for name in bare)

    def change_prefixes(self, prefixes: Mapping[str, str], *, always: bool) -> None:
        """Shows names with other prefixes, or of other servers. A bare name stays with its server, even after that
        server has left."""
        self._prefixes, self._always = prefixes, always
        self.clashes += 1

    def note(self, server: str, names: Iterable[str]) -> None:
        """Registers the names that a server lists."""
        if self._always:
            return
        for name in names:
            owner = self._owners.get(name, server)
            if name not in self._owners and len(self._owners) < MOST_BARE:
                self._owners[name] = server
            elif owner is not None and owner != server:
                self._owners[name] = None
                self.clashes += 1

    def show(self, server: str, name: str) -> str:
        """The name under which a server's tool is listed. A bare name never looks like one with a prefix."""
        is_bare = not self._always and self._owners.get(name) == server and self._split_prefix(name) is None
        return name if is_bare else self._prefixes[server] + name

    def find(self, shown: str) -> tuple[str, str] | None:
        """Returns the server and the tool's name there; None for an unknown name."""
        prefixed = self._split_prefix(shown)
        if prefixed is not None:
            return prefixed
        owner = self._owners.get(shown)
        return (owner, shown) if owner is not None and owner in self._prefixes else None

    def _split_prefix(self, shown: str) -> tuple[str, str] | None:
        for server, prefix in self._prefixes.items():
            if shown.startswith(prefix) and len(shown) > len(prefix):
                return server, shown[len(prefix) :]
        return None


# Methods that list something -> the member of the result that holds it.
LISTS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
# Method -> the capability that a server with such lists announces.
OF_LISTS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}
# The possible capabilities of a server that has not answered yet.
LATE: Final[Mapping[str, JsonValue]] = {
    "prompts": {"listChanged": True}, "resources": {"listChanged": True}, "logging": {},
}  # fmt: skip
_MOST_PAGES: Final = 512
_MOST_BYTES: Final = 64 * 1024 * 1024
# Clients of one revision read one list; the others are for different credentials.
_MOST_LISTS: Final = 64


@value_class
class ListedPage:
    """One page of one server's list. `ttl` in milliseconds, None where the server does not say."""

    entries: tuple[dict[str, JsonValue], ...] = field(repr=False)
    cursor: str | None
    ttl: int | None
    digest: bytes


class Pages:
    """Remembers pages by their bytes."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[ListedPage, int]] = OrderedDict()
        self._size = 0

    def digest(self, text: bytes, request_id: str) -> bytes:
        """Hashes a page without the id of its request, so that equal pages have equal digests."""
        return hashlib.blake2b(text.replace(request_id.encode(), b"\0", 1), digest_size=16).digest()

    def find(self, digest: bytes) -> ListedPage | None:
        """Returns a page that was parsed before, or None."""
        known = self._known.get(digest)
        return known[0] if known is not None else None

    def keep(self, page: ListedPage, size: int) -> ListedPage:
        """Remembers a page."""
        self._known[page.digest] = page, size
        self._size += size
        while len(self._known) > _MOST_PAGES or (self._size > _MOST_BYTES and len(self._known) > 1):
            self._size -= self._known.popitem(last=False)[1][1]
        return page


def read_listed_page(result: Mapping[str, JsonValue], method: str, digest: bytes) -> ListedPage:
    """Reads the page in a result."""
    entries, cursor, ttl = result.get(LISTS[method]), result.get("nextCursor"), result.get("ttlMs")
    return ListedPage(
        tuple(entry for entry in entries if isinstance(entry, dict)) if isinstance(entries, list) else (),
        cursor if isinstance(cursor, str) and cursor else None,
        ttl if isinstance(ttl, int) and not isinstance(ttl, bool) else None,
        digest,
    )


class MergedLists:
    """Merges the lists of all servers; equal lists are merged once."""

    def __init__(self, names: Mapping[str, ListedNames]) -> None:
        self._names = names
        self._made: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def merge(self, method: str, listed: Mapping[str, tuple[ListedPage, ...]]) -> bytes:
        """The entries of all servers as JSON. Tools and prompts get their shown names; of two resources with one URI
        the first counts."""
        names = self._names.get(method)
        if names is not None:
            for server, pages in listed.items():
                names.note(server, _names_of(pages))
        digests = tuple((server, *(page.digest for page in pages)) for server, pages in listed.items())
        key = (method, names.clashes if names is not None else 0, digests)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = dumps(list(self._entries(method, names, listed)))
            if len(self._made) > _MOST_LISTS:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return made

    def _entries(
        self, method: str, names: ListedNames | None, listed: Mapping[str, tuple[ListedPage, ...]]
    ) -> Iterable[JsonValue]:
        seen: set[JsonValue] = set()
        for server, pages in listed.items():
            for entry in (entry for page in pages for entry in page.entries):
                if names is None:
                    uri = entry.get("uriTemplate" if method == "resources/templates/list" else "uri")
                    if isinstance(uri, str) and uri not in seen:
                        seen.add(uri)
                        yield entry
                elif isinstance(name := entry.get("name"), str):
                    yield {**entry, "name": names.show(server, name)}


def _names_of(pages: Iterable[ListedPage]) -> list[str]:
    found = (entry.get("name") for page in pages for entry in page.entries)
    return [name for name in found if isinstance(name, str)]


def merge_capabilities(all_servers: Iterable[JsonValue]) -> dict[str, JsonValue]:
    """Unites the servers' capabilities. `tools.listChanged` is always set, because a server may come back."""
    merged: dict[str, JsonValue] = {"tools": {"listChanged": True}}
    for capabilities in all_servers:
        if isinstance(capabilities, dict):
            _add(merged, capabilities)
    return merged


def _add(into: dict[str, JsonValue], more: Mapping[str, JsonValue]) -> None:
    for key, value in more.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _add(known, value)
        elif key not in into or value is True:
            into[key] = _copy(value)


def _copy(value: JsonValue) -> JsonValue:
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, dict) else value


class ResourceOwners:
    """The server of each listed resource."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._templates: dict[str, tuple[re.Pattern[str], str]] = {}

    def note(self, method: str, listed: Mapping[str, tuple[ListedPage, ...]]) -> None:
        """Registers listed resources or templates."""
        for server, pages in listed.items():
            for entry in (entry for page in pages for entry in page.entries):
                if method == "resources/list" and isinstance(uri := entry.get("uri"), str):
                    self._owners.setdefault(uri, server)
                template = entry.get("uriTemplate")
                if method == "resources/templates/list" and isinstance(template, str):
                    self._templates.setdefault(template, (_pattern(template), server))

    def find(self, uri: str) -> str | None:
        """Finds the server of a resource, or of a template that is equal to the URI or matches it."""
        if uri in self._owners:
            return self._owners[uri]
        if uri in self._templates:
            return self._templates[uri][1]
        return next((server for pattern, server in self._templates.values() if pattern.fullmatch(uri)), None)


def _pattern(template: str) -> re.Pattern[str]:
    """Compiles a URI template (RFC 6570) loosely: every expression matches any text."""
    parts = re.split(r"\{[^{}]*\}", template[:2000])
    return re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
