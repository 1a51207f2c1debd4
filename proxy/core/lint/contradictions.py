"""Mistakes of a schema's author, for a report when a schema is loaded. They are places that no value can satisfy, keys
that are required and refused, and defaults that their own type refuses. A model cannot get past the first two."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from math import ceil, floor
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.json.jsontext import FRACTIONS, are_equal, format_pointer, is_integral, make_decimal, name_json_type
from proxy.core.lint.findings import show
from proxy.core.lint.keywords import lint
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.rules.facts import read_facts
from proxy.core.schema.drafts import REFERENCES, is_conditional, list_subschemas
from proxy.core.schema.matching import SearchGivenUp, make_matcher
from proxy.core.schema.nodes import NUMERIC, Node, Schemas

# The most contradictions reported; more of them have one cause.
_MOST: Final = 10


def list_refused_defaults(schemas: Schemas) -> tuple[str, ...]:
    """A sentence for each default that its own type or `enum` refuses, with its place and remedy, at most 10."""
    found: list[str] = []
    for node in schemas.nodes():
        if not node.has("default"):
            continue
        site, default = read_facts(node).site, node.get("default")
        types = site.types
        kind = name_json_type(default)
        # 3.0 counts as an integer too.
        is_whole = isinstance(default, FRACTIONS) and "integer" in types and is_integral(make_decimal(default))
        is_taken = kind in types or (kind == "integer" and "number" in types) or is_whole
        where = f"`{format_pointer(node.path)}`" if node.path else "the schema"
        if is_taken and node.choices is not None and not any(are_equal(default, each) for each in node.choices):
            found.append(f"{where}: the default is none of the listed values: add it to `enum`, or correct it")
        elif not is_taken and (types or node.choices is None):
            found.append(
                f"{where}: the property's own type refuses the default ({kind} instead of "
                f"{' or '.join(sorted(types)) or 'nothing'}): allow it in `type`, or "
                f"say in `description` what an absent property means"
            )
    return tuple(found[:_MOST])


def describe_gaps(check: Check) -> str:
    """Returns what a foreign schema surely means and does not guard, and what no value satisfies: three remarks."""
    remarks = [(each.path, f"{each.message} ({each.hint})") for each in lint(check.schemas) if each.is_grave] + [
        (node.path, f"{message} ({remedy})")
        for node, message, remedy in list_unsatisfiable(check)
        if not is_conditional(node.path)
    ]
    shown = [f"{format_pointer(path)}: {remark}"[:300] for path, remark in remarks[:3]]
    return "; ".join(shown) + (f"; and {len(remarks) - 3} more" if len(remarks) > 3 else "")


def list_unsatisfiable(check: Check) -> Iterator[tuple[Node, str, str]]:
    """The places that surely no value (of the type they speak of) can satisfy, each with (message, remedy). References
    and `allOf` are read together with what is next to them."""
    if any(part.never or part.get("not") in (True, {}) for part in check.root.always):
        yield check.root, "no value can satisfy it: every call is refused", "say what a call may hold"
    for node in _list_applied(check.root):
        parts = list(node.always)
        if not read_facts(node).site.types and not any(part.never for part in parts):
            if node.choices is not None:
                keyword = "const" if node.has("const") else "enum"
                remedy = f"change the `type` or the `{keyword}`"
                if "array" in (node.types or ()):
                    remedy = f"move the `{keyword}` into `items`"
                yield node, "no value can satisfy it, the type and the listed values exclude each other", remedy
            elif all(read_facts(part).site.types for part in parts[1:]):
                message = "no value can satisfy it, its types exclude each other"
                yield node, message, "name one type that all of them allow"
        elif node.choices is not None and not _is_any_accepted(check, node):
            message = "no value can satisfy it, the keywords beside the listed values refuse each of them"
            yield node, message, "change the listed values or the keywords beside them"
        has_limits = any(not NUMERIC.isdisjoint(part.keywords) for part in parts)
        for message in (*_list_contrary_limits(node, parts), *_list_contrary_counts(node)) if has_limits else ():
            yield node, message, "change one of the two"
        if node.has("discriminator") and _is_ambiguous(node):
            message = "calls are ambiguous, the required keys of each branch of `oneOf` fit another branch too"
            yield node, message, _PIN.format(_name_discriminator(node))
        for name in list_refused_keys(node):
            message = f"no object can satisfy it, {format_pointer((name,))[1:]!r} is required and refused as well"
            yield node, message, "declare it under `properties`, or take it out of `required`"


# The remedy of branches that no discriminator tells apart.
_PIN: Final = "list the value of {!r} in each branch, such as `const: cat`, or write `anyOf` in place of `oneOf`"


def _name_discriminator(node: Node) -> str:
    written = node.get("discriminator")
    name = written.get("propertyName") if isinstance(written, dict) else written  # Swagger 2.0 writes the name itself
    return name if isinstance(name, str) else "the property"


def _is_ambiguous(node: Node) -> bool:
    """Returns whether each branch of a `oneOf` is open and lies within another one, as far as both say."""
    branches = node.one_of
    return len(branches) > 1 and all(
        any(one is not other and _covers(other, one) for other in branches) for one in branches
    )


def _covers(wider: Node, narrower: Node) -> bool:
    """Returns whether the smallest object that one branch accepts is surely accepted by another one. The properties
    that the wider one requires have the same schemas in both."""
    read = {key: value for part in narrower.always for key, value in part.properties.items()}
    needed = {key for part in wider.always for key in part.required}
    given = {key for part in narrower.always for key in part.required}
    is_plain = all(part.keywords.keys() <= _PLAIN and part.additional is None for part in wider.always)
    declared = {key: value for part in wider.always for key, value in part.properties.items()}
    return (
        is_plain
        and needed <= given
        and all(
            key in read and _read_target(read[key]) == _read_target(declared[key]) for key in given & declared.keys()
        )
    )


def _read_target(node: Node) -> JsonValue:
    return node.reference.raw if node.reference is not None and node.keywords.keys() == {"$ref"} else node.raw


def _list_contrary_counts(node: Node) -> Iterator[str]:
    most, least, items = (node.get(keyword) for keyword in ("maxProperties", "minProperties", "minItems"))
    types = read_facts(node).site.types
    required, allowed = len(set(node.required)), len(node.prefix_items)
    if isinstance(most, int) and "object" in types and required > most:
        yield f"no object can satisfy it, `maxProperties` is {most} and the number of required keys {required}"
    declared = sum(not child.never for child in node.properties.values())
    is_bounded = "object" in types and _is_closed(node) and not node.pattern_properties
    if isinstance(least, int) and is_bounded and declared < least:
        yield f"no object can satisfy it, `minProperties` is {least} and the number of allowed keys {declared}"
    if isinstance(items, int) and "array" in types and node.items is not None and node.items.never and allowed < items:
        yield f"no array can satisfy it, `minItems` is {items} and the number of allowed items {allowed}"


def _list_applied(root: Node) -> Iterator[Node]:
    """Every schema that judges a value somewhere, each once: a definition counts where a reference leads to it."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            inner = (step for step, _ in list_subschemas(dict(node.keywords)))
            stack += [*node.references, *(node.descend(at) for at in inner if at[0] not in ("$defs", "definitions"))]


