"""Keywords that lead to further nodes: for parts of objects and arrays, or for the same value.

`SHAPES` has a row for each of them. Keywords that only make sense together share one function, which runs once for all.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from proxy.core.check.graph import Pin, are_exclusive, find_discriminator, follow_reference, list_types
from proxy.core.check.writer import ShapeRow, Spot, Writer
from proxy.core.json.jsontext import make_decimal
from proxy.core.schema.drafts import Draft
from proxy.core.schema.nodes import Node

# Up to this many optional keys are counted one by one; more are compared as a set.
_COUNTED: Final = 8
# An object with more properties is judged by going over its own keys, with a function for each from a table. The cost
# then depends only on the value, and no function grows so long that compiling it blocks other threads.
WIDE: Final = 100


# --- objects --------------------------------------------------------------------------------------------------------
def _object(writer: Writer, node: Node, spot: Spot) -> None:
    """`required`, `properties`, `patternProperties` and `additionalProperties` together (judge)."""
    v = spot.v
    if len(node.properties) > WIDE or len(node.required) > WIDE:
        if node.required:
            wanted = writer.program.constant("keys", frozenset(node.required))
            with writer.block(f"if not {v}.keys() >= {wanted}:"):
                writer.line("return False")
        _wide_properties(writer, node, spot)
        _other_keys(writer, node, spot)
        return
    required = dict.fromkeys(node.required)
    closed = node.additional is not None and node.additional.never and not node.pattern_properties
    for key in [key for key in required if key not in node.properties]:
        _require(writer, node, spot, key)
    optional = [key for key in node.properties if key not in required]
    counted = closed and len(optional) <= _COUNTED and set(required) <= node.properties.keys()
    count = writer.name("n") if counted and optional else ""
    if closed and not counted:
        names = writer.program.constant("keys", frozenset(node.properties))
        with writer.block(f"if not {names}.issuperset({v}):"):
            writer.line("return False")
    elif count:
        writer.line(f"{count} = {len(required)}")
    for key, inner in node.properties.items():
        if key in required:
            if not writer.misses:
                _require(writer, node, spot, key)
            if not _property(writer, inner, spot, key) and writer.misses:
                _require(writer, node, spot, key)
        else:
            with writer.block(f"if {key!r} in {v}:"):
                if count:
                    writer.line(f"{count} += 1")
                _property(writer, inner, spot, key)
    if counted:
        with writer.block(f"if len({v}) != {count or len(required)}:"):
            writer.line("return False")
    elif not closed:
        _other_keys(writer, node, spot)


def _wide_properties(writer: Writer, node: Node, spot: Spot) -> None:
    """Judges the declared keys of the value, each by its function; a report uses the schema's order."""
    v, key, function = spot.v, writer.name("k"), writer.name("f")
    judged = {name: inner for name, inner in node.properties.items() if inner.never or inner.keywords}
    if not judged:
        return
    table = writer.program.table("r" if writer.report else "a", judged)
    if writer.report:
        places = writer.program.constant("places", {name: place for place, name in enumerate(judged)})
        with writer.block(f"for {key} in sorted(filter({places}.__contains__, {v}), key={places}.__getitem__):"):
            writer.line(f"{table}[{key}]({v}[{key}], {writer.path(spot.part(v, key))}, out, m)")
        return
    x = writer.name("x")
    with writer.block(f"for {key}, {x} in {v}.items():"):
        writer.line(f"{function} = {table}.get({key})")
        with writer.block(f"if {function} is not None and not {function}({x}, m):"):
            writer.line("return False")


def _property(writer: Writer, inner: Node, spot: Spot, key: str) -> bool:
    """Writes what judges the value of a key; False where there is nothing to judge."""
    start, x = len(writer.lines), writer.name("x")
    writer.line(f"{x} = {spot.v}[{key!r}]")
    writer.node(inner, spot.part(x, repr(key)))
    if writer.is_silent(start + 1):
        del writer.lines[start:]
    return len(writer.lines) > start


def _require(writer: Writer, node: Node, spot: Spot, key: str) -> None:
    with writer.block(f"if {key!r} not in {spot.v}:"):
        writer.fail(node, "required", spot, repr(key))


