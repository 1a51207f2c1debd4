"""The keys of the config that the plugin adds."""

from __future__ import annotations

from typing import Final

from proxy.config.keys.kinds import ConfigKey, list_of, map_of, mapping, name_kind, number, off_or, text

_HASH: Final = text(pattern="^[0-9a-f]{32}:[0-9a-f]{64}$", x_expects="SALT:HASH")
_USERS: Final = name_kind("basic", "Basic", off_or(list_of(text(), minItems=1), "off, or a list of users"))
_POLICY: Final = mapping(None, ConfigKey("basic", _USERS, "The users who may call, or `off`."))
# Place in the config -> the mapping of its keys there.
KEYS: Final = {
    "": mapping(
        None,
        ConfigKey(
            "basic_users",
            map_of(_HASH, minProperties=1),
            "User -> salted hash of the password, as `toolcall-proxy basic-hash` prints it.",
        ),
    ),
    "defaults": _POLICY,
    "route": _POLICY,
    "limits": mapping(None, ConfigKey("total", number(minimum=1), "How many calls may be made in all.")),
}
