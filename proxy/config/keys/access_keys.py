"""The policy keys about who may call a route: bearer tokens, and the pages of browsers.

Only the SHA-256 of a token is kept. A token in plain text must come from the environment or a secret file, so that no
config file holds a usable token.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from proxy.config.files.secrets import reveal
from proxy.config.keys.kinds import (
    DURATION,
    HEADER_NAME,
    SWITCH,
    WORD,
    ConfigKey,
    choice,
    either,
    list_of,
    mapping,
    name_kind,
    off_or,
    table_of,
    text,
)
from proxy.config.model import Auth, Cors
from proxy.core.model.values import JsonValue

HASHED: Final = re.compile(r"sha256:[0-9a-fA-F]{64}")


def list_tokens(tokens: JsonValue) -> Iterator[tuple[str | int, str, str]]:
    """(step in the config, name, text) of every token; tokens of a list are named by their number."""
    if isinstance(tokens, dict):
        yield from ((name, reveal(name), text) for name, text in tokens.items())
    else:
        yield from ((index, f"token-{index + 1}", text) for index, text in enumerate(tokens))


def hash_token(text: str) -> bytes:
    """The SHA-256 of a token, or the hash that the config has of it."""
    token = reveal(text)
    if HASHED.fullmatch(token):
        return bytes.fromhex(token.removeprefix("sha256:"))
    return hashlib.sha256(token.encode()).digest()


# One token.
_BEARER: Final = replace(WORD, is_secret=True)
_TOKENS: Final = either(
    list_of(_BEARER, minItems=1, x_expects="a list of tokens"),
    table_of("^[A-Za-z0-9_.-]{1,64}$", "a token's name: letters, digits, '.', '_' and '-'", _BEARER, minProperties=1),
    read=lambda tokens: tuple((name, hash_token(value)) for _, name, value in list_tokens(tokens)),
    x_expects="a list of tokens, or a mapping from name to token",
)
AUTH: Final = name_kind(
    "auth",
    "Auth",
    off_or(
        mapping(
            Auth,
            ConfigKey(
                "bearer",
                _TOKENS,
                "A list, or name -> token; the name is logged. Each is `sha256:HEX` of the token, or `${ENV}` or "
                "`${file:...}` with the token itself.",
                field="tokens",
            ),
            ConfigKey("forward", SWITCH, "Forwards the token to the upstream."),
            description="Bearer tokens.",
            required=["bearer"],
        ),
        "off, or a mapping of bearer and forward",
    ),
    "Callers that are admitted: bearer tokens (RFC 6750). The nearest `auth` replaces the "
    "others; `off` admits everyone.",
)
_ORIGIN: Final = text(
    pattern=r"^(\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+)$", x_expects="an origin such as https://app.example.com, or *"
)
_PAGES: Final = mapping(
    Cors,
    ConfigKey(
        "origins", list_of(_ORIGIN, frozenset, minItems=1), "Origins as browsers send them; `*` for all.", default=None
    ),
    ConfigKey(
        "headers",
        list_of(HEADER_NAME),
        "Headers pages may send beside Content-Type, Authorization, Accept, X-Conversation-Id, X-Tool-Call-Id, "
        "X-Request-ID and the Mcp- ones.",
    ),
    ConfigKey("max_age", DURATION, "How long browsers remember the permission."),
    description="The pages that may call.",
    required=["origins"],
)


CORS: Final = name_kind(
    "cors",
    "CORS",
    either(
        choice("off", False, "upstream", x_expects="off or upstream"),
        _PAGES,
        read=lambda value: (
            _PAGES.read(value) if isinstance(value, dict) else Cors(upstream=True) if value == "upstream" else None
        ),
        x_expects="off, upstream, or a mapping of origins, headers and max_age",
    ),
    "Which browser pages may call. `off` refuses requests with an `Origin`.",
)