def _report_required(writer: Writer, node: Node, spot: Spot) -> None:
    if len(node.required) > WIDE:
        key, wanted = writer.name("k"), writer.program.constant("wanted", tuple(dict.fromkeys(node.required)))
        with writer.block(f"for {key} in {wanted}:"), writer.block(f"if {key} not in {spot.v}:"):
            writer.fail(node, "required", spot, key)
        return
    for key in dict.fromkeys(node.required):
        _require(writer, node, spot, key)


def _properties(writer: Writer, node: Node, spot: Spot) -> None:
    if len(node.properties) > WIDE:
        _wide_properties(writer, node, spot)
        return
    for key, inner in node.properties.items():
        with writer.block(f"if {key!r} in {spot.v}:"):
            _property(writer, inner, spot, key)


def _other_keys(writer: Writer, node: Node, spot: Spot) -> None:
    """`patternProperties`, and `additionalProperties` for all keys that are not declared otherwise."""
    additional = node.additional
    if additional is not None and additional.never:
        key, extra = writer.name("k"), writer.name("e")
        writer.line(f"{extra} = [{key} for {key} in {spot.v} if {_write_unnamed(writer, node, key)}]")
        with writer.block(f"if {extra}:"):
            writer.fail(node, "additionalProperties", spot, extra)
        additional = None
    if not node.pattern_properties and (additional is None or not additional.keywords):
        return
    key, x = writer.name("k"), writer.name("x")
    with writer.block(f"for {key}, {x} in {spot.v}.items():"):
        part = spot.part(x, key)
        # Most keys match none of several patterns, which one joint search shows.
        first = writer.program.any_pattern(node.pattern_properties)
        with writer.block(f"if {first}({key}):") if first is not None else nullcontext():
            for pattern, inner in node.pattern_properties.items():
                with writer.block(f"if {writer.program.pattern(pattern)[0]}({key}):"):
                    writer.node(inner, part)
        if additional is not None:
            with writer.block(f"if {_write_unnamed(writer, node, key)}:"):
                writer.node(additional, part)


def _write_unnamed(writer: Writer, node: Node, key: str) -> str:
    """The expression that is true for a key named neither by `properties` nor by `patternProperties`."""
    program, patterns = writer.program, node.pattern_properties
    joined = program.any_pattern(patterns)
    tests = [f"{joined}({key})"] if joined else [f"{program.pattern(pattern)[0]}({key})" for pattern in patterns]
    if node.properties:
        tests.insert(0, f"{key} in {program.constant('keys', frozenset(node.properties))}")
    return " and ".join(f"not {test}" for test in tests) or "True"


def _property_names(writer: Writer, node: Node, spot: Spot) -> None:
    key = writer.name("k")
    if (inner := node.inner("propertyNames")) is not None:
        with writer.block(f"for {key} in {spot.v}:"), writer.block(f"if not ({writer.truth(inner, key)}):"):
            writer.fail(node, "propertyNames", spot, key)


def _dependent(writer: Writer, node: Node, spot: Spot) -> None:
    """`dependentRequired`, `dependentSchemas`, and the older `dependencies` (which draft 2019-09 still reads)."""
    for keyword in ("dependentRequired", "dependencies"):
        for key, names in (node.get(keyword) or {}).items():
            if isinstance(names, list):
                with writer.block(f"if {key!r} in {spot.v}:"):
                    for name in dict.fromkeys(names):
                        with writer.block(f"if {name!r} not in {spot.v}:"):
                            writer.fail(node, keyword, spot, repr(name))
    for key, inner in node.dependent.items():
        with writer.block(f"if {key!r} in {spot.v}:"):
            writer.node(inner, spot)


