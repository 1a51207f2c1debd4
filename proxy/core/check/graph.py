"""Facts about a schema that the writer needs before it writes code.

Validation walks a graph: a node leads to others for the same value (`$ref`, `allOf`, `anyOf` ...) or for a part of it
(`properties`, `items` ...). From that graph this file decides

* which nodes become functions because a reference leads back to them (`recursive`), and which are small enough to be
  written in place wherever they are referred to (`small`);
* which functions remember their verdict for each value (`remembers`). A walk becomes exponential only if it reaches one
  node with one value along several paths, and paths only meet at targets of references. So where two paths may lead
  to the same part of a value inside a cycle, or where a schema without cycles unfolds beyond `UNFOLDED`, every target
  of a reference remembers; the work is then at most nodes times values;
* which branches of `anyOf` and `oneOf` exclude each other, whatever else they say: those for different types, and those
  that require an object with one common key and pin it to different texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain, combinations
from typing import Final

from proxy.core.json.jsontext import JSON_TYPES
from proxy.core.model.value_class import value_class
from proxy.core.schema.drafts import REFERENCES, SchemaError
from proxy.core.schema.nodes import Node, Schemas

# The largest size of a referred node that is written in place instead of called.
SMALL: Final = 12
# From this size of the unfolded schema on, shared nodes remember their verdicts.
UNFOLDED: Final = 2000
_INFINITE: Final = 10**9

# How an edge divides a value, the keyword's key or index, and the target. Two edges of one node overlap unless
# `_apart` says otherwise.
Edge = tuple[str, object, Node]


def list_in_place(node: Node) -> Iterator[Node]:
    """The nodes that judge the same value as `node`."""
    yield from (*node.references, *node.all_of, *node.any_of, *node.one_of, *node.dependent.values())
    for keyword in ("not", "if", "then", "else"):
        if (inner := node.inner(keyword)) is not None:
            yield inner


def list_edges(node: Node) -> Iterator[Edge]:
    """Every node that validation visits from `node`, with the part of the value that it visits."""
    yield from (("same", None, inner) for inner in list_in_place(node))
    yield from (("key", key, inner) for key, inner in node.properties.items())
    yield from (("pattern", None, inner) for inner in node.pattern_properties.values())
    yield from (("index", index, inner) for index, inner in enumerate(node.prefix_items))
    if node.additional is not None:
        yield "rest", None, node.additional
    if node.items is not None:
        yield "tail", None, node.items
    for keyword in ("contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"):
        if (inner := node.inner(keyword)) is not None:
            yield "any", None, inner


def _apart(left: Edge, right: Edge) -> bool:
    kinds = {left[0], right[0]}
    if kinds == {"key"} or kinds == {"index"}:
        return left[1] != right[1]
    return kinds in ({"key", "rest"}, {"index", "tail"}, {"key", "tail"}, {"key", "index"}, {"rest", "tail"})


class Graph:
    """The facts about every node that can be reached in `schemas`, each computed once."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._sizes: dict[Node, int] = {}

    def check_cycles(self) -> None:
        """Raises SchemaError where validation would reach a node again with the same value, forever."""
        nodes = list(self._schemas.nodes()) if self._schemas.has_references else []
        for group in _components(nodes, lambda node: list(list_in_place(node))):
            if len(group) > 1 or group[0] in list_in_place(group[0]):
                raise SchemaError(
                    "the schema refers to itself without going down into the value, so it never ends: "
                    "put the reference below `properties` or `items`",
                    group[0].path,
                )

    @cached_property
    def _cycles(self) -> dict[Node, int]:
        """The number of the cycle of every node that lies on one."""
        found: dict[Node, int] = {}
        nodes = list(self._schemas.nodes()) if self._schemas.has_references else []
        for number, group in enumerate(_components(nodes, lambda node: [edge[2] for edge in list_edges(node)])):
            if len(group) > 1 or any(edge[2] is group[0] for edge in list_edges(group[0])):
                found.update(dict.fromkeys(group, number))
        return found

    @cached_property
    def _targets(self) -> frozenset[Node]:
        nodes = self._schemas.nodes() if self._schemas.has_references else ()
        return frozenset(target for node in nodes for target in node.references)

    def recursive(self, node: Node) -> bool:
        """Returns whether a reference leads back to this node, so that it must be a function."""
        return node in self._cycles and node in self._targets

    @cached_property
    def _led_to(self) -> Counter[Node]:
        return Counter(edge[2] for node in self._schemas.nodes() for edge in list_edges(node))

    def once(self, node: Node) -> bool:
        """Returns whether only one place leads to this node."""
        return self._led_to[node] == 1 and node is not self._schemas.root

    def small(self, node: Node) -> bool:
        """Returns whether the node may be written out wherever it is needed."""
        return self.size(node) <= SMALL

    def size(self, node: Node) -> int:
        """The number of nodes that validation may visit from here, references unfolded."""
        stack = [node]
        while stack:
            current = stack[-1]
            if current in self._sizes:
                stack.pop()
            elif current in self._cycles:
                self._sizes[current] = SMALL + 1  # it is a call; `_forking` considers its cost
            else:
                below = [edge[2] for edge in list_edges(current)]
                missing = [inner for inner in below if inner not in self._sizes]
                stack.extend(missing)
                if not missing:
                    self._sizes[current] = min(_INFINITE, 1 + sum(self._sizes[inner] for inner in below))
        return self._sizes[node]

    @cached_property
    def _forking(self) -> frozenset[int]:
        """The cycles in which two paths may lead to the same part of a value."""
        forks: set[int] = set()
        for node, cycle in self._cycles.items():
            inside = [edge for edge in list_edges(node) if self._cycles.get(edge[2]) == cycle]
            overlap = any(not _apart(left, right) for left, right in combinations(inside, 2))
            if overlap or {"unevaluatedItems", "unevaluatedProperties"} & node.keywords.keys():
                forks.add(cycle)
        return frozenset(forks)

    @cached_property
    def _unfolds(self) -> bool:
        finite = (self.size(node) for node in self._targets if node not in self._cycles)
        # A node on a cycle counts with what it leads to off all cycles.
        around = ([edge[2] for edge in list_edges(node) if edge[2] not in self._cycles] for node in self._cycles)
        return any(size > UNFOLDED for size in chain(finite, (sum(map(self.size, below)) for below in around)))

    @cached_property
    def any_remembers(self) -> bool:
        """Returns whether any function of this schema remembers its verdicts."""
        return bool(self._forking) or self._unfolds

    def remembers(self, node: Node) -> bool:
        """Returns whether the function of this node keeps its verdict for each value it has seen."""
        if node not in self._targets:
            return False
        return self._cycles.get(node) in self._forking or (self._unfolds and not self.small(node))


