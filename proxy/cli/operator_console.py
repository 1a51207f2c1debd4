"""The operator's port of a proxy without a config of the user's, and the link to its console.

The files that `serve --mcp` and `serve --openapi` write have no operator's port: `serve` and `demo` add one at a free
port, so that several such processes can run side by side. Its token stands in the fragment of the console's link, which
no browser sends anywhere; the page takes it out of the address at once.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.config.load import Loaded
    from proxy.config.model import Address

_TOKEN_BYTES: Final = 24


def open_console(loaded: Loaded, listen: Address | None = None) -> Loaded:
    """The config with an operator's port at `listen` (default: the usual one, or a free one where it is taken) that
    asks for a token: the config's own, or a fresh one."""
    from proxy.config.model import AdminConfig

    admin = loaded.config.admin or AdminConfig()
    address = listen or replace(admin.listen, or_free=True)
    token = admin.token or secrets.token_urlsafe(_TOKEN_BYTES)
    return replace(loaded, config=replace(loaded.config, admin=replace(admin, listen=address, token=token)))


def make_link(admin_url: str | None, loaded: Loaded, *, with_token: bool = True) -> str | None:
    """The console's URL, with the operator's token in it; None where there is no console."""
    from proxy.config.files.secrets import reveal

    admin = loaded.config.admin
    if admin is None or not admin.console or not admin_url or not admin_url.startswith("http"):
        return None
    token = reveal(admin.token) if with_token else ""
    return f"{admin_url}/ui/" + (f"#k={token}" if token else "")
