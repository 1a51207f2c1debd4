"""Reads the answers to `tools/list`: small ones in this process, large ones in a child process.

Equal answers are parsed once. If a server gives the same list to each credential, every further answer costs a hash
only. An answer repeats the id of its request, so the id is left out of the hash.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import replace
from typing import Final

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
from proxy.offload.pool import Done, OffloadPool

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
