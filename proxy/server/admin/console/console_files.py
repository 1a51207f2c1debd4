"""The console's static files below `/ui/`: a fixed list, each file read when it is requested.

Nothing here needs a token: the files say nothing of this proxy. A strict policy lets the page load scripts, styles and
data from here alone, and no text become code (CSP with Trusted Types).
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from proxy.server.admin.page import Page, PageRequest, refuse_question

FOLDER: Final = Path(__file__).parent
_INDEX: Final = "index.html"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


@cache
def list_files() -> dict[str, Path]:
    """Every file that can be requested, by its path below /ui/."""
    found = (path for path in FOLDER.rglob("*") if path.suffix in _KINDS and path.is_file())
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


async def show_file(question: PageRequest) -> Page:
    """One file; the page itself for `/ui/`."""
    path = list_files().get(question.rest or _INDEX)
    if path is None:
        return refuse_question("no such file", 404)
    body = await asyncio.to_thread(path.read_bytes)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (*_HEADERS, ("ETag", tag))
    if question.known == tag:
        return Page(b"", 304, _KINDS[path.suffix], headers)
    return Page(body, 200, _KINDS[path.suffix], headers)
