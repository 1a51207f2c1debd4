"""The statements of a schema about one place, computed once for each node: the facts that the repair rules use.

A place is judged by every schema that applies to it: the node itself, its references, its `allOf`, and one branch of
each union. `read_facts` combines these without looking at a value. `list_applicable_rules` gives the value rules that
may apply there: at most places none does, so most refused values are skipped early.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Set
from dataclasses import replace
from typing import Any, Final

from proxy.core.check.validation import Check
from proxy.core.json.jsontext import name_json_type
from proxy.core.model.value_class import share, value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.model.work import TooMuchWorkError, Work
from proxy.core.rules.lists import PINNING_FORMATS
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import ANY_TYPE, LISTED, TEXT_RULES, Read, Rule, list_unknown_switches, select_value_rules
from proxy.core.rules.vocabulary import WRAPPER_KEYS
from proxy.core.schema.matching import SearchGivenUp, make_matcher
from proxy.core.schema.nodes import Node, Schemas


@value_class
class Facts:
    """`site` is what the rules see; `allowed` are the rules that `x-repair` leaves on here and below (None: all).
    `null` is what `x-null` says about a null that may mean "not sent": `drop`, `refuse` or nothing."""

    site: Site
    allowed: frozenset[str] | None
    null: str = ""


# States that a text holds JSON, in its media type or format.
_JSON: Final = re.compile(r"(?:^|[/+-])json\b", re.IGNORECASE)
# A pattern that fixes the length of a text: single characters and classes, each at most with an exact count.
_FIXED_LENGTH: Final = re.compile(
    r"\^(?:(?:\[(?:[^\]\\]|\\.)+\]|\\[dwsDWS]|[^\\^$.|?*+()\[\]{}])(?:\{[0-9]+\})?)+\$", re.DOTALL
)
_ANYTHING: Final = Facts(Site(ANY_TYPE, True, None), None)
_SWITCHES: Final = frozenset({"x-repair", "x-null"})
_NULL_SWITCHES: Final = ("drop", "refuse")
# The most nested unions that are examined; the rules skip what is nested deeper, and only the judge sees it.
_MAX_NEST: Final = 64


def read_facts(node: Node) -> Facts:
    """The facts of a node; the same object each time."""
    memo: dict[int, Facts] = node.schemas.memos.setdefault("facts", {})
    return memo.get(id(node)) or _read_once(node, frozenset(), memo)


def list_mistaken_switches(schemas: Schemas) -> Iterator[tuple[Node, str, tuple[str, ...]]]:
    """Every schema whose `x-repair` names an unknown rule, or whose `x-null` is neither `drop` nor `refuse`, with the
    keyword and those names: such a switch does nothing."""
    for node in schemas.nodes() if not _SWITCHES.isdisjoint(schemas.mentioned) else ():
        if node.has("x-repair") and (names := list_unknown_switches(node.get("x-repair"))):
            yield node, "x-repair", names
        if node.has("x-null") and node.get("x-null") not in _NULL_SWITCHES:
            yield node, "x-null", (str(node.get("x-null")),)


def list_applying(
    node: Node, value: JsonValue, accepts: Callable[[Node, JsonValue], bool], work: Work
) -> tuple[Node, ...]:
    """Every node that judges this very value, by `if` and dependent schemas too. Raises TooMuchWorkError."""
    if not node.is_conditional:
        work.spend(len(node.always))
        return node.always
    found: dict[int, Node] = {}
    stack = [node]
    while stack:
        for current in stack.pop().always:
            if id(current) in found:
                continue
            work.spend(1)
            found[id(current)] = current
            if current.condition is not None:
                test, then, other = current.condition
                side = then if accepts(test, value) else other
                stack += [side] if side is not None else []
            if isinstance(value, dict):
                stack.extend(schema for key, schema in current.dependent.items() if key in value)
    return tuple(found.values())


def _read_once(node: Node, above: frozenset[int], memo: dict[int, Facts]) -> Facts:
    """Computes each node once, so that unions of unions cost no more than their number. `above` are the nodes whose
    computation is under way; a place that is defined by itself adds nothing."""
    if id(node) in above or len(above) > _MAX_NEST:
        return _ANYTHING
    if (known := memo.get(id(node))) is not None:
        return known
    parts = [part for part in node.always if part is node or id(part) not in above]
    types, free_text, choices, allowed = ANY_TYPE, True, None, None
    for part in parts:
        for site in _list_sites(part, above | {id(node)}, memo):
            types, free_text = types & site.types, free_text and site.free_text
            choices = site.choices if choices is None else choices
        switch = part.get("x-repair")
        if switch is not None and switch is not True and switch != "on":
            left = frozenset(map(str, switch)) if isinstance(switch, list) else frozenset[str]()
            allowed = left if allowed is None else allowed & left
    name = str(node.path[-1]) if node.path[-2:-1] == ("properties",) else ""
    words = [part.get(keyword) for part in parts for keyword in ("contentMediaType", "format")]
    site = Site(
        types,
        free_text and "string" in types,
        choices,
        name,
        any(isinstance(word, str) and _JSON.search(word) for word in words) or name in WRAPPER_KEYS,
        formats=share(frozenset(text for part in parts if isinstance(text := part.get("format"), str))),
        is_fixed_length=any(map(_fixes_length, parts)),
    )
    null = next((text for part in parts if (text := part.get("x-null")) in _NULL_SWITCHES), "")
    return memo.setdefault(id(node), Facts(site, allowed, null))


def _fixes_length(part: Node) -> bool:
    if (least := part.get("minLength")) is not None and least == part.get("maxLength"):
        return True
    pattern = part.get("pattern")
    return isinstance(pattern, str) and _FIXED_LENGTH.fullmatch(pattern) is not None


def _list_sites(part: Node, above: frozenset[int], memo: dict[int, Facts]) -> Iterator[Site]:
    if part.never:
        yield Site(frozenset(), False, None)
    if part.types is not None:
        yield Site(_widen(part.types), "string" in part.types, None)
    if part.choices is not None:
        yield Site(_widen(map(name_json_type, part.choices)), False, part.choices)
    for branches in filter(None, (part.any_of, part.one_of)):
        sites = [_read_once(branch, above, memo).site for branch in branches]
        types = frozenset[str]().union(*(site.types for site in sites))
        listed = tuple(choice for site in sites for choice in site.choices or ())
        yield Site(types, any(site.free_text for site in sites), listed or None)


def _widen(types: Iterable[str]) -> frozenset[str]:
    named = frozenset(types)
    return named | {"integer"} if "number" in named else named  # JSON Schema's `number` takes integers too


# --- the members of a place -------------------------------------------------------------------------------------------
def list_member_schemas(nodes: Iterable[Node], step: str | int, work: Work) -> list[Node]:
    """The schemas of one member, each once: by name, by pattern, else `additionalProperties`; by position for arrays;
    `unevaluatedProperties` for a key that no schema, and no union, might name. Raises TooMuchWorkError."""
    nodes = nodes if type(nodes) is tuple else tuple(nodes)
    work.left -= 1 + len(nodes)  # counted in place: most refused members come by here
    if work.left < 0:
        raise TooMuchWorkError
    if len(nodes) == 1:
        node = nodes[0]
        if isinstance(step, str) and step in node.properties and not node.pattern_properties:
            return [node.properties[step]]
        if named := _list_named(node, step, work):
            return named
    found = {id(schema): schema for node in nodes for schema in _list_named(node, step, work)}
    if not found and isinstance(step, str) and not any(node.any_of or node.one_of for node in nodes):
        rest = [node.unevaluated for node in nodes if node.unevaluated is not None and not node.unevaluated.never]
        found = {id(schema): schema for schema in rest}
    return list(found.values())


def list_schemas_by_key(nodes: tuple[Node, ...], keys: KeysView[str], work: Work) -> list[tuple[str, list[Node]]]:
    """The same for several members of an object, each with its key."""
    if len(nodes) == 1 and not nodes[0].pattern_properties and nodes[0].properties.keys() >= keys:
        work.spend(2 * len(keys))
        declared = nodes[0].properties
        return [(key, [declared[key]]) for key in keys]
    return [(key, list_member_schemas(nodes, key, work)) for key in keys]


def _list_named(node: Node, step: str | int, work: Work) -> list[Node]:
    if isinstance(step, int):
        member = node.item(step)
        return [] if member is None else [member]
    named = [node.properties[step]] if step in node.properties else []
    if node.pattern_properties:
        named += [schema for pattern, schema in node.pattern_properties.items() if is_match(pattern, step, work)]
    if not named and node.additional is not None and not node.additional.never:
        return [node.additional]
    return named


def is_match(pattern: str, key: str, work: Work) -> bool:
    """Returns whether an ECMA-262 pattern is found in a key. Raises TooMuchWorkError, also if the pattern runs into its
    own limit: a value without a verdict is not repaired."""
    work.spend(4 + len(key) // 100)
    try:
        return make_matcher(pattern).search(key)
    except SearchGivenUp:
        raise TooMuchWorkError from None


def list_declared(nodes: Iterable[Node]) -> Set[str]:
    """The keys that schemas declare by name."""
    if type(nodes) is tuple and len(nodes) == 1:
        return nodes[0].properties.keys()
    return {key for node in nodes for key in node.properties}


def list_required(nodes: Iterable[Node]) -> set[str]:
    """The keys that schemas require."""
    if type(nodes) is tuple and len(nodes) == 1:
        return set(nodes[0].required)
    return {key for node in nodes for key in node.required}


# --- the places of a schema -------------------------------------------------------------------------------------------
def walk_schema(check: Check, path: Pointer) -> Iterator[list[Node]]:
    """Yields for each value on the way along a path of at most 16 steps, and at its end, the schemas that always judge
    it. Also yields those of the branches of unions, because these may declare a key too."""
    nodes, work, steps = [check.root], Work(2000), iter(path[:16])
    while True:
        parts: dict[int, Node] = {}
        while nodes:
            for part in nodes.pop().always:
                if id(part) not in parts:
                    parts[id(part)] = part
                    nodes += [*part.any_of, *part.one_of]
        yield list(parts.values())
        if (step := next(steps, None)) is None:
            return
        try:
            nodes = list_member_schemas(list(parts.values()), step, work)
        except TooMuchWorkError:
            nodes = []


def nodes_at(check: Check, path: Pointer) -> list[Node]:
    """The schemas that may judge the value at a path; a `*` is any item of a list."""
    return [*walk_schema(check, tuple(0 if step == "*" else step for step in path))][-1]


# --- the rules of a place ---------------------------------------------------------------------------------------------

# The names of the rules that are on at a place, the facts that they see, and those that apply, with their functions.
ApplicableRules = tuple[frozenset[str], Site, tuple[tuple[Rule, Read], ...]]


def may_change(rule: Rule, kind: type, site: Site) -> bool:
    """Returns whether a rule can propose anything for a value of this Python type at this place. If this is False, the
    rule's function reads nothing (tests/core/test_rules.py compares the two)."""
    if not issubclass(kind, rule.takes) or (rule.at is not None and not rule.at(site)):
        return False
    listed = rule.gives is LISTED and site.choices is not None
    return listed or rule.gives is ANY_TYPE or not rule.gives.isdisjoint(site.types)


