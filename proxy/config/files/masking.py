"""Hides secrets of a config: names their places, and writes the config as a dump shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from proxy.config.files.secrets import Secret, keep_same
from proxy.config.keys.section_keys import CONFIG
from proxy.core.display.secrets import is_secret_name
from proxy.core.model.values import JsonValue, Pointer
from proxy.plugin import Plugin
from proxy.plugins import list_plugins

# Parts of a secret as the file has it: a reference, which is shown, its default, and the word before a credential.
_REFERENCE: Final = re.compile(r"(\$\{[^}]*\})")
_DEFAULT: Final = re.compile(r":-.*\}", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z]+ ")
# The authority up to its last @; a dump shows only `${...}` references within it.
_USERINFO: Final = re.compile(r"(?<=://)(?P<user>[^:@/]*)(?::(?P<password>.*))?@")
_WHOLE_REFERENCE: Final = re.compile(r"\$\{[^{}]*\}")


# Schemas of the main job.
_SCHEMAS: Final = tuple(
    (kind, "*", *place)
    for kind in ("tools", "routes")
    for place in (("schema",), ("response_schema",), ("container", "functions", "*", "schema"))
)
# The places of secrets that the keys of the main job declare. Secrets in tables and lists are also known by the last
# two keys above them, in case an outer key is out of place.
_PLACES: Final = CONFIG.list_secrets({})
_TABLES: Final = frozenset(place[-3:-1] for place in _PLACES if place[-1] == "*")
# The steps of a place other than `*`, with their numbers.
_Steps = tuple[tuple[int, str], ...]


class _Places:
    """The places that the main job and the plugins declare. Secrets: the first step -> the length of a place, and its
    other steps. Schemas: the length and the last step -> the other steps."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.secrets: dict[Pointer, list[tuple[int, _Steps]]] = {}
        self.schemas: dict[tuple[int, str | int], list[_Steps]] = {}
        self.commands = frozenset(key for plugin in plugins for key in plugin.commands)
        for place in (*_PLACES, *(place for plugin in plugins for place in plugin.secrets)):
            if place[-1] != "*":
                self.secrets.setdefault(place[:1], []).append((len(place), _list_steps(place)[1:]))
        for place in (*_SCHEMAS, *(place for plugin in plugins for place in plugin.schemas)):
            self.schemas.setdefault((len(place), place[-1]), []).append(_list_steps(place))


def _list_steps(place: tuple[str, ...]) -> _Steps:
    return tuple((number, step) for number, step in enumerate(place) if step != "*")


@lru_cache(maxsize=1)
def _find_places(_plugins: int) -> _Places:
    return _Places(list_plugins())


def is_schema_place(path: Pointer) -> bool:
    """Returns whether a path lies in a schema, where `$` is plain text: it occurs in patterns."""
    known = _find_places(len(list_plugins())).schemas.get((len(path), path[-1])) if path else None
    return known is not None and any(all(path[number] == step for number, step in steps) for steps in known)


def may_hold_secret(path: Pointer) -> bool:
    """Returns whether a value is never shown, because a key declares it as a secret."""
    for length, steps in _find_places(len(list_plugins())).secrets.get(path[:1], ()):
        if len(path) >= length and all(
            path[number] == step or (step == "**" and any(map(_names_secret, path[number:]))) for number, step in steps
        ):
            return True
    return path[-3:-1] in _TABLES


def redact_config(value: JsonValue, path: Pointer = (), *, in_schema: bool = False) -> JsonValue:
    """Returns the config as written, for dumps: `${...}` unresolved, header values that the file holds masked.
    `in_schema`: a place around it is in a schema, whose keys are names of properties."""
    in_schema = in_schema or path == ("documents",) or (len(path) > 2 and is_schema_place(path))
    if isinstance(value, Secret):
        value = value.written
    if isinstance(value, dict):
        made = {key: redact_config(item, (*path, key), in_schema=in_schema) for key, item in value.items()}
        return keep_same(value, made)
    if isinstance(value, list):
        listed = [redact_config(item, (*path, at), in_schema=in_schema) for at, item in enumerate(value)]
        return keep_same(value, listed)
    if isinstance(value, str) and path[-1:] == ("url",) and path[:1] != ("upstreams",) and may_hold_secret(path):
        return mask_url(value)
    if isinstance(value, str) and path[-1:] == ("webhook",):
        return mask_beyond_host(value)
    commands = _find_places(len(list_plugins())).commands
    if isinstance(value, str) and not commands.isdisjoint(path[-2:-1]) and path[-1] != 0:
        return "***"
    if isinstance(value, str) and not commands.isdisjoint(path[-2:]):
        return f"{value.split()[0]} ***" if value.split()[1:] else value
    if isinstance(value, str) and "://" in value and "${" not in value:
        value = mask_url(value)
    if isinstance(value, str) and path[:1] == ("upstreams",) and path[2:] == ("url",):
        value = _mask_query(value)
    if isinstance(value, str) and path[-1:] != ("url",):
        named = bool(path) and not in_schema and _names_secret(path[-1])
        return _mask_around_references(value) if named or may_hold_secret(path) else value
    if isinstance(value, int | float) and not isinstance(value, bool) and may_hold_secret(path):
        return "***"
    return value


def _mask_around_references(written: str) -> str:
    """Returns a secret as written with only its references, without their defaults, and a word such as `Bearer`."""
    if "${" not in written:
        return "***"
    parts = _REFERENCE.split(written)
    around = [part if not part or _SCHEME.fullmatch(part) else "***" for part in parts[::2]]
    references = [_DEFAULT.sub(":-***}", part) for part in parts[1::2]]
    return around[0] + "".join(map("".join, zip(references, around[1:], strict=True)))


def _names_secret(step: str | int) -> bool:
    return isinstance(step, str) and is_secret_name(step)


def _mask_query(written: str) -> str:
    """A URL as it is written in the config, with only the names of its query and the references in it."""
    before, mark, query = written.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    masked = [name + sign + _mask_around_references(value) if sign else "***" for name, sign, value in pairs]
    return f"{before}?{'&'.join(masked)}" if mark else written


def mask_url(written: str) -> str:
    """Returns a URL as written in the config, without a user or password that the config holds in full."""
    found = _USERINFO.search(written)
    if found is None:
        return written
    user, password = found["user"], found["password"]
    shown = user if password is not None or _WHOLE_REFERENCE.fullmatch(user) else "***"
    if password is not None:
        shown += ":" + (password if _WHOLE_REFERENCE.fullmatch(password) else "***")
    return f"{written[: found.start()]}{shown}{written[found.end() - 1 :]}"


def mask_beyond_host(written: str) -> str:
    """Returns only scheme, host and port of a URL in the config, because the rest of a webhook's URL is secret."""
    found = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/?#]*@)?([^/?#]*)", written)
    if found is None or "${" in written:
        return written if "${" in written else "***"
    scheme = written.partition("://")[0]
    return f"{scheme}://{found[1]}/***" if written[found.end() :].strip("/") else f"{scheme}://{found[1]}"