# The keywords of a branch that say no more than its properties do.
_PLAIN: Final = frozenset(
    ["type", "properties", "required", "allOf", "$ref", "title", "description", "example", "examples", "default"]
)
# Keywords beside `enum` and `const` that refuse nothing themselves, or whose part is checked already.
_LISTING: Final = frozenset(["enum", "const", "type", "title", "description", "default", "examples", "example"])


def _is_any_accepted(check: Check, node: Node) -> bool:
    if node.keywords.keys() <= _LISTING:
        return True
    try:
        return any(check.accepts_at(node, value) for value in node.choices or ())
    except SearchGivenUp:
        return True


# Keywords that exclude each other if the first is above the second, and the types they apply to.
_LIMITS: Final = (
    ("minimum", "maximum", ("number", "integer")), ("minLength", "maxLength", ("string",)),
    ("minItems", "maxItems", ("array",)), ("minContains", "maxContains", ("array",)),
    ("minProperties", "maxProperties", ("object",)),
)  # fmt: skip
_EXCLUSIVE: Final = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
# The largest limit that is rounded to an integer.
_ROUNDED: Final = 10**18


@value_class
class _Limit:
    """One limit: its number, whether it excludes that number, and how the schema spells it."""

    number: Decimal
    excludes: bool
    spelt: str