def _components(nodes: list[Node], successors: Callable[[Node], list[Node]]) -> Iterator[list[Node]]:
    """Strongly connected components (Tarjan 1972), without recursion."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    finished: set[Node] = set()
    for start in nodes:
        work = [] if start in order else [(start, iter(successors(start)))]
        while work:
            node, rest = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                path.append(node)
            for inner in rest:
                if inner not in order:
                    work.append((inner, iter(successors(inner))))
                    break
                if inner not in finished:
                    low[node] = min(low[node], low[inner])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    group = [path.pop()]
                    while group[-1] is not node:
                        group.append(path.pop())
                    finished.update(group)
                    yield group


# --- branches that exclude each other ---------------------------------------------------------------------------------


@value_class
class Pin:
    """A branch's requirement on the discriminating key: its name and texts, and the keyword and node with it."""

    branch: Node
    key: str
    texts: tuple[str, ...]
    keyword: str
    node: Node


_SILENT: Final = frozenset([*REFERENCES, "title", "description", "default", "examples", "$comment", "deprecated"])


def follow_reference(node: Node) -> Node:
    """The node itself, or its target where the node holds nothing but `$ref`."""
    for _ in range(64):
        if len(node.references) != 1 or not node.keywords.keys() <= _SILENT:
            return node
        node = node.references[0]
    return node


def list_types(node: Node) -> frozenset[str]:
    """The JSON types of values that the node may accept; possibly too many, never too few."""
    node = follow_reference(node)
    if node.never:
        return frozenset()
    if node.choices is not None:
        names = {type(None): "null", bool: "boolean", str: "string", dict: "object", list: "array"}
        return frozenset(names.get(type(value), "number") for value in node.choices)
    types = JSON_TYPES if node.types is None else node.types
    return frozenset("number" if name == "integer" else name for name in types)


def find_discriminator(branches: tuple[Node, ...]) -> tuple[Pin, ...]:
    """Returns each branch's requirement on the one key that distinguishes them all; () without such a key."""
    if len(branches) < 2 or any(list_types(branch) != {"object"} for branch in branches):
        return ()
    for key in follow_reference(branches[0]).required:
        pins = tuple(pin for branch in branches if (pin := _find_pin(branch, key)) is not None)
        texts = [text for pin in pins for text in pin.texts]
        if len(pins) == len(branches) and len(set(texts)) == len(texts):
            return pins
    return ()


def _find_pin(branch: Node, key: str) -> Pin | None:
    node = follow_reference(branch)
    if key not in node.required or key not in node.properties:
        return None
    holder = follow_reference(node.properties[key])
    choices = holder.choices
    if not choices or not all(type(item) is str for item in choices):
        return None
    keyword = "const" if "const" in holder.keywords else "enum"
    return Pin(branch, key, tuple(dict.fromkeys(choices)), keyword, holder)


def are_exclusive(branches: tuple[Node, ...]) -> bool:
    """Returns whether no value can satisfy two of the branches."""
    objects = tuple(branch for branch in branches if list_types(branch) == {"object"})
    distinct = objects if find_discriminator(objects) else ()
    return all(
        (left in distinct and right in distinct) or not list_types(left) & list_types(right)
        for left, right in combinations(branches, 2)
    )
