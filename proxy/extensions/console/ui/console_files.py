"""The console's static files below `/ui/`.

The paths come from a list of the folder's files, so that no request can name a file elsewhere. A file is read at each
request. The files need no token because they hold nothing about this proxy. The Content-Security-Policy lets the page
load scripts, styles and data from this origin only, and Trusted Types keep text from being executed as code.
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
    """Returns every file that is served, by its path below /ui/."""
    found = (path for path in FOLDER.rglob("*") if path.suffix in _KINDS and path.is_file())
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


async def show_file(question: PageRequest) -> Page:
    """Serves one file; `/ui/` serves index.html. An `If-None-Match` with the file's ETag gets a 304."""
    path = list_files().get(question.rest or _INDEX)
    if path is None:
        return refuse_question("no such file", 404)
    body = await asyncio.to_thread(path.read_bytes)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = (*_HEADERS, ("ETag", tag))
    if question.known == tag:
        return Page(b"", 304, _KINDS[path.suffix], headers)
    return Page(body, 200, _KINDS[path.suffix], headers)