# --- arrays ---------------------------------------------------------------------------------------------------------
def _items(writer: Writer, node: Node, spot: Spot) -> None:
    """`prefixItems`, `items` and `additionalItems`, in the meaning that each draft gives them."""
    v, prefix = spot.v, len(node.prefix_items)
    if prefix and any(inner.never or inner.keywords for inner in node.prefix_items):
        n = writer.name("n")
        writer.line(f"{n} = len({v})")
        for index, inner in enumerate(node.prefix_items):
            with writer.block(f"if {n} > {index}:"):
                x = writer.name("x")
                writer.line(f"{x} = {v}[{index}]")
                writer.node(inner, spot.part(x, str(index)))
    rest = node.items
    if rest is None:
        return
    if rest.never:
        keyword = "additionalItems" if prefix and node.draft < Draft.D2020 else "items"
        with writer.block(f"if len({v}) > {prefix}:"):
            writer.fail(node, keyword, spot, f"list(range({prefix}, len({v})))")
        return
    x, i = writer.name("x"), writer.name("i")
    source = f"{v}[{prefix}:]" if prefix else v
    header = f"for {i}, {x} in enumerate({source}, {prefix}):" if writer.report else f"for {x} in {source}:"
    with writer.block(header):
        writer.node(rest, spot.part(x, i))


def _contains(writer: Writer, node: Node, spot: Spot) -> None:
    """`contains` with its limits. No match at all breaks `contains`; too few or too many break the limit."""
    inner = node.inner("contains")
    if inner is None:
        return
    least = int(make_decimal(node.get("minContains"))) if node.has("minContains") else 1
    most = int(make_decimal(node.get("maxContains"))) if node.has("maxContains") else None
    if least == 0 and most is None:
        return
    n, x = writer.name("n"), writer.name("x")
    writer.line(f"{n} = 0")
    with writer.block(f"for {x} in {spot.v}:"), writer.block(f"if {writer.truth(inner, x)}:"):
        writer.line(f"{n} += 1")
    if writer.report and least:
        with writer.block(f"if not {n}:"):
            writer.fail(node, "contains", spot)
    if least > 1 or (least and not writer.report):
        with writer.block(f"{'elif' if writer.report else 'if'} {n} < {least}:"):
            writer.fail(node, "minContains", spot)
    if most is not None:
        with writer.block(f"if {n} > {most}:"):
            writer.fail(node, "maxContains", spot)


# --- the same value -------------------------------------------------------------------------------------------------
def _reference(writer: Writer, node: Node, spot: Spot) -> None:
    for target_node in node.references:
        writer.refer(target_node, spot)


def _all_of(writer: Writer, node: Node, spot: Spot) -> None:
    for inner in node.all_of:
        writer.node(inner, spot)


def _not(writer: Writer, node: Node, spot: Spot) -> None:
    if (inner := node.inner("not")) is not None:
        with writer.block(f"if {writer.truth(inner, spot.v)}:"):
            writer.fail(node, "not", spot)


def _condition(writer: Writer, node: Node, spot: Spot) -> None:
    if node.condition is None:
        return
    test, then, otherwise = node.condition
    holds, start = writer.truth(test, spot.v), len(writer.lines)
    if then is not None:
        with writer.block(f"if {holds}:"):
            writer.node(then, spot)
    if otherwise is not None:
        with writer.block("else:" if len(writer.lines) > start else f"if not ({holds}):"):
            writer.node(otherwise, spot)


def _union(writer: Writer, node: Node, spot: Spot, keyword: str) -> None:
    """A union: judged by discriminator or type where branches exclude each other, else by asking each branch."""
    branches = node.any_of if keyword == "anyOf" else node.one_of
    objects = tuple(branch for branch in branches if list_types(branch) == {"object"})
    pins = find_discriminator(objects)
    either = keyword == "anyOf" or are_exclusive(branches)
    if pins and either and (not writer.report or len(objects) == len(branches)):
        others = [f"({writer.truth(branch, spot.v)})" for branch in branches if branch not in objects]
        with writer.block(f"if not ({' or '.join(others)}):") if others else nullcontext():
            _dispatch(writer, node, spot, keyword, pins)
        return
    tests = [writer.truth(branch, spot.v) for branch in branches]
    if either:
        tests.sort(key=lambda test: test.endswith(", m)"))  # calls come last
        accepted = " or ".join(f"({test})" for test in tests)
        complex_ones = [branch for branch in branches if writer.simple(branch, spot.v) is None]
        if not writer.report and len(complex_ones) == 1:
            # Simple branches and one other, such as `anyOf: [{...}, {"type": "null"}]`, need no call.
            simple = [f"({writer.truth(branch, spot.v)})" for branch in branches if branch is not complex_ones[0]]
            with writer.block(f"if not ({' or '.join(simple)}):") if simple else nullcontext():
                writer.refer(follow_reference(complex_ones[0]), spot)
            return
        accepted = f"not ({accepted})"
    else:
        accepted = " + ".join(f"({test})" for test in tests) + " != 1"
    with writer.block(f"if {accepted}:"):
        writer.fail(node, keyword, spot, branches=_reports(writer, spot, branches) if writer.report else "()")


