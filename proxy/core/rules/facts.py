"""What a schema allows at one place, computed once for each node: the facts that the repair rules use.

A place is judged by every schema that applies to it: the node itself, its references, its `allOf`, and one branch of
each union. `facts(node)` combines these without looking at a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES, name_json_type
from proxy.core.model.values import JsonValue
from proxy.core.rules.names import narrows_something, split_words
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import list_unknown_switches
from proxy.core.schema.nodes import Node, Schemas

_ALL: Final = frozenset(JSON_TYPES)


@dataclass(frozen=True, slots=True)
class Facts:
    """`site` is what the rules see; `allowed` are the rules that `x-repair` leaves on here and below (None: all).
    `null` is what `x-null` says about a null that may mean "not sent": `drop`, `refuse` or nothing."""

    site: Site
    allowed: frozenset[str] | None
    null: str = ""

    def can_leave_out(self, rule: str, rules: frozenset[str]) -> bool:
        """Whether a rule may treat the property's value as not sent, where `rules` are on. A property that narrows a
        call down is left out where the value is null and `x-null` says so, but not for an empty text or a word."""
        if self.null:
            return self.null == "drop" and bool(rules)
        narrows = rule != "drop_null_optional" and narrows_something(self.site.name)
        return rule in rules and not narrows


# Recognises a text that holds JSON by its media type, format, description or name.
_JSON_TYPE: Final = re.compile(r"[/+]json\b", re.IGNORECASE)
_JSON_WORD: Final = re.compile(r"\bjson\b", re.IGNORECASE)
_JSON_NAMES: Final = frozenset({"arguments", "args", "kwargs"})

_ANYTHING: Final = Facts(Site(_ALL, True, None), None)
_NULL_SWITCHES: Final = ("drop", "refuse")


def read_facts(node: Node) -> Facts:
    """The facts of a node; the same object each time."""
    memo: dict[int, Facts] = node.schemas.memos.setdefault("facts", {})
    return memo.get(id(node)) or _read_once(node, frozenset(), memo)


def list_mistaken_switches(schemas: Schemas) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Every schema whose `x-repair` names an unknown rule, with those names, for a report when a schema is loaded.

    A switch with an unknown name does nothing, so a typing error would silently leave a rule on (or off).
    """
    for node in schemas.nodes():
        if node.has("x-repair") and (names := list_unknown_switches(node.get("x-repair"))):
            yield node, names


def list_mistaken_null_switches(schemas: Schemas) -> Iterator[tuple[Node, str]]:
    """Every schema whose `x-null` is neither `drop` nor `refuse`, with what it says."""
    for node in schemas.nodes():
        if node.has("x-null") and node.get("x-null") not in _NULL_SWITCHES:
            yield node, str(node.get("x-null"))


def applies_always(node: Node) -> tuple[Node, ...]:
    """The node and every node that always judges the same value: references and `allOf`, each once; the same object
    each time."""
    memo: dict[int, tuple[Node, ...]] = node.schemas.memos.setdefault("always", {})
    return memo.get(id(node)) or memo.setdefault(id(node), _list_applying(node))


def _list_applying(node: Node) -> tuple[Node, ...]:
    found: dict[int, Node] = {}
    stack = [node]
    while stack:
        current = stack.pop()
        if id(current) in found:
            continue
        found[id(current)] = current
        stack.extend(reversed(current.all_of))
        if current.reference is not None:
            stack.append(current.reference)
    return tuple(found.values())


# The most nested unions that are examined; the rules skip what is nested deeper, and only the judge sees it.
_MAX_NEST: Final = 64


def _read_once(node: Node, above: frozenset[int], memo: dict[int, Facts]) -> Facts:
    """Computes each node once, so that unions of unions cost no more than their number. `above` are the nodes whose
    computation is under way; a place that is defined by itself adds nothing."""
    if id(node) in above or len(above) > _MAX_NEST:
        return _ANYTHING
    known = memo.get(id(node))
    if known is None:
        known = memo[id(node)] = _work_out(node, above | {id(node)}, memo)
    return known


def _work_out(node: Node, above: frozenset[int], memo: dict[int, Facts]) -> Facts:
    types, free_text, choices, allowed, null = _ALL, True, None, None, ""
    descriptions: list[str] = []
    json_text = False
    for part in applies_always(node):
        if id(part) in above and part is not node:
            continue
        for site in _sites_of(part, above, memo):
            types, free_text = types & site.types, free_text and site.free_text
            choices = site.choices if choices is None else choices
        switch = _switch(part)
        if switch is not None:
            allowed = switch if allowed is None else allowed & switch
        null = null or (str(part.get("x-null")) if part.get("x-null") in _NULL_SWITCHES else "")
        descriptions += [text for word in ("description", "title") if isinstance(text := part.get(word), str)]
        json_text = json_text or _says_json(part)
    name = str(node.path[-1]) if node.path[-2:-1] == ("properties",) else ""
    json_text = json_text or name in _JSON_NAMES or split_words(name)[-1:] == ("json",)
    site = Site(types, free_text and "string" in types, choices, name, tuple(descriptions), json_text)
    return Facts(site, allowed, null)


def _says_json(part: Node) -> bool:
    """Whether a schema says that a text holds JSON."""
    media, known, told = part.get("contentMediaType"), part.get("format"), part.get("description")
    return (
        (isinstance(media, str) and _JSON_TYPE.search(media) is not None)
        or (isinstance(known, str) and _JSON_WORD.search(known.replace("-", " ")) is not None)
        or (isinstance(told, str) and _JSON_WORD.search(told) is not None)
    )


def _sites_of(part: Node, above: frozenset[int], memo: dict[int, Facts]) -> Iterator[Site]:
    """What each keyword of one schema allows."""
    if part.never:
        yield Site(frozenset(), False, None)
    if part.types is not None:
        yield Site(_widen(part.types), "string" in part.types, None)
    if part.choices is not None:
        yield Site(_widen(name_json_type(item) for item in part.choices), False, part.choices)
    for branches in (part.any_of, part.one_of):
        if branches:
            yield _either([_read_once(branch, above, memo).site for branch in branches])


def _either(sites: list[Site]) -> Site:
    listed = [choice for site in sites for choice in site.choices or ()]
    types = frozenset[str]().union(*(site.types for site in sites))
    choices: tuple[JsonValue, ...] | None = tuple(listed) if listed else None
    return Site(types, any(site.free_text for site in sites), choices)


def _widen(types: Iterable[str]) -> frozenset[str]:
    """JSON Schema's `number` takes integers too."""
    named = frozenset(types)
    return named | {"integer"} if "number" in named else named


def _switch(part: Node) -> frozenset[str] | None:
    """The rules that `x-repair` beside a schema leaves on: none for `off` (or false), the listed ones for a list."""
    written = part.get("x-repair")
    if written is None or written is True or written == "on":
        return None
    if isinstance(written, list):
        return frozenset(str(name) for name in written)
    return frozenset()
