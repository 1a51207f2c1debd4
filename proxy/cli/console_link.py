"""The operator's port of a proxy that was started without a config: a free port, a fresh token, and the console's link.

The token stands in the link's fragment, which no browser sends anywhere; the page takes it out of the address at once.
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


def close_console(loaded: Loaded) -> Loaded:
    """The config without an operator's port."""
    return replace(loaded, config=replace(loaded.config, admin=None))


def make_link(admin_url: str | None, loaded: Loaded) -> str | None:
    """Where the console opens without typing; None without one. The operator's token is part of it."""
    from proxy.config.files.secrets import reveal

    admin = loaded.config.admin
    if admin is None or not admin.console or not admin_url or not admin_url.startswith("http"):
        return None
    token = reveal(admin.token)
    return f"{admin_url}/ui/" + (f"#k={token}" if token else "")
