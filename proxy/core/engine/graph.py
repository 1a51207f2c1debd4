"""What generated code must know of a schema before a line is written: which nodes meet again, and how often.

Validation walks a graph: a node leads to others for the same value (`$ref`, `allOf`, `anyOf` ...) or for a part of it
(`properties`, `items` ...). From that graph this file decides

* what cannot be written at all (`unwritable`), so that jsonschema-rs judges the whole schema;
* which nodes are functions because a reference leads back to them (`recursive`), which are small enough to be
  written out wherever they are referred to (`small`);
* which functions remember their verdict per value (`remembers`). A walk can only become exponential by coming to one
  node with one value along several paths, and paths only meet at targets of references. So where two paths may lead
  to the same part of a value inside a cycle, or where a schema without cycles unfolds beyond `UNFOLDED`, every target
  of a reference there remembers; then the work is at most nodes times values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from proxy.core.schema import Draft, Node, SchemaError, Schemas

# Size up to which a referred node is written out in place instead of called.
SMALL: Final = 12
# Size of the unfolded schema from which on shared nodes remember their verdicts.
UNFOLDED: Final = 2000
_INFINITE: Final = 10**9

# How an edge divides a value, and the keyword's key or index: two edges of one node overlap unless `_apart`.
Edge = tuple[str, object, Node]


def in_place(node: Node) -> Iterator[Node]:
    """The nodes that judge the same value as `node`."""
    if node.reference is not None:
        yield node.reference
    yield from (*node.all_of, *node.any_of, *node.one_of, *node.dependent.values())
    for keyword in ("not", "if", "then", "else"):
        if (inner := node.inner(keyword)) is not None:
            yield inner


def edges(node: Node) -> Iterator[Edge]:
    """Every node that validation goes to from `node`, with the part of the value it goes to."""
    yield from (("same", None, inner) for inner in in_place(node))
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


def unwritable(schemas: Schemas) -> str | None:
    """Why generated code cannot express a schema, or None.

    A `$dynamicRef` or `$recursiveRef` whose target depends on the way that led there; a meta-schema of one's own,
    whose vocabularies may switch keywords off; a reference into a published meta-schema.
    """
    if schemas.own_dialect:
        return "$schema names a meta-schema of its own"
    if not schemas.has_references:
        return None
    reasons = [reason for node in schemas.nodes() if (reason := _dynamic(node))]
    if schemas.leads_outside:
        return "a reference leads to a published meta-schema"
    return reasons[0] if reasons else None


def _dynamic(node: Node) -> str | None:
    target, anchors = node.reference, node.schemas.dynamic_anchors
    if target is None or "$ref" in node.keywords:
        both = "$ref" in node.keywords and not {"$dynamicRef", "$recursiveRef"}.isdisjoint(node.keywords)
        return "$ref stands beside a dynamic reference" if both else None
    if node.draft is Draft.D2019:
        several = target.get("$recursiveAnchor") is True and len(anchors.get("", ())) > 1
        return "the target of $recursiveRef depends on the way" if several else None
    name = str(node.get("$dynamicRef")).partition("#")[2]
    several = target.get("$dynamicAnchor") == name and len(anchors.get(name, ())) > 1
    return "the target of $dynamicRef depends on the way" if several else None


class Graph:
    """The facts about every node that can be reached in `schemas`, found once for each."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._sizes: dict[Node, int] = {}

    def check_cycles(self) -> None:
        """Raises SchemaError where validation would come back to a node with the same value, forever."""
        if not self._schemas.has_references:
            return
        for group in _components(list(self._schemas.nodes()), lambda node: list(in_place(node))):
            if len(group) > 1 or group[0] in in_place(group[0]):
                raise SchemaError(
                    "the schema refers to itself without going down into the value, so it never ends: "
                    "put the reference below `properties` or `items`",
                    group[0].path,
                )

    @cached_property
    def _cycles(self) -> dict[Node, int]:
        """The number of its cycle for every node on one."""
        found: dict[Node, int] = {}
        if not self._schemas.has_references:
            return found
        nodes = list(self._schemas.nodes())
        for number, group in enumerate(_components(nodes, lambda node: [edge[2] for edge in edges(node)])):
            if len(group) > 1 or any(edge[2] is group[0] for edge in edges(group[0])):
                found.update(dict.fromkeys(group, number))
        return found

    @cached_property
    def _targets(self) -> frozenset[Node]:
        nodes = self._schemas.nodes() if self._schemas.has_references else ()
        return frozenset(node.reference for node in nodes if node.reference is not None)

    def recursive(self, node: Node) -> bool:
        """Whether a reference leads back to this node, so that it must be a function."""
        return node in self._cycles and node in self._targets

    @cached_property
    def _ways(self) -> Counter[Node]:
        return Counter(edge[2] for node in self._schemas.nodes() for edge in edges(node))

    def once(self, node: Node) -> bool:
        """Whether only one place leads to this node."""
        return self._ways[node] == 1 and node is not self._schemas.root

    def small(self, node: Node) -> bool:
        """Whether the node may be written out wherever it is needed."""
        return self.size(node) <= SMALL

    def size(self, node: Node) -> int:
        """The number of nodes that validation may visit from here, references unfolded."""
        stack = [node]
        while stack:
            current = stack[-1]
            if current in self._sizes:
                stack.pop()
            elif current in self._cycles:
                self._sizes[current] = SMALL + 1  # a call; what it may cost is `_forking`'s question
            else:
                below = [edge[2] for edge in edges(current)]
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
            inside = [edge for edge in edges(node) if self._cycles.get(edge[2]) == cycle]
            overlap = any(not _apart(left, right) for index, left in enumerate(inside) for right in inside[index + 1 :])
            if overlap or {"unevaluatedItems", "unevaluatedProperties"} & node.keywords.keys():
                forks.add(cycle)
        return frozenset(forks)

    @cached_property
    def _unfolds(self) -> bool:
        finite = (self.size(node) for node in self._targets if node not in self._cycles)
        return any(size > UNFOLDED for size in (*finite, *(self._outside(node) for node in self._cycles)))

    def _outside(self, node: Node) -> int:
        """How far a node on a cycle unfolds apart from the cycle itself."""
        return sum(self.size(edge[2]) for edge in edges(node) if edge[2] not in self._cycles)

    @cached_property
    def any_remembers(self) -> bool:
        """Whether any function of this schema remembers its verdicts."""
        return bool(self._forking) or self._unfolds

    def remembers(self, node: Node) -> bool:
        """Whether the function of this node keeps its verdict for each value it has seen."""
        if node not in self._targets:
            return False
        return self._cycles.get(node) in self._forking or (self._unfolds and not self.small(node))


def _components(nodes: list[Node], successors: Callable[[Node], list[Node]]) -> Iterator[list[Node]]:
    """Strongly connected components (Tarjan 1972), without recursion."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    for start in nodes:
        if start in order:
            continue
        work: list[tuple[Node, Iterator[Node]]] = []
        _open(start, order, low, path, on_path)
        work.append((start, iter(successors(start))))
        while work:
            node, rest = work[-1]
            following = next((inner for inner in rest if inner not in order or _lower(node, inner, low, on_path)), None)
            if following is not None:
                _open(following, order, low, path, on_path)
                work.append((following, iter(successors(following))))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == order[node]:
                group = [path.pop()]
                while group[-1] is not node:
                    group.append(path.pop())
                on_path.difference_update(group)
                yield group


def _open(node: Node, order: dict[Node, int], low: dict[Node, int], path: list[Node], on_path: set[Node]) -> None:
    order[node] = low[node] = len(order)
    path.append(node)
    on_path.add(node)


def _lower(node: Node, inner: Node, low: dict[Node, int], on_path: set[Node]) -> bool:
    """Takes an edge to a node that was seen before; False, so that the search goes on."""
    if inner in on_path:
        low[node] = min(low[node], low[inner])
    return False
