"""Declares each key of the config once: its kind of value, text and default, and the field that it fills.

    Kind   what a place of the config takes: its JSON Schema, and the reader of a value that the schema accepts
    ConfigKey    one key of a mapping

A key's default is on the class that uses the value. The schema shows it as a config would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import MISSING, replace
from enum import StrEnum
from typing import Any, Final

from proxy.config.files.secrets import reveal
from proxy.config.model import find_default
from proxy.config.sections.units import read_seconds, read_size, read_switch, read_time_limit
from proxy.core.json.jsontext import make_decimal
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue

SAME_OWNER: Final = "*"
Facts = Mapping[str, JsonValue]


def _write_same(value: Any) -> JsonValue:
    if isinstance(value, StrEnum):
        return value.value
    return list(value) if isinstance(value, tuple | frozenset) else value


def hide(_: object) -> object:
    """No default in the schema: the key's text says it, or the keys below have theirs."""
    return ABSENT


@value_class
class Kind:
    """The kind of value at a place of the config. `read` makes the value of it, `write` shows a default as a config
    writes it.

    `facts` are its keywords in JSON Schema, besides those of its parts. These are the `keys` of a mapping with the
    class that they fill, the `options` of a union, the `item` of a list, and a table's `values` by name pattern. One
    with a `name` is under `$defs`. If it `is_secret`, no dump shows its texts, which may come from a file.
    """

    facts: Facts
    read: Callable[[Any], Any] = reveal
    write: Callable[[Any], Any] = _write_same
    name: str = ""
    keys: tuple[ConfigKey, ...] | None = None
    owner: type | None = None
    options: tuple[Kind, ...] = ()
    item: Kind | None = None
    values: tuple[str, Kind] | None = None
    is_secret: bool = False

    def write_schema(self, used: Container[str] | None = None) -> dict[str, JsonValue]:
        """Its JSON Schema, of only the keys that are `used`."""
        made = dict(self.facts)
        if self.keys is not None:
            written = (key for key in self.keys if used is None or key.name in used)
            keys = {key.name: key.write_schema(self.owner, used) for key in written}
            made |= {"type": "object", "additionalProperties": False, "properties": keys}
        if self.options:
            made["anyOf"] = [option.refer(used) for option in self.options]
        if self.item is not None:
            made |= {"type": "array", "items": self.item.refer(used)}
        if self.values is not None:
            pattern, kind = self.values
            by_name = {"patternProperties": {pattern: kind.refer(used)}} if pattern else {}
            made |= {"type": "object", **by_name, "additionalProperties": not pattern and kind.refer(used)}
        return made

    def refer(self, used: Container[str] | None = None) -> dict[str, JsonValue]:
        """Its JSON Schema, or the reference to it."""
        return {"$ref": f"#/$defs/{self.name}"} if self.name else self.write_schema(used)

    def find_named(self, found: dict[str, Kind]) -> dict[str, Kind]:
        """The kinds with a name in it, itself included, added to those that are `found`."""
        if self.name in found:
            return found
        if self.name:
            found[self.name] = self
        for _, part in self.list_parts():
            part.find_named(found)
        return found

    def list_secrets(self, known: dict[str, list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
        """The places in it of which all that is below is secret; `*` means any name or number. It keeps those
        of each kind with a name in `known`."""
        if self.is_secret:
            return [()]
        if self.name in known:
            return known[self.name]
        found = [(*steps, *place) for steps, part in self.list_parts() for place in part.list_secrets(known)]
        if self.name:
            known[self.name] = found
        return found

    def list_parts(self) -> list[tuple[tuple[str, ...], Kind]]:
        """(place, kind) of each of its parts."""
        inner = [part for part in (self.item, self.values and self.values[1]) if part is not None]
        keys = [((key.name,), key.kind) for key in self.keys or ()]
        return [*(((), option) for option in self.options), *keys, *((("*",), part) for part in inner)]


@value_class
class ConfigKey:
    """One key of a mapping. `field` is the field that it fills, if that has another name; with SAME_OWNER it is a
    mapping whose keys fill fields of the same class. `is_read` False: another reader fills the field.

    `default` is what the schema shows, as written; without it the schema shows the default of the field. If that is
    None, or `default` is, it shows none.
    """

    name: str
    kind: Kind
    text: str = ""
    default: Any = ABSENT
    field: str = ""
    is_read: bool = True

    def write_schema(self, owner: type | None, used: Container[str] | None) -> dict[str, JsonValue]:
        """Its JSON Schema, with the default of a field of the `owner`."""
        made: dict[str, JsonValue] = ({"description": self.text} if self.text else {}) | self.kind.refer(used)
        default = self.write_default(owner)
        return made if default is None else made | {"default": default}

    def write_default(self, owner: type | None) -> JsonValue:
        """The default that the schema shows; None for none."""
        if self.default is not ABSENT or owner is None or not self.is_read or self.field == SAME_OWNER:
            return None if self.default is ABSENT else self.default
        usual = find_default(owner, self.field or self.name)
        written = None if usual in (None, MISSING) else self.kind.write(usual)
        return None if written is ABSENT else written


def mapping(owner: type | None, *keys: ConfigKey, make: Callable[..., Any] | None = None, **facts: JsonValue) -> Kind:
    """A mapping of keys that fill the fields of a class; `make` takes the fields in its place, without both a dict."""
    fields = {key.name: (key.field or key.name, key.kind.read) for key in keys if key.is_read}
    made = make or owner or dict

    def read(value: Facts) -> Any:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if key in fields:
                name, read_field = fields[key]
                if name == SAME_OWNER:
                    found |= read_field(item)
                else:
                    found[name] = read_field(item)
        return made(**found)

    return Kind(spell(facts), read, hide, keys=keys, owner=owner)


def spell(facts: Facts) -> dict[str, JsonValue]:
    """Keywords as JSON Schema spells them: `x_expects` for `x-expects`."""
    return {key.replace("_", "-"): value for key, value in facts.items()}


def name_kind(name: str, title: str, kind: Kind, text: str = "", **facts: JsonValue) -> Kind:
    """The kind under a name in `$defs`."""
    described = {"title": title} | ({"description": text} if text else {})
    return replace(kind, name=name, facts=described | dict(kind.facts) | spell(facts))


def text(**facts: JsonValue) -> Kind:
    """A text; `x_expects` says which, for messages."""
    return Kind({"type": "string"} | spell(facts))


def number(**facts: JsonValue) -> Kind:
    """A whole number."""
    return Kind({"type": "integer"} | spell(facts), _read_whole)


def _read_whole(value: JsonValue) -> int:
    return value if isinstance(value, int) else int(make_decimal(value))


def decimal(scale: float = 1.0, **facts: JsonValue) -> Kind:
    """A number that may have a fraction. Its value is the written one divided by `scale`, which is 100 for percent."""

    def write(usual: float) -> JsonValue:
        return int(shown) if (shown := round(usual * scale, 6)).is_integer() else shown

    return Kind({"type": "number"} | spell(facts), lambda value: float(make_decimal(value)) / scale, write)


def choice(*words: JsonValue, **facts: JsonValue) -> Kind:
    """Returns the kind of a choice of words; False means `off`."""
    return Kind({"enum": [*words]} | spell(facts), lambda value: "off" if value is False else reveal(value))


def member(enum: type[StrEnum], *words: JsonValue) -> Kind:
    """A member of an enumeration. `words` are those that the schema accepts, if they are others or in another order."""
    kind = choice(*(words or [each.value for each in enum]))
    return Kind(kind.facts, lambda value: enum(kind.read(value)))


def list_of(item: Kind, make: Callable[[Iterable[Any]], Any] = tuple, **facts: JsonValue) -> Kind:
    """A list."""
    return Kind(spell(facts), lambda values: make(map(item.read, values)), item=item)


def table_of(pattern: str, names: str, values: Kind, **facts: JsonValue) -> Kind:
    """A mapping by names of the user's; `names` says which there may be."""
    made = {"x-names": names} | spell(facts)
    return Kind(made, lambda found: {name: values.read(item) for name, item in found.items()}, values=(pattern, values))


def map_of(values: Kind, **facts: JsonValue) -> Kind:
    """A mapping by any names."""
    return Kind(spell(facts), table_of("", "", values).read, values=("", values))


def either(*options: Kind, read: Callable[[Any], Any] = reveal, **facts: JsonValue) -> Kind:
    """One of several kinds."""
    return Kind(spell(facts), read, hide, options=options)


def off_or(kind: Kind, x_expects: str, off: Any = None) -> Kind:
    """A value of another kind, or `off`, which is read as the argument `off`."""

    def read(value: JsonValue) -> Any:
        return off if value in ("off", False) else kind.read(value)

    return either(choice("off", False, x_expects="off"), kind, read=read, x_expects=x_expects)


def _write_measure(units: Mapping[str, float], value: float) -> JsonValue:
    return next(
        (f"{value / size:g}{unit}" for unit, size in units.items() if value >= size and not value % size), value
    )


_TIMES: Final = {"h": 3600, "m": 60, "s": 1}
_SIZES: Final = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}


def _write_seconds(value: float) -> JsonValue:
    return f"{value * 1000:g}ms" if 0 < value < 1 else _write_measure(_TIMES, value)


def _measure(name: str, title: str, text: str, read: Callable[[Any], float], **facts: JsonValue) -> Kind:
    described: dict[str, JsonValue] = {"title": title, "description": text, "type": ["string", "number"]}
    return Kind(described | spell(facts), read, _write_seconds, name)


DURATION: Final = _measure(
    "duration",
    "Duration",
    "A time: `500ms`, `30s`, `5m`, `2h`, or a plain number of seconds.",
    read_seconds,
    pattern=r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$",
    minimum=0,
    x_expects="a time such as 30s, 500ms or 5m, or a number of seconds",
)
TIME_LIMIT: Final = _measure(
    "time_limit",
    "Limit of time",
    "A time as in `duration`, or `off` for none.",
    read_time_limit,
    pattern=r"^(off|[0-9]+(\.[0-9]+)?(ms|s|m|h))$",
    minimum=0,
    x_expects="a time such as 30s or 5m, a number of seconds, or off",
)
LENGTH: Final = _measure(
    "length",
    "Length of time",
    "A time that is not nothing: `500ms`, `30s`, `5m`, `2h`, or a plain number of seconds.",
    read_seconds,
    pattern=r"^([0-9]*[1-9][0-9]*(\.[0-9]+)?|0+\.[0-9]*[1-9][0-9]*)(ms|s|m|h)$",
    exclusiveMinimum=0,
    x_expects="a time above 0 such as 30s, 500ms or 5m, or a number of seconds",
)
SIZE: Final = Kind(
    {
        "title": "Size",
        "description": "A number of bytes: `512KiB`, `1MiB`, or a plain number.",
        "type": ["string", "integer"],
        "pattern": "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB)$",
        "minimum": 1,
        "x-expects": "a size such as 512KiB or 1MiB, or a number of bytes",
    },
    read_size,
    lambda value: _write_measure(_SIZES, value),
    "size",
)
SWITCH: Final = Kind(
    {
        "title": "Switch",
        "description": "`on` or `off` (true and false do as well).",
        "enum": ["on", "off", True, False],
        "x-expects": "on or off",
    },
    read_switch,
    lambda value: "on" if value else "off",
    "switch",
)
POINTER: Final = name_kind(
    "pointer",
    "JSON Pointer",
    text(pattern="^(/([^~/]|~[01])*)+$", x_expects="a JSON Pointer such as /function/name"),
    "A place in the request's body (RFC 6901), such as `/function/name`.",
)
HEADER_PATTERN: Final = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
A_HEADER: Final = "the name of an HTTP header"
HEADER_NAME: Final = name_kind("header_name", "Header name", text(pattern=HEADER_PATTERN, x_expects=A_HEADER))
TOOL_PATTERN: Final = r"^[^\s{}]{1,128}$"
A_TOOL: Final = "a tool's name, without spaces"
TOOL_NAME: Final = name_kind("tool_name", "Tool name", text(pattern=TOOL_PATTERN, x_expects=A_TOOL))
A_PATH: Final = "a path that starts with / and has no query"
PATH: Final = text(pattern=r"^/[^?#\s]*$", x_expects=A_PATH)
# A text that says nothing of itself in messages.
WORD: Final = text(minLength=1)
SOME_TEXT: Final = text(minLength=1, x_expects="text that is not empty")
