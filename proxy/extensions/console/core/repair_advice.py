"""The advice about a place that is often repaired: one sentence for each kind of repair rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.core.contract.policy import RepairPolicy
from proxy.core.display.graphemes import cut, escape
from proxy.core.explain.expectation import list_choices
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Pointer
from proxy.core.rules.facts import nodes_at, read_facts
from proxy.core.rules.rules import LISTED, RULES
from proxy.plugin import Check

# --- the counted mistakes of models with one tool ---------------------------------------------------------------------
# The counted mistakes of models with one tool: places in the schema, codes, rules and names, and no values unless the
# operator may see them (`tried`).
#
# Counts go by places in the schema.

# Renames of one object's keys, sorted: (name that came, name in the schema).
Renames = tuple[tuple[str, str], ...]
# The code of keys that models invented, where mistakes are counted by place and code.
INVENTED: Final = "invented"


@dataclass(slots=True)
class CountedMistake:
    """One kind of mistake at one place: broken keywords of one code, or repairs by one rule (`code` is its name).

    `calls` had it, `alone` of them no other mistake. `right` of the `retried` calls were right at the next try. `last`
    in seconds since the epoch. `got` are the types of sent values; `shapes` and `tried` are those of texts. `names` are
    the names under which a key came that a repair renamed.
    """

    place: Pointer
    code: str
    repaired: bool = False
    calls: int = 0
    alone: int = 0
    retried: int = 0
    right: int = 0
    last: float = 0.0
    expected: str = ""
    keyword: str = ""
    got: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class InventedKey:
    """A key that models send and the schema does not declare: `parent` is the place of its object.

    `refused`: the number of calls that were refused only for this key. `beside` counts the missing required keys that
    may have been intended. `instead` counts, by renames of keys that were tried together, how many calls would be right
    with these keys under the names of the schema.
    """

    parent: Pointer
    name: str
    calls: int = 0
    refused: int = 0
    last: float = 0.0
    beside: Counter[str] = field(default_factory=Counter)
    instead: Counter[Renames] = field(default_factory=Counter)


@value_class
class ToolMistakes:
    """All counts of one tool. `calls` are all its calls, `would_refuse` those that a report-only route would have
    refused. `watched` is the number of seconds since counting began, `since_refusal` the number of seconds without a
    call that would have been refused. `mode`: enforce or report. `repair` is the policy of the config. `values`: the
    operator may see values."""

    calls: int
    mistakes: tuple[CountedMistake, ...] = ()
    invented: tuple[InventedKey, ...] = ()
    mode: str = "enforce"
    would_refuse: int = 0
    since_refusal: float = 0.0
    repair: RepairPolicy | None = None
    values: bool = False


# --- the advice about a place that is often repaired ------------------------------------------------------------------
# Rule -> what the place takes, in the words that a description needs.
_TAKES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("string_to_integer", "integral_float"), "a whole number, without quotes or a decimal point"),
    **dict.fromkeys(("string_to_number", "leading_point", "grouped_number"), "a number, without quotes or separators"),
    **dict.fromkeys(("string_to_boolean", "yes_no", "zero_one", "boolean_letter"), "true or false, without quotes"),
    **dict.fromkeys(("number_pinned", "number_to_string"), "text in quotes, also if it looks like a number"),
    **dict.fromkeys(("parse_json_string", "python_literal"), "a JSON list or object, not the text of one"),
    **dict.fromkeys(
        ("json_item", "wrap_object", "wrap_pinned", "wrap_scalar", "wrap_text", "item_wrapped", "self_wrapped"),
        "a list, also for a single item",
    ),
    **dict.fromkeys(
        ("split_members", "split_pinned", "split_commas"), "a list with one entry for each item, not a text"
    ),
    **dict.fromkeys(("first_of_one", "value_wrapped"), "the value itself, without a list or an object around it"),
    "join_chunks": "one text, not a list of lines",
    "object_to_json_string": "the JSON text of an object, not the object",
    "year_first_date": "a date such as 2026-01-15",
}
_VALUES: Final = frozenset({"enum_case", "enum_fold", "enum_point", "boolean_word", "quoted_text"})
_NULLS: Final = frozenset({"drop_null_optional", "null_text"})
_FILLED: Final = frozenset({"fill_default", "fill_required"})
# Rules about the arguments as a whole: the schema has no part in what they repair.
_AROUND: Final = frozenset({"call_envelope", "nest_arguments", "unwrap_arguments", "empty_arguments"})


def advise(check: Check, mistake: CountedMistake) -> str:
    """Returns the advice about a place that a rule often repairs."""
    rule = RULES.get(mistake.code)
    if mistake.code in _TAKES:
        return f"Say in the description that it takes {_TAKES[mistake.code]}."
    if mistake.code in _VALUES or (rule is not None and rule.gives == LISTED):
        listed = _list_values(check, mistake.place)
        return f"Repeat the values in the description exactly as the schema writes them{listed}."
    if mistake.code in _NULLS:
        return "Say in the description to leave it out if there is no value."
    if mistake.code in _FILLED:
        return "Models leave it out. Make it optional, or say in the description that it is required."
    if mistake.code in _AROUND or rule is None or rule.kind in ("text", "name", "output"):
        return "The schema is not the cause: look at the prompt template, or at the client that sends the call."
    if rule.kind == "key":
        names = ", ".join(f"`{cut(escape(name), 64)}`" for name, _ in mistake.names.most_common(3))
        models = f"Models write {names}. " if names else ""
        return f"{models}Name the parameter in the description as the schema writes it."
    return "Give an example in the description."


def _list_values(check: Check, place: Pointer) -> str:
    """`: one of 'a', 'b'`, the values that the only node of a place lists."""
    choices = [choices for part in nodes_at(check, place) if (choices := read_facts(part).site.choices)]
    return f": {list_choices(choices[0])}" if len(choices) == 1 else ""