def _reports(writer: Writer, spot: Spot, branches: tuple[Node, ...]) -> str:
    names = ", ".join(writer.program.call("r", branch) for branch in branches)
    return f"branches({spot.v}, {writer.path(spot)}, m, ({names},))"


def _dispatch(writer: Writer, node: Node, spot: Spot, keyword: str, pins: tuple[Pin, ...]) -> None:
    """A union whose object branches pin one key: the text under the key names the only branch that can accept."""
    program, key, x, broken = writer.program, pins[0].key, writer.name("x"), writer.name("b")
    # In an entry, KeyError means False. A union without its key is False as well, so the key needs no test.
    value = f"{spot.v}[{key!r}]" if writer.misses else f"{spot.v}.get({key!r})"
    writer.line(f"{x} = {value if spot.known == 'object' else f'{value} if {spot.type} is dict else None'}")
    for number, pin in enumerate(pins):
        test = " or ".join(f"{x} == {text!r}" for text in pin.texts)
        with writer.block(f"{'elif' if number else 'if'} {test}:"):
            if writer.report:
                functions = f"{program.call('a', pin.branch)}, {program.call('r', pin.branch)}"
                wanted = program.constant("pins", pins, (node, keyword))
                place = writer.path(spot)
                writer.line(f"{broken} = choose_branch({spot.v}, {place}, m, {functions}, {number}, {wanted})")
                with writer.block(f"if {broken} is not None:"):
                    writer.fail(node, keyword, spot, branches=broken)
            else:
                writer.refer(follow_reference(pin.branch), replace(spot, known="object"))
            writer.line("pass")
    with writer.block("else:"):
        branches = _reports(writer, spot, tuple(pin.branch for pin in pins)) if writer.report else "()"
        writer.fail(node, keyword, spot, branches=branches)


SHAPES: Final[dict[str, ShapeRow]] = {
    "required": ShapeRow("object", 3, _object, _report_required),
    "properties": ShapeRow("object", 3, _object, _properties),
    "patternProperties": ShapeRow("object", 3, _object, _other_keys),
    "additionalProperties": ShapeRow("object", 3, _object, _other_keys),
    "propertyNames": ShapeRow("object", 4, _property_names, _property_names),
    "dependentRequired": ShapeRow("object", 4, _dependent, _dependent),
    "dependentSchemas": ShapeRow("object", 4, _dependent, _dependent),
    "dependencies": ShapeRow("object", 4, _dependent, _dependent),
    "prefixItems": ShapeRow("array", 3, _items, _items), "items": ShapeRow("array", 3, _items, _items),
    "additionalItems": ShapeRow("array", 3, _items, _items), "contains": ShapeRow("array", 4, _contains, _contains),
    "$ref": ShapeRow("", 6, _reference, _reference), "$dynamicRef": ShapeRow("", 6, _reference, _reference),
    "$recursiveRef": ShapeRow("", 6, _reference, _reference), "allOf": ShapeRow("", 6, _all_of, _all_of),
    "if": ShapeRow("", 7, _condition, _condition), "anyOf": ShapeRow("", 7, *[partial(_union, keyword="anyOf")] * 2),
    "oneOf": ShapeRow("", 7, *[partial(_union, keyword="oneOf")] * 2), "not": ShapeRow("", 7, _not, _not),
}  # fmt: skip