def _list_contrary_limits(node: Node, parts: list[Node]) -> Iterator[str]:
    """Limits that leave no value between them; what one of the other parts says by itself is reported there."""
    types = read_facts(node).site.types
    for least, most, kinds in _LIMITS:
        if not any(kind in types for kind in kinds):
            continue
        read = parts if least != "minContains" else [node] if node.has("contains") else []
        lows = [(part, limit) for part in read for limit in _read_limits(part, least)]
        highs = [(part, limit) for part in read for limit in _read_limits(part, most)]
        whole = "integer" in kinds and "number" not in types
        pairs = [
            (low, high)
            for one, low in lows
            for other, high in highs
            if (node in (one, other) or one is not other) and not _leaves_room(low, high, whole=whole)
        ]
        if pairs:
            low, high = pairs[0]
            kind = "integer" if whole and _leaves_room(low, high, whole=False) else kinds[0]
            yield f"no {kind} can satisfy it, {low.spelt} and {high.spelt} exclude each other"


def _read_limits(part: Node, keyword: str) -> Iterator[_Limit]:
    exclusive = _EXCLUSIVE.get(keyword, "")
    # `exclusiveMinimum: true` beside `minimum` is draft 4's spelling.
    for name, excludes in ((keyword, part.get(exclusive) is True), (exclusive, True)):
        value = part.get(name)
        if isinstance(value, (int, *FRACTIONS)) and not isinstance(value, bool):
            yield _Limit(make_decimal(value), excludes, f"`{name}: {show(value)}`")


def _leaves_room(low: _Limit, high: _Limit, *, whole: bool) -> bool:
    least, most = low.number, high.number
    if whole and max(abs(least), abs(most)) < _ROUNDED:
        first = floor(least) + 1 if low.excludes or not is_integral(least) else int(least)
        last = ceil(most) - 1 if high.excludes or not is_integral(most) else int(most)
        return first <= last
    return least < most or (least == most and not low.excludes and not high.excludes)


def list_refused_keys(node: Node) -> Iterator[str]:
    """The keys that a place requires and that it refuses whatever their value."""
    parts = node.always if node.required or node.all_of or node.references else ()
    for name in dict.fromkeys(name for part in parts for name in part.required):
        if any(_refuses(part, name) for part in parts):
            yield name


def _refuses(part: Node, name: str) -> bool:
    """Returns whether one schema refuses a key whatever its value. A pattern that runs into its limit may allow it."""
    if name in part.properties:
        return part.properties[name].never
    if not _is_closed(part):
        return False
    try:
        return not any(make_matcher(pattern).search(name) for pattern in part.pattern_properties)
    except SearchGivenUp:
        return False


# Keywords that may declare keys for `unevaluatedProperties` besides `properties` and `patternProperties`.
_DECLARING: Final = frozenset(["allOf", "anyOf", "oneOf", "if", "dependentSchemas", *REFERENCES])


def _is_closed(part: Node) -> bool:
    """Returns whether a schema refuses every key that its own `properties` and `patternProperties` do not describe."""
    if part.additional is not None:
        return part.additional.never
    evaluated = part.keywords.keys() & _DECLARING
    return part.unevaluated is not None and part.unevaluated.never and not evaluated
