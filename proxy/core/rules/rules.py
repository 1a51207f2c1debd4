"""The repair rules as a table: what each may change, when, and at which level it is on (docs/repair.md).

`proposals.py` says what the function of a value rule may do.

`RULES` is the only list: config switches, levels, metric labels and docs/reference/rules.md come from it. Rules of kind
`text` are applied by `textrepair.py`, those of kind `key` by the engine itself (they change an object's keys),
those of kind `name` by the dispatcher of tool names, those of kind `output` by `decide.py` on final outputs; they stand
here so that the list is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Literal

from proxy.core.json.jsontext import FRACTIONS, JSON_TYPES
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.rules import lists, members, proposals
from proxy.core.rules.proposals import Site

# What may be repaired at each level, in the words of every text about it.
LEVEL_MEANINGS: Final[Mapping[str, str]] = {
    "off": "nothing",
    "basic": "text to number, integer, boolean",
    "standard": "every rule that loses nothing",
    "lenient": "also where the schema leaves one meaning and the spelling is worse",
}
LEVELS: Final = tuple(LEVEL_MEANINGS)

# `listed`: from `standard` on for tools that a server lists, some of which require a key that has a default; elsewhere
# at no level, only where a config names the rule. `named`: nowhere but there.
Level = Literal["basic", "standard", "lenient", "listed", "named"]
Kind = Literal["value", "key", "text", "name", "output"]

# Keys that agent clients add of their own accord; `drop_unknown` may remove them at level lenient.
PLUMBING_KEYS: Final = frozenset({"toolCallId", "sessionId", "chatInput"})

# Names under which models wrap the arguments of a call a second time.
WRAPPER_KEYS: Final = frozenset({"arguments", "args", "params", "parameters", "input", "kwargs"})

# Rules that treat a value as not sent. They are on where reading is all that a tool does (`names.py`), two of them
# where it creates something.
LEAVING_OUT: Final = frozenset({"drop_null_optional", "empty_optional", "null_word_optional", "default_optional"})

# Rules that decide for the model what is done where it said nothing: not on such tools either.
ASSUMING: Final = frozenset({"fill_required"})

Propose = Callable[[JsonValue, Site], JsonValue]

ANY_TYPE: Final = frozenset(JSON_TYPES)
_ARRAY: Final = frozenset({"array"})
_BOOLEAN: Final = frozenset({"boolean"})
_CONTAINERS: Final = frozenset({"array", "object"})
_INTEGER: Final = frozenset({"integer"})
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
    """One repair rule. `tier`: lower tiers are tried first, and only what they leave unrepaired reaches the next one.

    For a value rule, `takes` are the Python types of the values it may change, and `gives` the JSON types of which
    one has to be legal at the place (all types: no condition; `LISTED`: the place lists its values). `nests`: its
    proposal may be repaired further inside. `inside` are the rules that may repair the value that it takes out or
    puts in. `reads`: a refused proposal is kept, so that the answer can describe it. `member`: only for members of
    objects, never for elements of arrays. `last`: only where nothing else gives the call a meaning. `json`: the types
    that it reads from JSON text; the text repairs are recorded beside it. `at`: what a place needs beside its types.
    """

    name: str
    level: Level
    kind: Kind
    change: str
    condition: str
    propose: Propose | None = None
    takes: tuple[type, ...] = (object,)
    gives: frozenset[str] = ANY_TYPE
    tier: int = 1
    nests: bool = False
    inside: frozenset[str] = frozenset()
    reads: bool = False
    member: bool = False
    last: bool = False
    json: frozenset[str] = frozenset()
    at: Callable[[Site], object] | None = None


# --- the table ------------------------------------------------------------------------------------------------------
_TABLE: Final = (
    Rule("string_to_integer", "basic", "value", '`"42"`, `" 42 "`, `"+42"`, `"05"`, `"42.0"`, `"1e3"` -> `42` ...',
        "JSON-number grammar, ASCII space trimmed, optional `+`; leading zero only of two digits (not `0755`, `007`); "
        "no dot before exactly three digits (`1.000`); exponents up to 20; integral; exact at any size",
        proposals.string_to_integer, (str,), _INTEGER, at=lambda site: "number" not in site.types),
    Rule("string_to_number", "basic", "value", '`"35.6"` -> `35.6`', "same grammar; finite; keeps its digits",
        proposals.string_to_number, (str,), frozenset({"number"})),
    Rule("leading_point", "standard", "value", '`".5"` -> `0.5`', "else as `string_to_number`", proposals.leading_point,
        (str,), frozenset({"number"})),
    Rule("string_to_boolean", "basic", "value", '`"true"`, `"0"` ... -> boolean',
        "exactly `1 TRUE true True 0 FALSE false False`, ASCII space trimmed", proposals.string_to_boolean, (str,),
        _BOOLEAN),
    Rule("boolean_letter", "named", "value", '`"t"`, `"F"` -> boolean',
        "exactly `t T f F`, which often stand for another word (`f` for female)", proposals.boolean_letter, (str,),
        _BOOLEAN),
    Rule("quoted_text", "standard", "value", "`\"'celsius'\"` -> `\"celsius\"`, `'\"5\"'` -> `5`",
        "one pair of quotes around a listed word, a number (as string_to_integer), `true`, `false`, or a "
        "text whose `format` takes no quotes", proposals.quoted_text, (str,)),
    Rule("year_first_date", "standard", "value", '`"2026/01/15"`, `"2026-1-5"`, `"20260115"` -> `"2026-01-15"`',
        "`format: date` and the year first; for `date-time` a blank for the `T` or before the zone, `+0200`, `UTC`",
        proposals.year_first_date, (str,), _STRING, at=lambda site: site.formats),
    Rule("integral_float", "standard", "value", "`3.0` -> `3` for an integer",
        "exact, no exponent; also where the draft calls 3.0 a valid integer, which Go and Rust services refuse: then "
        "those bytes alone change, never inside a union", proposals.integral_float, FRACTIONS, _INTEGER),
    Rule("number_to_string", "standard", "value", '`123` -> `"123"`',
        "the number's own text, with the number of digits that the description tells; never with an exponent or `.0`, "
        "unless the schema lists that integer as text; never booleans, objects, arrays", proposals.number_to_string,
        (int, *FRACTIONS), _STRING),
    Rule("boolean_word", "standard", "value", '`true` -> `"True"`',
        "an enum holds exactly one such spelling; no boolean is legal", proposals.boolean_word, (bool,), LISTED),
    Rule("parse_json_string", "standard", "value", '`"[1,2]"`, `"{...}"` -> array, object',
        "strict parse; its type is asked, free text not legal; repairs inside; at most 3 levels of one value; also the "
        "whole arguments", proposals.parse_json_string, (str,), _CONTAINERS, nests=True, reads=True, json=_CONTAINERS),
    Rule("json_item", "standard", "value", '`"{...}"` -> `[{...}]`',
        "a list of objects is asked; a key that the items declare; repairs inside", lists.json_item, (str,), _ARRAY,
        nests=True, member=True, json=_OBJECT, at=lambda site: site.item_keys),
    Rule("python_list", "standard", "value", "`\"['a', 'b']\"` -> array",
        "one Python list of JSON values; repairs inside", lists.python_list, (str,), _ARRAY, nests=True, reads=True),
    Rule("null_text", "standard", "value", '`"null"`, `"None"`, `""` -> null',
        "null is legal, that string not; elsewhere than on reading tools only `null` and `None` at required keys",
        proposals.null_text, (str,), frozenset({"null"})),
    Rule("enum_case", "standard", "value", '`"Celsius"` -> `"celsius"`',
        "exactly one member is equal after trimming and without case, all members share one style of capitals; never a "
        "quantity, a unit (`1M`, `1m`; `MB`, `Mb`), a sign (`-d`), a pattern (`HH:mm`) or a single letter",
        members.enum_case, (str,), LISTED),
    Rule("wrap_single", "standard", "value", '`"a"` -> `["a"]`',
        "a member of an object, never an array's element; a valid item (numbers as string_to_integer, "
        "members as enum_case); an object has a key that the items declare; text that the items list or pin by format, "
        "pattern, or one word, name, path or address: no white space, separator, bracket or quotes, no span "
        "(`mon-fri`), no words joined by one (`rice_and_beans`), no script without blanks between words, no word of "
        "nothing or of several (`none`, `all`); never one end of a pair, by name or description (range, position, from "
        "and to); numbers only under a name of many", lists.wrap_single, (object,), _ARRAY,
        inside=frozenset({"string_to_integer", "string_to_number", "enum_case"}), member=True),
    Rule("split_members", "standard", "value", '`"red, green"` -> `["red", "green"]`',
        "behind `,` or `;`; every part is an enum member of the items (as enum_case), not the whole",
        lists.split_members, (str,), _ARRAY, member=True, at=lambda site: site.item_choices),
    Rule("split_pinned", "standard", "value", '`"a@x.org, b@y.org"` -> `["a@x.org", "b@y.org"]`',
        "behind `,`, `;` or a blank; a format (no date or time) or pattern of the items takes each part and not the "
        "whole; no part is a plain word", lists.split_pinned, (str,), _ARRAY, member=True, at=lambda site: site.pinned),
    Rule("split_integers", "standard", "value", '`"5, 2, 9"` -> `[5, 2, 9]`',
        "three or more, none like thousands; no pair", lists.split_integers, (str,), _ARRAY, member=True),
    Rule("drop_null_optional", "standard", "key", "null -> key removed",
        "an optional key that refuses it, on a tool that only reads; on one that creates, where no default is "
        "declared"),
    Rule("empty_optional", "standard", "key", '`""` -> key removed',
        "as drop_null_optional, on reading tools alone; never a filter; after null_text"),
    Rule("null_word_optional", "standard", "key", '`"null"`, `"None"`, `"undefined"` -> key removed',
        "as drop_null_optional; never a filter, never where a default would take its place"),
    Rule("default_optional", "standard", "key", "a `default` that its own type refuses -> key removed",
        "on tools that read or create; the value equals the `default`; never null or nothing"),
    Rule("key_case", "standard", "key", "`startDate` -> `start_date`",
        "unknown and refused, or the target is required; without case, `-`, `_`, space it equals exactly one declared, "
        "absent key; never with a sign before it (`-label`) or a unit in another case (`power_MW`); at every depth; "
        "all other such keys are renamed with it, or the call is refused"),
    Rule("key_quotes", "standard", "key", '`"\\"command\\""` -> `"command"`',
        "as key_case, for quotes and white space"),
    Rule("key_prefix", "standard", "key", "`params_city`, `params_days` -> `city`, `days`",
        "all keys are unknown, and declared without one common wrapper's name (`params_`, `args.`)"),
    Rule("dotted_keys", "standard", "key", '`{"location.city": "x"}` -> `{"location": {"city": "x"}}`',
        "every unknown key spells the place of a declared member, and nothing else was sent there"),
    Rule("call_envelope", "standard", "key", '`{"name": "get_weather", "arguments": {...}}` -> the arguments',
        "a whole call in the shape of OpenAI, Anthropic or LangChain, which names this tool; nothing stands beside it"),
    Rule("nest_arguments", "standard", "key", '`{"name": "x"}` -> `{"user": {"name": "x"}}`',
        "the tool declares and requires one key alone, an object that declares every key sent; never under a name that "
        "tells more (`exclude`, `old`)"),
    Rule("empty_arguments", "standard", "key", "no body or `null` -> `{}`", "nothing is required"),
    Rule("unwrap_arguments", "standard", "key", '`{"arguments": {...}}` -> the inner object',
        "a lone undeclared `arguments`, `args`, `params`, `parameters`, `input`, `kwargs` or the tool's name; up to "
        "three nested; the inner object, or JSON text of one, holds a declared key and is valid"),
    Rule("tool_name_trim", "standard", "name", '`"functions.get_weather:0"`, `"get_weather<|x|>"` -> `get_weather`',
        "template tokens, quotes, a counter, or the prefix `functions.`, `tools.`, `default_api.`, `mcp__<server>__` "
        "around exactly one known name; a container's name is not a prefix"),
    Rule("code_fence", "standard", "text", "a Markdown fence around the whole is taken off",
        "the inside parses strictly"),
    Rule("control_characters", "standard", "text", "raw control characters inside strings are escaped",
        "nothing else is wrong"),
    Rule("repeated_body", "standard", "text", "the same JSON text twice in a row -> once", "both halves are equal"),
    Rule("embedded_json", "standard", "output", "`Here is the result: {...}` -> the JSON alone",
        "`upstream: none`; exactly one object or array in the text is valid as it stands; no bracket left open"),
    Rule("yes_no", "lenient", "value", '`"yes"`, `"no"`, `"on"`, `"off"` -> boolean', "any case", proposals.yes_no,
        (str,), _BOOLEAN, tier=2),
    Rule("zero_one", "lenient", "value", "`1`, `0` -> boolean", "no number is legal", proposals.zero_one, (int,),
        _BOOLEAN, tier=2),
    Rule("enum_fold", "lenient", "value", '`"streamableHttp"` -> `"STREAMABLE_HTTP"`',
        "as enum_case, for the same words of two letters or more, however they are joined", members.enum_fold,
        (str,), LISTED, tier=2),
    Rule("enum_point", "lenient", "value", '`"Red."` -> `"red"`', "as enum_case, for one word and a full stop",
        members.enum_point, (str,), LISTED, tier=2),
    Rule("grouped_number", "lenient", "value", '`"1,000,000"` -> `1000000`',
        "two groups of three digits or more behind commas", proposals.grouped_number, (str,), _NUMERIC, tier=2),
    Rule("python_literal", "lenient", "value", "`\"{'a': 'b'}\"` -> object", "one Python dict of JSON values",
        proposals.python_literal, (str,), frozenset({"object"}), tier=2, nests=True, reads=True),
    Rule("split_commas", "lenient", "value", '`"a,b"` -> `["a","b"]`',
        "string items; three plain words or more (two where they are ids), or all in quotes, which are stripped; "
        "nothing like thousands; never places, names, files or pairs", lists.split_commas, (str,), _ARRAY, tier=2,
        member=True),
    Rule("join_chunks", "lenient", "value", '`["a\\n","b"]` -> `"a\\nb"`',
        "strings; all but the last end in a line break; no item of a list", lists.join_chunks, (list,), _STRING,
        tier=2),
    Rule("first_of_one", "lenient", "value", '`["a"]` -> `"a"`', "no array is legal", lists.first_of_one, (list,),
        tier=2, nests=True, inside=_SPELLINGS),
    Rule("list_level", "lenient", "value", '`[["a","b"]]` -> `["a","b"]`', "one list alone, a level too many",
        lists.list_level, (list,), _ARRAY, tier=2, nests=True),
    Rule("item_wrapped", "lenient", "value", '`{"item": {...}}` -> `[{...}]`',
        "the lone key `item`, undeclared by the items, where a list is asked", lists.item_wrapped, (dict,), _ARRAY,
        tier=2, nests=True),
    Rule("self_wrapped", "lenient", "value", '`{"tags": {"tags": ["x"]}}` -> `{"tags": ["x"]}`',
        "the object, or JSON text of one, has the property's name as its lone key; a list is asked and sent, and the "
        "items declare no such key", lists.self_wrapped, (dict, str), _ARRAY, tier=2, nests=True, json=_OBJECT),
    Rule("value_wrapped", "lenient", "value", '`{"value": "high"}` -> `"high"`',
        "exactly this key; a number, a boolean or a listed value is asked", lists.value_wrapped, (dict,), tier=2,
        inside=_SPELLINGS),
    Rule("typed_value", "lenient", "value", '`{"type": "string", "value": "x"}` -> `"x"`',
        "exactly these keys, the value has that JSON Schema type; no object is legal", lists.typed_value, (dict,),
        tier=2, nests=True),
    Rule("key_word", "lenient", "key", "`company_name` -> `name`",
        "the one unknown and the one missing required key end in the same word, as no other declared key does; what "
        "one has more is what the tool's name works on, or the target's description begins with it; never by `min`, "
        "`max`, `start`, `end`, `not` and their kin"),
    Rule("key_markup", "lenient", "key", '`parameter name=\\"ops\\"` -> `ops`',
        "as key_case, for markup of the call around it"),
    Rule("unwrap_any", "lenient", "key", '`{"_": {...}}` -> the inner object',
        "as unwrap_arguments, for a blank, `type`, `properties`, `data`, `options`, or the name of an argument that it "
        "holds; also beside keys of `drop_keys`"),
    Rule("unwrap_scalar", "lenient", "key", '`{"arguments": "x"}` -> `{"query": "x"}`',
        "as unwrap_arguments, for a value that is not an object; the tool declares one key alone"),
    Rule("schema_shaped", "lenient", "value", '`{"description": "x", "type": "str"}` -> `"x"`',
        "exactly these keys, the type `str`; no object is legal; not the schema's own description",
        lists.schema_shaped, (dict,), tier=3, nests=True, last=True),
    Rule("object_to_json_string", "lenient", "value", "`{...}` -> its JSON text",
        "a string is asked, no object; the schema says JSON (`contentMediaType`, `format`, description) or it is named "
        "`arguments`", lists.object_to_json_string, (dict,), _STRING, tier=4, last=True),
    Rule("drop_unknown", "lenient", "key", "client plumbing keys are removed",
        "refused, and in `drop_keys` (at `lenient`: `toolCallId`, `sessionId`, `chatInput`), or `tool` or `action` "
        "with the tool's own name"),
    Rule("fill_default", "lenient", "key", "a missing optional key -> its `default`",
        "only where the object is refused without it"),
    Rule("fill_required", "listed", "key", "missing required keys -> their `default`",
        "the object is accepted with them, holds no undeclared key, and none of them elsewhere; never inside a union's "
        "branch; not on tools that change or remove something, by name or by `destructiveHint`"),
    Rule("windows_paths", "lenient", "text", r"`\` of a Windows path is doubled",
        "starts like a path " r"(`C:\`, `\\server`), holds an escape that JSON does not know"),
    Rule("call_markup", "standard", "text", "`<tool_call>{...}</tool_call>`, `<|python_tag|>{...}` -> the object",
        "tags and template tokens of a call around the whole; no word beside them"),
    Rule("trailing_text", "lenient", "text", '`{"a":1}}`, `{"a":1}</tool_call>` -> the object',
        "fences, markup of a call and at most one closing bracket behind the complete object; never words"),
    Rule("bare_keys", "lenient", "text", '`{city: "Rome"}` -> `{"city": "Rome"}`',
        "names without quotes, as JavaScript writes them"),
    Rule("needless_escapes", "lenient", "text", r"`\'` -> `'`, `\$5` -> `$5`", r"`\$` before a digit alone"),
    Rule("escaped_text", "lenient", "text", r'`{\"a\":1}`, `{&quot;a&quot;:1}` -> `{"a":1}`',
        "every quote of the text is escaped the same way; the result parses strictly"),
    Rule("trailing_commas", "lenient", "text", "`[1,2,]` -> `[1,2]`", "braces balance"),
    Rule("curly_quotes", "lenient", "text", "`“a”` -> `\"a\"`", "typographic quotes around a whole string"),
    Rule("tool_name_fold", "lenient", "name", '`"getWeather"`, `"get-weather"` -> `get_weather`',
        "unknown, and equal to exactly one known name without case, `-`, `_`, `.`, spaces"),
    Rule("comments", "named", "text", "`//` and `/* */` comments are left out",
        "braces balance; what they say is lost"),
    Rule("single_quotes", "lenient", "text", "`{'a': 'b'}` -> `{\"a\": \"b\"}`", "braces balance"),
    Rule("python_literals", "lenient", "text", "`True`, `False`, `None`, `+3` -> true, false, null, 3",
        "braces balance"),
    Rule("unescaped_quotes", "lenient", "text", "quotes inside a string are escaped", "one reading only"),
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _TABLE}

# Value rules that give a value another JSON type: GoMind's coercions.
COERCIONS: Final = frozenset(rule.name for rule in _TABLE if rule.kind == "value") - {
    "year_first_date", "enum_case", "enum_fold", "enum_point",
}  # fmt: skip

# Recorded among the repairs of a call although it is not a rule: a hook of the operator changed the arguments.
HOOK: Final = "hook"
# The repairs of a checked call list a model's changes under these names, by who was asked, so that adapters send them.
CORRECTIONS: Final = frozenset({"validation_feedback", "semantic_retry"})

# Value rules that are tried only where nothing else gives the call a meaning (docs/repair.md): unwrap, then these.
LAST_RESORTS: Final = frozenset(rule.name for rule in _TABLE if rule.last)


@lru_cache(maxsize=256)
def leave_out_last_resorts(rules: frozenset[str]) -> frozenset[str]:
    """The rules without those; the same object each time, which is quicker to look up by."""
    return rules - LAST_RESORTS


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
    return frozenset(on)


def list_unknown_switches(written: JsonValue) -> tuple[str, ...]:
    """The entries of an `x-repair` (`on`, `off`, true, false, or a list of rules that stay on) that are not known
    rules."""
    if isinstance(written, bool) or written in ("on", "off"):
        return ()
    if not isinstance(written, list):
        return (str(written),)
    return tuple(str(name) for name in written if not isinstance(name, str) or name not in RULES)


@lru_cache(maxsize=256)
def group_value_rules(names: frozenset[str]) -> tuple[tuple[Rule, ...], ...]:
    """The value rules among `names`, grouped by tier, best tier first."""
    chosen = [rule for rule in _TABLE if rule.propose is not None and rule.name in names]
    tiers = sorted({rule.tier for rule in chosen})
    return tuple(tuple(rule for rule in chosen if rule.tier == tier) for tier in tiers)
