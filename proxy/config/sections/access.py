"""Access to routes: bearer tokens, and CORS for pages in a browser.

Only the SHA-256 of a token is kept. A token in plain text must come from the environment or a secret file, so that no
config file holds a usable token.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final

from proxy.config.context import Context
from proxy.config.files.secrets import Secret, reveal
from proxy.config.model import Auth, Cors
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.model.values import JsonValue, Pointer

_HASHED: Final = re.compile(r"sha256:[0-9a-fA-F]{64}")
# RFC 6750 section 2.1: the grammar of a bearer token; clients could not send anything else.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# Shorter tokens can be guessed; 16 characters from a good generator are about 95 bits.
_SHORTEST: Final = 16


def check_auth(context: Context, at: Pointer, value: JsonValue) -> None:
    """Reports unusable tokens."""
    if not isinstance(value, dict):
        return
    digests: dict[bytes, str] = {}
    for step, name, text in _list_tokens(value.get("bearer", ())):
        path = (*at, "bearer", step)
        if isinstance(text, Secret) and not _HASHED.fullmatch(text.reveal()):
            token = text.reveal()
            if not _TOKEN.fullmatch(token) or len(token) < _SHORTEST:
                hint = f"at least {_SHORTEST} letters, digits or -._~+/ (RFC 6750)"
                context.mistake(path, f"the token {name!r} is empty, too short or has other characters", hint)
        elif not _HASHED.fullmatch(reveal(text)):
            hint = "write `sha256:` and the hash of the token in hex, or ${ENV} or ${file:/path}"
            context.mistake(path, f"the token {name!r} would stand in the file", hint)
        other = digests.setdefault(_hash_token(text), name)
        if other != name:
            context.mistake(path, f"the tokens {other!r} and {name!r} are the same", "drop one of them")


def read_auth(value: JsonValue) -> Auth | None:
    """Reads an `auth` entry; None where it switches off."""
    if not isinstance(value, dict):
        return None
    tokens = tuple((name, _hash_token(text)) for _, name, text in _list_tokens(value["bearer"]))
    return Auth(tokens, read_switch(value.get("forward", False)))


def read_cors(value: JsonValue) -> Cors | None:
    """Reads a `cors` entry; None where it switches off."""
    if not isinstance(value, dict):
        return Cors(upstream=True) if value == "upstream" else None
    made: dict[str, Any] = {"max_age": read_seconds(value["max_age"])} if "max_age" in value else {}
    return Cors(frozenset(map(reveal, value["origins"])), tuple(map(reveal, value.get("headers", ()))), **made)


def _list_tokens(tokens: JsonValue) -> Iterator[tuple[str | int, str, str]]:
    """(step in the config, name, text) of every token; tokens of a list are named by their number."""
    if isinstance(tokens, dict):
        yield from ((name, reveal(name), text) for name, text in tokens.items())
    else:
        yield from ((index, f"token-{index + 1}", text) for index, text in enumerate(tokens))


def _hash_token(text: str) -> bytes:
    token = reveal(text)
    if _HASHED.fullmatch(token):
        return bytes.fromhex(token.removeprefix("sha256:"))
    return hashlib.sha256(token.encode()).digest()
