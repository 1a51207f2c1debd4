"""Reads the answers to `tools/list`: small ones in this process, large ones in a child process.

Equal answers are parsed once. If a server gives the same list to each credential, every further answer costs a hash
only. An answer repeats the id of its request, so the id is left out of the hash.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.listed_tool import BadSchemaError, parse_schema
from proxy.core.contract.policy import ListRules, ToolPolicy
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.extensions.mcp.adapters.mcplist import (
    ToolsPage,
    find_answer,
    make_reading_job,
    pack_page,
    read_page,
    unpack_page,
)
from proxy.extensions.mcp.adapters.mcpmessage import Mirror, find_mirrors
from proxy.extensions.mcp.core.listed_tools import LearnedTools, LearnPolicy, Listing, Policies
from proxy.offload.pool import Done, OffloadPool
from proxy.server.bound_route import RouteBinding

# --- what was learned -------------------------------------------------------------------------------------------------
# The most lists of one route whose policies are kept: few servers list other tools to every user.
_MOST: Final = 64


class Catalogue:
    """The tools of one list under one route's rules."""

    def __init__(self, listing: Listing, rules: LearnPolicy, policies: Policies) -> None:
        self.listing: Final = listing
        self.tools: Final = LearnedTools(listing, rules, policies, careful=True)
        self._reported: set[str] = set()
        self.judged: Final[set[str]] = set()
        """Names of tools that have a usable schema and need no further report."""
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
    """Implements `LearnedLists`: the catalogues of one route by list. The least recently used one is dropped first."""

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
        return next(reversed(self._made.values())).tools if self._made else rules.whole()


def get_catalogues(binding: RouteBinding) -> Catalogues:
    """The catalogues of a route that learns its tools."""
    if not isinstance(binding.catalogues, Catalogues):
        raise TypeError("the route learns no tools")
    return binding.catalogues


# Bodies of up to this many bytes are read in this process.
SMALL: Final = 64 * 1024
# The seconds of processor time that a child may spend on one body, and the seconds to wait for the child.
_SECONDS: Final = 10.0
_PATIENCE: Final = 60.0
# The most pages that are remembered by a hash of their bytes, and the most bytes of them in all.
_MOST_PAGES: Final = 256
_MOST_BYTES: Final = 32 * 1024 * 1024
_READ: Final = f"proxy.extensions.mcp.adapters.mcplist:{pack_page.__name__}"

# The content of an answer: a page of tools, or an answer without one. None: there is no answer, or it cannot be read.
Read = ToolsPage | dict[str, JsonValue] | None


class ListReader:
    """Reads answers. `pool` provides the child processes for large ones."""

    def __init__(self, pool: OffloadPool) -> None:
        self._pool = pool
        self._known: OrderedDict[bytes, tuple[ToolsPage, int]] = OrderedDict()
        self._size = 0

    async def close(self) -> None:
        """Ends the child processes."""
        await self._pool.close()

    async def read(self, content_type: str, body: bytes, request_id: JsonValue) -> Read:
        """Reads the answer to the request `request_id`."""
        if len(body) <= SMALL:
            return self.read_small(content_type, body, request_id)
        digest = _digest(content_type, body, request_id)
        if (known := self._find_known(digest)) is not None:
            return known
        job = make_reading_job(content_type, body, request_id)
        ended = await self._pool.run(_READ, job, seconds=_SECONDS, patience=_PATIENCE)
        return self._keep(digest, unpack_page(ended.result) if isinstance(ended, Done) else None, len(body))

    def read_small(self, content_type: str, body: bytes, request_id: JsonValue) -> Read:
        """Does the same in this process, without waiting."""
        digest = _digest(content_type, body, request_id)
        if (known := self._find_known(digest)) is not None:
            return known
        answer = find_answer(content_type, body, request_id)
        page = read_page(answer) if answer is not None else None
        return self._keep(digest, answer if page is None else page, len(body))

    def _find_known(self, digest: bytes) -> ToolsPage | None:
        known = self._known.get(digest)
        if known is None:
            return None
        self._known.move_to_end(digest)
        return known[0]

    def _keep(self, digest: bytes, read: Read, size: int) -> Read:
        """Remembers a page by the digest of its bytes. Returns what was read."""
        if not isinstance(read, ToolsPage):
            return read
        page = replace(read, digest=digest)
        self._known[digest] = page, size
        self._size += size
        while len(self._known) > _MOST_PAGES or (self._size > _MOST_BYTES and len(self._known) > 1):
            self._size -= self._known.popitem(last=False)[1][1]
        return page


def _digest(content_type: str, body: bytes, request_id: JsonValue) -> bytes:
    """A hash of an answer without the id of its request. One occurrence of the id is replaced by a mark that no JSON
    holds, so two answers with one hash differ in nothing but their ids."""
    plain = body
    if isinstance(request_id, str | int) and not isinstance(request_id, bool):
        plain = re.sub(rb'"id"(\s*):(\s*)' + re.escape(dumps(request_id)) + rb"(?=\s*[,}])", b"\0", body, count=1)
    return hashlib.blake2b(plain, digest_size=16, person=content_type[:16].encode("ascii", "replace")).digest()
