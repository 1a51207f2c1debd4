"""The policy keys about repairs, and about what `format` in a schema means."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.config.files.secrets import reveal
from proxy.config.keys.kinds import SWITCH, ConfigKey, choice, either, list_of, mapping, name_kind, text
from proxy.config.model import RepairSettings
from proxy.config.sections.units import read_switch
from proxy.core.model.values import JsonValue
from proxy.core.rules.rules import LEVEL_MEANINGS, LEVELS, RULES
from proxy.core.schema.formats import NONE, USUAL, Formats

_SWITCHED_ON: Final = {
    "listed": "on MCP routes from level standard, elsewhere only if it is switched on here",
    "named": "only if it is switched on here",
}


def spread_level(value: JsonValue) -> JsonValue:
    """Returns a level as the mapping that it abbreviates, so that both can be merged."""
    return {"level": reveal(value)} if isinstance(value, str) else value


_LEVEL: Final = name_kind(
    "level", "Level", choice(*LEVELS), "; ".join(f"`{level}`: {what}" for level, what in LEVEL_MEANINGS.items()) + "."
)
_SWITCHES: Final = [
    ConfigKey(rule.name, SWITCH, f"{rule.change} ({_SWITCHED_ON.get(rule.level, f'on from level {rule.level}')})")
    for rule in RULES.values()
]
_RULES: Final = mapping(None, *_SWITCHES, default={})
_SETTINGS: Final = mapping(
    RepairSettings,
    ConfigKey("level", _LEVEL, "The level that the switches start from."),
    ConfigKey("rules", _RULES, "Single rules on or off, whatever the level."),
    ConfigKey(
        "drop_keys",
        list_of(text(), frozenset),
        "Keys that drop_unknown may remove. Default: none; at level lenient chatInput, sessionId, toolCallId.",
        default=None,
    ),
    description="A level with single switches.",
)
REPAIR: Final = name_kind(
    "repair",
    "Repair",
    either(
        _LEVEL,
        _SETTINGS,
        read=lambda value: _SETTINGS.read(spread_level(value)),
        x_expects="off, basic, standard or lenient, or a mapping of level, rules and drop_keys",
    ),
    "The repairs that are on for a call that the schema rejects: a level, or a level with single switches.",
)


def read_formats(value: JsonValue) -> Formats:
    """Which formats are asserted: a switch for all, or a mapping from formats to their strictness."""
    if not isinstance(value, dict):
        return USUAL if read_switch(value) else NONE
    written = {name: str(_FORMAT_MODE.read(mode)) for name, mode in value.items()}
    return Formats(True, tuple({**dict(USUAL.modes), **written}.items()))


_FORMAT_MODE: Final = replace(choice("iso8601", "rfc3339", "off", False), name="format_mode")
FORMATS: Final = name_kind(
    "formats",
    "Formats",
    either(
        SWITCH,
        mapping(
            None,
            ConfigKey("date-time", _FORMAT_MODE, "How `date-time` is meant. Default: `iso8601`."),
            ConfigKey("time", _FORMAT_MODE, "How `time` is meant. Default: `iso8601`."),
        ),
        read=read_formats,
        x_expects="on, off, or a mapping such as {date-time: rfc3339}",
    ),
    "Checks of `format`. `iso8601` reads dates and times as Pydantic and JavaScript do (zone "
    "optional, T or a space, seconds optional). `rfc3339` reads them as the drafts say. `off` "
    "checks no format. All other formats follow the drafts. `x-format` sets it for one "
    "property.",
    default="on",
)
