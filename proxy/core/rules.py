"""The repair rules as a table: what each may change, exactly when, and at which level it is on (repair.md section 3).

A rule proposes, it never decides: the engine (`repair.py`) keeps a proposal only where the schema accepts it and no
other rule of the same tier proposes a different one. So a rule here is a small pure function from a refused value
and its `Site` (what the schema allows there) to another value, or to `NONE`.

`RULES` is the one list: config switches, levels, metric labels and the table in docs/repair.md come from it. Rules
of kind `text` are applied by `textrepair.py`, those of kind `key` by the engine itself (they change an object's
keys), `name` by the dispatcher of tool names; they stand here so that the list is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from proxy.core.model import JsonValue
from proxy.core.proposals import (
    Site,
    enum_case,
    enum_fold,
    first_of_one,
    integral_float,
    join_chunks,
    null_text,
    number_to_string,
    object_to_json_string,
    parse_json_string,
    python_literal,
    schema_shaped,
    split_commas,
    string_to_boolean,
    string_to_integer,
    string_to_number,
    wrap_single,
    yes_no,
    zero_one,
)

LEVELS: Final = ("off", "basic", "standard", "lenient")

Level = Literal["basic", "standard", "lenient"]
Kind = Literal["value", "key", "text", "name"]

# Keys that agent clients add on their own account; `drop_unknown` may remove them at level lenient.
PLUMBING_KEYS: Final = frozenset({"toolCallId", "tool", "sessionId", "chatInput", "action"})

Propose = Callable[[JsonValue, Site], JsonValue]


@dataclass(frozen=True, slots=True)
class Rule:
    """One repair rule. `tier`: a lower tier is tried first, and only what it leaves unrepaired goes on to the next."""

    name: str
    level: Level
    kind: Kind
    change: str
    condition: str
    propose: Propose | None = None
    tier: int = 1


# --- the table ------------------------------------------------------------------------------------------------------
_TABLE: Final = (
    Rule("string_to_integer", "basic", "value", '`"42"`, `" 42 "`, `"+42"`, `"042"`, `"42.0"`, `"1e3"` -> `42` ...',
         "JSON-number grammar after trimming ASCII space, optional `+` and leading zeros; the value is integral; "
         "exact at any size", string_to_integer),
    Rule("string_to_number", "basic", "value", '`"35.6"` -> `35.6`', "same grammar; finite; keeps its digits",
         string_to_number),
    Rule("string_to_boolean", "basic", "value", '`"true"`, `"False"`, `"1"`, `"0"`, `"t"`, `"F"` ... -> boolean',
         "exactly the twelve spellings `1 t T TRUE true True 0 f F FALSE false False`", string_to_boolean),
    Rule("integral_float", "standard", "value", "`3.0` -> `3` for an integer",
         "exact; also where the draft calls 3.0 a valid integer, since Go and Rust services refuse it; then never "
         "inside a union", integral_float),
    Rule("number_to_string", "standard", "value", '`123` -> `"123"`',
         "the number's own text; booleans, objects and arrays never become strings", number_to_string),
    Rule("parse_json_string", "standard", "value", '`"[1,2]"`, `"{...}"` -> array, object',
         "strict parse; its type is asked for and free text is not legal; repairs inside; at most 3 levels of one "
         "value; also the whole arguments as a JSON string", parse_json_string),
    Rule("null_text", "standard", "value", '`"null"`, `"None"`, `""` -> null',
         "only where null is legal and that string is not", null_text),
    Rule("enum_case", "standard", "value", '`"Celsius"` -> `"celsius"`',
         "exactly one enum member is equal after trimming and case-folding", enum_case),
    Rule("wrap_single", "standard", "value", '`"a"` -> `["a"]`',
         "the value validates as an item; text with a bracket, brace, comma, semicolon or line break never",
         wrap_single),
    Rule("drop_null_optional", "standard", "key", "null at an optional key that refuses it -> key removed",
         "never for a required key"),
    Rule("empty_optional", "standard", "key", '`""` at an optional key that refuses it -> key removed',
         "never for a required key; after null_text"),
    Rule("key_case", "standard", "key", "`startDate` -> `start_date`",
         "the key is unknown and refused, or its target is required; its fold (case, `-`, `_`, space) equals exactly "
         "one declared key, and that key is absent; at every depth"),
    Rule("empty_arguments", "standard", "key", "no body or `null` -> `{}`", "nothing is required"),
    Rule("tool_name_trim", "standard", "name", '`"functions.get_weather"`, `"get_weather<|x|>"` -> `get_weather`',
         "template tokens, or one of the prefixes `functions.`, `tools.`, `default_api.`, `mcp__<server>__`, around "
         "exactly one known name; a container's name is no prefix"),
    Rule("code_fence", "standard", "text", "a Markdown fence around the whole JSON text is taken off",
         "strict parsing failed; what is inside parses strictly"),
    Rule("control_characters", "standard", "text", "raw control characters inside strings are escaped",
         "strict parsing failed; nothing else is wrong"),
    Rule("repeated_body", "standard", "text", "the same JSON text twice in a row -> once",
         "strict parsing failed; both halves are equal"),
    Rule("yes_no", "lenient", "value", '`"yes"`, `"no"`, `"on"`, `"off"` -> boolean', "any case", yes_no, 2),
    Rule("zero_one", "lenient", "value", "`1`, `0` -> boolean", "the numbers, where no number is legal", zero_one, 2),
    Rule("enum_fold", "lenient", "value", '`"streamableHttp"` -> `"STREAMABLE_HTTP"`',
         "exactly one enum member is equal without case, `-`, `_` and spaces", enum_fold, 2),
    Rule("python_literal", "lenient", "value", "`\"['a', 'b']\"` -> array, object",
         "the whole text is one Python list or dict of JSON values", python_literal, 2),
    Rule("split_commas", "lenient", "value", '`"a,b"` -> `["a","b"]`',
         "string items; no brackets; matching quotes are stripped", split_commas, 2),
    Rule("join_chunks", "lenient", "value", '`["a","b"]` -> `"ab"`', "all items are strings; by its name and "
         "description the place holds one text", join_chunks, 2),
    Rule("first_of_one", "lenient", "value", '`["a"]` -> `"a"`', "no array is legal there", first_of_one, 2),
    Rule("unwrap_arguments", "lenient", "key", '`{"arguments": {...}}`, `{"_": {...}}` -> the inner object',
         "a lone undeclared key, or a declared key whose object validates as the whole while its only siblings are "
         "in the drop list; the inner object validates and holds a declared key"),
    Rule("schema_shaped", "lenient", "value", '`{"description": "x", "type": "str"}` -> `"x"`',
         "exactly these two keys, where no object is legal", schema_shaped, 3),
    Rule("object_to_json_string", "lenient", "value", "`{...}` -> its JSON text", "a string is asked, no object",
         object_to_json_string, 4),
    Rule("drop_unknown", "lenient", "key", "client plumbing keys are removed",
         "the key is refused and its name is in the list (`drop_keys`; at lenient: toolCallId, tool, sessionId, "
         "chatInput, action)"),
    Rule("fill_default", "lenient", "key", "a missing optional key -> its `default`",
         "only where the object is refused without it; never a required key"),
    Rule("windows_paths", "lenient", "text", r"`\` of a Windows path is doubled", "the string starts like a path "
         r"(`C:\`, `\\server`) and holds an escape JSON does not know"),
    Rule("trailing_text", "lenient", "text", "text after the complete object is cut", "the object is whole; no "
         "second JSON value follows"),
    Rule("trailing_commas", "lenient", "text", "`[1,2,]` -> `[1,2]`", "braces balance"),
    Rule("tool_name_fold", "lenient", "name", '`"getWeather"`, `"get-weather"` -> `get_weather`',
         "the name is unknown, and equals exactly one known name after case-folding and without `-`, `_`, `.` and "
         "spaces"),
    Rule("comments", "lenient", "text", "`//` and `/* */` comments are left out", "braces balance"),
    Rule("single_quotes", "lenient", "text", "`{'a': 'b'}` -> `{\"a\": \"b\"}`", "braces balance"),
    Rule("python_literals", "lenient", "text", "`True`, `False`, `None` -> true, false, null", "braces balance"),
    Rule("unescaped_quotes", "lenient", "text", "quotes inside a string are escaped", "one reading only"),
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _TABLE}

# Stands among the repairs of a call, though it is no rule: a hook of the operator changed the arguments.
HOOK: Final = "hook"

# Text classes in the order in which they are tried.
TEXT_RULES: Final = tuple(rule.name for rule in _TABLE if rule.kind == "text")


def rules_for(level: str, switches: Mapping[str, bool] | None = None) -> frozenset[str]:
    """The names of the rules that are on at a level, after single rules are switched on or off.

    Raises KeyError for an unknown level or rule name.
    """
    if level not in LEVELS:
        raise KeyError(level)
    reach = LEVELS[1 : LEVELS.index(level) + 1]
    on = {rule.name for rule in _TABLE if rule.level in reach}
    for name, wanted in (switches or {}).items():
        if name not in RULES:
            raise KeyError(name)
        (on.add if wanted else on.discard)(name)
    return frozenset(on)


def unknown_switches(written: JsonValue) -> tuple[str, ...]:
    """What an `x-repair` beside a schema says that no rule answers to; () where it is right.

    It takes `on`, `off`, true, false, or the list of the rules that stay on at this place and below.
    """
    if isinstance(written, bool) or written in ("on", "off"):
        return ()
    if not isinstance(written, list):
        return (str(written),)
    return tuple(str(name) for name in written if not isinstance(name, str) or name not in RULES)


def value_rules(names: Iterable[str]) -> tuple[tuple[Rule, ...], ...]:
    """The value rules among `names`, grouped by tier, best tier first."""
    wanted = frozenset(names)
    chosen = [rule for rule in _TABLE if rule.propose is not None and rule.name in wanted]
    tiers = sorted({rule.tier for rule in chosen})
    return tuple(tuple(rule for rule in chosen if rule.tier == tier) for tier in tiers)