def list_applicable_rules(node: Node, kind: type, rules: frozenset[str], is_member: bool) -> ApplicableRules | None:
    """The rules to try on a refused value of this Python type at a node, a member of an object or another one; None
    where `x-repair` leaves none on. Computed once."""
    memo: dict[Any, ApplicableRules | None] = node.schemas.memos.setdefault("applicable rules", {})
    key = (id(node), kind, rules, is_member)
    if key not in memo:
        allowed = read_facts(node).allowed
        rules = rules if allowed is None else rules & allowed
        site = _with_items(node)
        if classes := rules & TEXT_RULES:
            site = replace(site, classes=classes)
        found = tuple(
            (rule, rule.read)
            for rule in select_value_rules(rules)
            if rule.read is not None and (is_member or not rule.member) and may_change(rule, kind, site)
        )
        memo[key] = (rules, site, found) if rules else None
    return memo[key]


def _with_items(node: Node) -> Site:
    """The facts about a place that the rules see, including what the items of an array declare there."""
    site = read_facts(node).site
    if "array" not in site.types:
        return site
    items = [part.items for part in node.always if part.items is not None]
    parts = [part for item in items for part in item.always]
    inside = [one for part in parts for branch in (*part.any_of, *part.one_of) for one in branch.always]
    keys = frozenset(list_declared([*parts, *inside]))
    choices = [found for item in items if (found := read_facts(item).site.choices) is not None]
    formats = frozenset(text for part in parts if isinstance(text := part.get("format"), str))
    return replace(
        site,
        item_keys=keys,
        item_choices=choices[0] if len(choices) == 1 else (),
        item_formats=formats if formats and formats <= PINNING_FORMATS else frozenset(),
    )
