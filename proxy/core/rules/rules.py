"""The repair rules as a table: what each may change, when, and at which level it is on (docs/repair.md).

`RULES` is the only list: config switches, levels, metric labels and docs/reference/rules.md come from it. A rule of
kind `value` is a notation (`proposals.py`). `textrepair.py` applies the rules of kind `text`, `keys.py` and
`wrappers.py` those of kind `key`, `toolname.py` those of kind `name`, and `decide.py` those of kind `output`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from proxy.core.json.jsontext import FRACTIONS, JSON_TYPES
from proxy.core.model.value_class import share, value_class
from proxy.core.model.values import JsonValue
from proxy.core.rules import lists, proposals
from proxy.core.rules.proposals import Reading, Site

# The permitted repairs of each level, in the words of every text about it.
LEVEL_MEANINGS: Final[Mapping[str, str]] = {
    "off": "nothing",
    "basic": "text to number, integer, boolean",
    "standard": "every notation that has one meaning",
    "lenient": "also likely readings",
}
LEVELS: Final = tuple(LEVEL_MEANINGS)

# `listed`: from `standard` on for tools that a server lists, some of which require a key that has a default. Elsewhere
# at no level, only if a config names the rule. `named`: only if a config names the rule.
Level = Literal["basic", "standard", "lenient", "listed", "named"]
Kind = Literal["value", "key", "text", "name", "output"]

# A rule that fills in what the model left out: never on a tool that is stated to change or remove something.
ASSUMING: Final = frozenset({"fill_required"})
LEAVING_OUT: Final = frozenset({"drop_null_optional"})

Read = Callable[[JsonValue, Site], Reading | None]
Encode = Callable[[JsonValue, Any], JsonValue]

ANY_TYPE: Final = frozenset(JSON_TYPES)
_ARRAY: Final = frozenset({"array"})
_BOOLEAN: Final = frozenset({"boolean"})
_CONTAINERS: Final = frozenset({"array", "object"})
_INTEGER: Final = frozenset({"integer"})
_NUMBER: Final = frozenset({"number"})
_NUMERIC: Final = frozenset({"integer", "number"})
_OBJECT: Final = frozenset({"object"})
_STRING: Final = frozenset({"string"})
# The value of `gives` for a rule that needs a list of allowed values instead of types.
LISTED: Final[frozenset[str]] = frozenset()
# Rules that read one value in another spelling.
_SPELLINGS: Final = frozenset(
    {"string_to_integer", "string_to_number", "string_to_boolean", "enum_case", "integral_float", "quoted_text"}
)


@value_class
class Rule:
    """One repair rule. `read` and `encode` are the two functions of a notation.

    For a value rule, `takes` are the Python types of the values it may change. `gives` are the JSON types of which
    one has to be legal at the place (all types: no condition; `LISTED`: the place lists its values). `nests`: its
    result may be repaired further inside. `inside` are the rules that may repair the value that it takes out or
    puts in. `reads`: a refused result is kept, so that the answer can describe it. `member`: only for members of
    objects, never for elements of arrays. `json`: the types that it reads from JSON text; the text repairs are
    recorded beside it. `at`: what a place needs besides its types.
    """

    name: str
    level: Level
    kind: Kind
    change: str
    condition: str
    read: Read | None = None
    encode: Encode = proposals.as_sent
    takes: tuple[type, ...] = (object,)
    gives: frozenset[str] = ANY_TYPE
    nests: bool = False
    inside: frozenset[str] = frozenset()
    reads: bool = False
    member: bool = False
    json: frozenset[str] = frozenset()
    at: Callable[[Site], object] | None = None


# --- the table ------------------------------------------------------------------------------------------------------
_TABLE: Final = (
    Rule("string_to_integer", "basic", "value", '`"42"`, `" 42 "`, `"42.0"` -> `42`',
        "`-?(0|[1-9][0-9]*)`, optionally `.0`, ASCII space trimmed; no `+`, leading zero, exponent; exact at any size",
        proposals.string_to_integer, proposals.integer_text, (str,), _INTEGER,
        at=lambda site: "number" not in site.types),
    Rule("string_to_number", "basic", "value", '`"35.6"` -> `35.6`',
        "JSON's number grammar (RFC 8259), ASCII space trimmed; finite; keeps its digits",
        proposals.string_to_number, proposals.number_text, (str,), _NUMBER),
    Rule("string_to_boolean", "basic", "value", '`"true"`, `"0"` ... -> boolean',
        "exactly `1 TRUE true True 0 FALSE false False`, ASCII space trimmed", proposals.string_to_boolean,
        takes=(str,), gives=_BOOLEAN),
    Rule("quoted_text", "standard", "value", "`\"'celsius'\"` -> `\"celsius\"`, `'\"5\"'` -> `5`",
        "one pair of quotes around a listed word, a number (as string_to_integer), `true`, `false`, or a "
        "text whose `format` takes no quotes", proposals.quoted_text, proposals.quote_text, (str,)),
    Rule("year_first_date", "standard", "value", '`"2026/01/15"`, `"2026-1-5"`, `"20260115"` -> `"2026-01-15"`',
        "`format: date` and the year first; for `date-time` a blank for the `T` or before the zone, `+0200`, `UTC`",
        proposals.year_first_date, takes=(str,), gives=_STRING, at=lambda site: site.formats),
    Rule("integral_float", "standard", "value", "`3.0` -> `3` for an integer",
        "exact, no exponent. Also if the draft calls 3.0 a valid integer, which Go and Rust services refuse: then "
        "only those bytes change, never inside a union", proposals.integral_float, proposals.written_number, FRACTIONS,
        _INTEGER),
    Rule("number_pinned", "standard", "value", '`12345` -> `"12345"`',
        "an enum lists the text, or the schema fixes its length (equal `minLength` and `maxLength`, or a `pattern` "
        "with `^` and `$` and no choice of length). The number's own text, never with an exponent or `.0`",
        proposals.number_pinned, proposals.written_number, (int, *FRACTIONS), _STRING,
        at=lambda site: site.choices or site.is_fixed_length),
    Rule("boolean_word", "standard", "value", '`true` -> `"True"`',
        "an enum holds exactly one such spelling; no boolean is legal", proposals.boolean_word, takes=(bool,),
        gives=LISTED),
    Rule("parse_json_string", "standard", "value", '`"[1,2]"`, `"{...}"` -> array, object',
        "strict parse; its type is expected, free text not legal; repairs inside; at most 3 levels of one value; also "
        "the whole arguments", proposals.parse_json_string, proposals.json_text, (str,), _CONTAINERS, nests=True,
        reads=True, json=_CONTAINERS),
    Rule("python_literal", "standard", "value", "`\"['a', True]\"` -> array, object",
        "as parse_json_string, for one Python list or dict of JSON values", proposals.python_literal,
        proposals.python_text, (str,), _CONTAINERS, nests=True, reads=True),
    Rule("json_item", "standard", "value", '`"{...}"` -> `[{...}]`',
        "a list of objects is expected; a key that the items declare; repairs inside", lists.json_item, lists.item_text,
        (str,), _ARRAY, nests=True, member=True, json=_OBJECT, at=lambda site: site.item_keys),
    Rule("wrap_object", "standard", "value", "`{...}` -> `[{...}]`",
        "a member of an object; a list of objects is expected, and the items declare one of its keys; not a map of "
        "several items", lists.wrap_object, lists.unwrap_item, (dict,), _ARRAY, inside=_SPELLINGS, member=True,
        at=lambda site: site.item_keys),
    Rule("null_text", "standard", "value", '`"null"`, `"None"` -> null', "null is legal, that text is not",
        proposals.null_text, takes=(str,), gives=frozenset({"null"})),
    Rule("enum_case", "standard", "value", '`"Celsius"` -> `"celsius"`, `"in progress"` -> `"in_progress"`',
        "exactly one member is the same name in another identifier style; another case only with three letters or "
        "more, no digit, and members of one style of capitals", proposals.enum_case, takes=(str,), gives=LISTED),
    Rule("wrap_pinned", "standard", "value", '`"red"` -> `["red"]`',
        "a member of an object; the items list the value (as enum_case), or have a `format` whose grammar holds no "
        "separator: `date date-time time uuid email hostname ipv4 ipv6`", lists.wrap_pinned, lists.unwrap_item,
        gives=_ARRAY, inside=frozenset({"enum_case"}), member=True,
        at=lambda site: site.item_choices or site.item_formats),
    Rule("split_members", "standard", "value", '`"red, green"` -> `["red", "green"]`',
        "one of `, ` `,` `; ` `;` throughout, no comma between two digits; the items list each part (as enum_case) and "
        "not the whole", lists.split_members, lists.joined_text, (str,), _ARRAY, inside=frozenset({"enum_case"}),
        member=True, at=lambda site: site.item_choices),
    Rule("split_pinned", "standard", "value", '`"a@x.org, b@y.org"` -> `["a@x.org", "b@y.org"]`',
        "as split_members, for the formats of wrap_pinned", lists.split_pinned, lists.joined_text, (str,), _ARRAY,
        member=True, at=lambda site: site.item_formats),
    Rule("drop_null_optional", "standard", "key", "null -> key removed",
        "an optional key that refuses null. The tool is stated only to read (`readOnlyHint: true`, GET, HEAD) or its "
        "name begins with one of ten verbs (`null_optional: stated` leaves the verbs out). Or it is stated only to add "
        "(`destructiveHint: false`) and the key has no `default`. Or the operator says so (`x-null: drop`, "
        "`null_optional: drop`)"),
    Rule("aliases", "standard", "key", "`latitude` -> `lat`",
        "`aliases: {latitude: lat}` in the config; at the root of the arguments, never beside the other name"),
    Rule("key_case", "standard", "key", "`startDate` -> `start_date`",
        "unknown and refused, or the target is required. Exactly one declared, absent key is the same name in another "
        "identifier style. At every depth. All other such keys are renamed with it, or the call is refused"),
    Rule("key_quotes", "standard", "key", '`"\\"command\\""` -> `"command"`',
        "as key_case, for quotes and white space"),
    Rule("dotted_keys", "standard", "key", '`{"location.city": "x"}` -> `{"location": {"city": "x"}}`',
        "every unknown key spells the place of a declared member, and nothing else was sent there"),
    Rule("call_envelope", "standard", "key", '`{"name": "get_weather", "arguments": {...}}` -> the arguments',
        "a whole call in the shape of OpenAI, Anthropic or LangChain, which names this tool; nothing is next to it"),
    Rule("nest_arguments", "standard", "key", '`{"name": "x"}` -> `{"request": {"name": "x"}}`',
        "the tool declares and requires one key, an object that declares every key sent; its name is `arguments`, "
        "`args`, `params`, `parameters`, `kwargs`, `request`, `body`, `data`, `payload` or `input`"),
    Rule("empty_arguments", "standard", "key", "no body or `null` -> `{}`", "nothing is required"),
    Rule("unwrap_arguments", "standard", "key", '`{"arguments": {...}}` -> the inner object',
        "a lone undeclared `arguments`, `args`, `params`, `parameters`, `kwargs` or the tool's name. Up to three "
        "nested. The inner object, or JSON text of one, holds a declared key and is valid"),
    Rule("tool_name_trim", "standard", "name", '`"functions.get_weather:0"`, `"get_weather<|x|>"` -> `get_weather`',
        "template tokens, quotes, a counter, or the prefix `functions.`, `tools.`, `default_api.`, `mcp__<server>__` "
        "around exactly one known name; a container's name is not a prefix"),
    Rule("code_fence", "standard", "text", "a Markdown fence around the whole is taken off",
        "the inside parses strictly"),
    Rule("control_characters", "standard", "text", "raw control characters inside strings are escaped",
        "nothing else is wrong"),
    Rule("repeated_body", "standard", "text", "the same JSON text twice in a row -> once", "both halves are equal"),
    Rule("call_markup", "standard", "text", "`<tool_call>{...}</tool_call>`, `<|python_tag|>{...}` -> the object",
        "tags and template tokens of a call around the whole; no word beside them"),
    Rule("embedded_json", "standard", "output", "`Here is the result: {...}` -> only the JSON",
        "`upstream: none`; exactly one object or array in the text is valid without a change; no bracket left open"),
    Rule("yes_no", "lenient", "value", '`"yes"`, `"no"`, `"on"`, `"off"` -> boolean', "any case", proposals.yes_no,
        takes=(str,), gives=_BOOLEAN),
    Rule("zero_one", "lenient", "value", "`1`, `0` -> boolean", "no number is legal", proposals.zero_one,
        lambda value, _: int(value), (int,), _BOOLEAN),
    Rule("number_to_string", "lenient", "value", '`123` -> `"123"`',
        "the number's own text, never with an exponent or `.0`", proposals.number_to_string, proposals.written_number,
        (int, *FRACTIONS), _STRING),
    Rule("enum_point", "lenient", "value", '`"Red."` -> `"red"`', "as enum_case, for one word and a full stop",
        proposals.enum_point, takes=(str,), gives=LISTED),
    Rule("grouped_number", "lenient", "value", '`"1,000,000"` -> `1000000`',
        "two groups of three digits or more behind commas", proposals.grouped_number, proposals.grouped_text, (str,),
        _NUMERIC),
    Rule("wrap_scalar", "lenient", "value", "`5` -> `[5]`", "a member of an object; a bare number or boolean",
        lists.wrap_scalar, lists.unwrap_item, (bool, int, *FRACTIONS), _ARRAY, inside=_SPELLINGS, member=True),
    Rule("split_commas", "lenient", "value", '`"a,b,c"` -> `["a","b","c"]`',
        "three plain texts or more without a blank, or two in quotes, which are stripped", lists.split_commas,
        lists.joined_text, (str,), _ARRAY, member=True),
    Rule("join_chunks", "lenient", "value", '`["a\\n","b"]` -> `"a\\nb"`',
        "strings; all but the last end in a line break; no item of a list", lists.join_chunks, lists.chunks, (list,),
        _STRING, member=True),
    Rule("first_of_one", "lenient", "value", '`["a"]` -> `"a"`', "no array is legal", lists.first_of_one,
        lists.one_item, (list,), nests=True, inside=_SPELLINGS),
    Rule("item_wrapped", "lenient", "value", '`{"item": {...}}` -> `[{...}]`',
        "the lone key `item`, undeclared by the items, if a list is expected", lists.item_wrapped, lists.items,
        (dict,), _ARRAY, nests=True),
    Rule("self_wrapped", "lenient", "value", '`{"tags": {"tags": ["x"]}}` -> `{"tags": ["x"]}`',
        "the object, or JSON text of one, has the property's name as its lone key; a list is expected and sent, and "
        "the items declare no such key", lists.self_wrapped, lists.write_wrapper, (dict, str), _ARRAY, nests=True,
        json=_OBJECT),
    Rule("value_wrapped", "lenient", "value", '`{"value": "high"}` -> `"high"`',
        "exactly this key; a number, a boolean or a listed value is expected", lists.value_wrapped, lists.write_wrapper,
        (dict,), inside=_SPELLINGS),
    Rule("key_markup", "lenient", "key", '`parameter name=\\"ops\\"` -> `ops`',
        "as key_case, for markup of the call around it"),
    Rule("object_to_json_string", "lenient", "value", "`{...}` -> its JSON text",
        "a string is expected, no object; `contentMediaType` or `format` states JSON, or its name is `arguments`",
        proposals.object_to_json_string, proposals.written_number, (dict,), _STRING),
    Rule("drop_unknown", "lenient", "key", "client plumbing keys are removed", "refused, and in `drop_keys`"),
    Rule("fill_default", "lenient", "key", "a missing optional key -> its `default`",
        "only if the object is refused without it"),
    Rule("fill_required", "listed", "key", "missing required keys -> their `default`",
        "the object is accepted with them, holds no undeclared key, and none of them elsewhere. Never inside a union's "
        "branch. Not on tools that are stated to change or remove something (`destructiveHint: true`, PATCH, PUT, "
        "DELETE)"),
    Rule("windows_paths", "lenient", "text", r"`\` of a Windows path is doubled",
        "a text of one line that starts like a path " r"(`C:\`, `\\server`) and holds an escape that JSON lacks"),
    Rule("trailing_text", "lenient", "text", '`{"a":1}}`, `{"a":1}</tool_call>` -> the object',
        "fences, markup of a call and at most one closing bracket behind the complete object; never words"),
    Rule("bare_keys", "lenient", "text", '`{city: "Rome"}` -> `{"city": "Rome"}`',
        "names without quotes, as JavaScript writes them"),
    Rule("needless_escapes", "lenient", "text", r"`\'` -> `'`, `\$5` -> `$5`", r"`\$` only before a digit"),
    Rule("escaped_text", "lenient", "text", r'`{\"a\":1}`, `{&quot;a&quot;:1}` -> `{"a":1}`',
        "every quote of the text is escaped the same way; the result parses strictly"),
    Rule("trailing_commas", "lenient", "text", "`[1,2,]` -> `[1,2]`", "braces balance"),
    Rule("curly_quotes", "lenient", "text", "`“a”` -> `\"a\"`", "typographic quotes around a whole string"),
    Rule("single_quotes", "lenient", "text", "`{'a': 'b'}` -> `{\"a\": \"b\"}`", "braces balance"),
    Rule("python_literals", "lenient", "text", "`True`, `False`, `None` -> true, false, null", "braces balance"),
    Rule("unescaped_quotes", "lenient", "text", "quotes inside a string are escaped", "one reading only"),
    Rule("wrap_text", "named", "value", '`"a"` -> `["a"]`', "a member of an object; any text", lists.wrap_text,
        lists.unwrap_item, (str,), _ARRAY, member=True),
    Rule("boolean_letter", "named", "value", '`"t"`, `"F"` -> boolean',
        "exactly `t T f F`, which often abbreviate another word (`f` for female)", proposals.boolean_letter,
        takes=(str,), gives=_BOOLEAN),
    Rule("leading_point", "named", "value", '`".5"` -> `0.5`', "otherwise as `string_to_number`",
        proposals.leading_point, proposals.number_text, (str,), _NUMBER),
    Rule("enum_fold", "named", "value", '`"PDF"` -> `"pdf"` beside `"Docx"`',
        "as enum_case, and case never carries the meaning", proposals.enum_fold, takes=(str,), gives=LISTED),
    Rule("tool_name_fold", "named", "name", '`"getWeather"`, `"get-weather"` -> `get_weather`',
        "unknown, and the same name as exactly one known one in another identifier style"),
    Rule("comments", "named", "text", "`//` and `/* */` comments are left out",
        "braces balance; what they say is lost"),
)  # fmt: skip

# Rules of earlier versions, each with what takes its place.
REMOVED: Final[Mapping[str, str]] = {
    "wrap_single": "`wrap_object` and `wrap_pinned` (at `standard`), `wrap_scalar` (at `lenient`) or `wrap_text`",
    "key_word": "`aliases` on the tool", "key_prefix": "`aliases` on the tool", "python_list": "`python_literal`",
    "empty_optional": "nothing: an empty text is a value", "null_word_optional": "nothing: a word is a value",
    "default_optional": "nothing: correct the `default` of the schema",
    "split_integers": "nothing: the answer says to send a list",
    "unwrap_any": "`unwrap_arguments`, for the names that mean arguments",
    "unwrap_scalar": "nothing: the answer says to name the argument",
    "schema_shaped": "nothing: the answer says to send the value",
    "typed_value": "nothing: the answer says to send the value",
    "list_level": "nothing: the answer says which list is expected",
}  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _TABLE}

# Value rules that give a value another JSON type: GoMind's coercions.
COERCIONS: Final = frozenset(rule.name for rule in _TABLE if rule.kind == "value") - {
    "year_first_date", "enum_case", "enum_fold", "enum_point",
}  # fmt: skip

# Recorded among the repairs of a call although it is not a rule: a hook of the operator changed the arguments.
HOOK: Final = "hook"
# The repairs of a checked call list a model's changes under these names, by who was asked, so that adapters send them.
CORRECTIONS: Final = frozenset({"validation_feedback", "semantic_retry"})

TEXT_RULES: Final = frozenset(rule.name for rule in _TABLE if rule.kind == "text")


def select_rules(level: str, switches: Mapping[str, bool] | None = None, *, listed: bool = False) -> frozenset[str]:
    """The names of the rules that are on at a level, after single rules are switched on or off. `listed`: of a tool
    that a server lists. Raises KeyError for an unknown level or rule name."""
    if level not in LEVELS:
        raise KeyError(level)
    reach = {*LEVELS[1 : LEVELS.index(level) + 1]}
    if listed and "standard" in reach:
        reach.add("listed")
    on = {rule.name for rule in _TABLE if rule.level in reach}
    for name, wanted in (switches or {}).items():
        if name not in RULES:
            raise KeyError(name)
        (on.add if wanted else on.discard)(name)
    return share(frozenset(on))


def list_unknown_switches(written: JsonValue) -> tuple[str, ...]:
    """The unknown rules in an `x-repair` (`on`, `off`, true, false, or a list of rules that stay on)."""
    if isinstance(written, bool) or written in ("on", "off"):
        return ()
    if not isinstance(written, list):
        return (str(written),)
    return tuple(str(name) for name in written if not isinstance(name, str) or name not in RULES)


@lru_cache(maxsize=256)
def select_value_rules(names: frozenset[str]) -> tuple[Rule, ...]:
    """The value rules among `names`."""
    return tuple(rule for rule in _TABLE if rule.read is not None and rule.name in names)
