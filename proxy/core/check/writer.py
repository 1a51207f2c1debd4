"""Writes the functions of a node: the judge `a` (true or false) and the report `r` (every broken keyword).

Both come from the same text, so they cannot disagree: a keyword becomes a condition and a failure, and only the failure
differs: `return False`, or one more `BrokenKeyword`. Nodes for parts of a value are written in place, with the path as
an expression that is only evaluated on a failure. A node becomes a call if a reference leads back to it, if its verdict
is remembered, or if the text would nest too deep. A judge tests cheap keywords first; a report keeps the order of the
schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from proxy.core.check.graph import follow_reference
from proxy.core.check.numbers import PLAIN_INT, Bound, Step, make_equality_key
from proxy.core.check.program import Program
from proxy.core.json.jsontext import make_decimal
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft
from proxy.core.schema.nodes import Node

# --- keywords that one Python expression can judge --------------------------------------------------------------------
# Writes the condition of a keyword: (program, node, keyword's value, variable, expression of its type) -> expression.
# "" means that the keyword asserts nothing here.
Condition = Callable[[Program, Node, JsonValue, str, str], str]

# The Python type that a value must have for a group of keywords to apply to it. {t} is the expression of its type.
GUARDS: Final = {"object": "{t} is dict", "array": "{t} is list", "string": "{t} is str", "number": "{t} in NUMBERS"}

_TYPE_TESTS: Final = {
    **GUARDS,
    "null": "{v} is None",
    "boolean": "{t} is bool",
    "integer": "({t} is int or {t} in INEXACT and integral({v}))",
}


def _type(_program: Program, node: Node, named: JsonValue, v: str, t: str) -> str:
    """`type`: one of the named types. Draft 4 goes by the spelling of a number, later drafts by its value."""
    names = [named] if isinstance(named, str) else list(dict.fromkeys(named))
    if "number" in names:
        names = [name for name in names if name != "integer"]
    tests = dict(_TYPE_TESTS)
    if node.draft is Draft.D4:
        tests["integer"] = "({t} is int or {t} in INEXACT and integer_spelling({v}))"
    names.sort(key=lambda name: name in ("integer", "number"))  # the expensive tests come last
    return " or ".join(tests[name].format(t=t, v=v) for name in names)


def _write_listed(program: Program, _node: Node, values: list[JsonValue], v: str, t: str) -> str:
    """`enum` and `const`: strings by set, everything else by its equality key."""
    strings = frozenset(item for item in values if type(item) is str)
    others = [item for item in values if type(item) is not str]
    tests = []
    if len(strings) == 1:
        tests.append(f"{v} == {next(iter(strings))!r}")
    elif strings:
        tests.append(f"{t} is str and {v} in {program.constant('among', strings)}")
    tests += [f"{v} is {item}" for item in (None, True, False) if any(item is other for other in others)]
    rest = [item for item in others if item is not None and type(item) is not bool]
    if rest and all(type(item) is int and abs(item) < PLAIN_INT for item in rest):
        ints = program.constant("among", frozenset(rest))
        tests.append(f"({v} in {ints} if {t} is int else {t} in INEXACT and key({v}) in {ints})")
    elif rest:
        keys = program.constant("among", frozenset(map(make_equality_key, rest)))
        tests.append(f"{t} is not str and key({v}) in {keys}")
    return " or ".join(tests) or "False"


def _length(comparison: str) -> Condition:
    return lambda _program, _node, limit, v, _t: f"len({v}) {comparison} {int(make_decimal(limit))}"


def _limit(comparison: str, edge: str) -> Condition:
    def write(program: Program, node: Node, limit: JsonValue, v: str, t: str) -> str:
        if type(limit) is bool:  # draft 4: it modifies the keyword beside it, which is written there
            return ""
        is_exclusive = node.draft is Draft.D4 and node.get("exclusiveM" + edge) is True
        operator = comparison.rstrip("=") if is_exclusive else comparison
        bound = Bound(limit)
        near = program.constant("near", bound.near)
        exact = f"{program.constant('bound', bound)}.compare({v}) {operator} 0"
        # Compares a float other than the limit itself as `compare` would, without calling it.
        apart = f"{v} > {near}" if operator in (">=", ">") else f"not {v} > {near}"
        exact = f"({apart} if {t} is float and {v} != {near} else {exact})"
        # For an int, b <= v is ceil(b) <= v, and b < v is floor(b) < v; the same holds the other way round.
        upward = operator in (">=", "<")
        whole = bound.ceiling if upward else bound.floor
        return exact if whole is None else f"({v} {operator} {whole} if {t} is int else {exact})"

    return write


def _multiple(program: Program, _node: Node, step: JsonValue, v: str, t: str) -> str:
    made = Step(step)
    exact = f"{program.constant('step', made)}.divides({v})"
    return exact if made.whole is None else f"({v} % {made.whole} == 0 if {t} is int else {exact})"


# Keyword -> the type it applies to ("" for every type), and the writer of the condition: true if the keyword is
# satisfied, for a value of that type.
CONDITIONS: Final[dict[str, tuple[str, Condition]]] = {
    "type": ("", _type), "enum": ("", _write_listed),
    "const": ("", lambda program, node, value, v, t: _write_listed(program, node, [value], v, t)),
    "minLength": ("string", _length(">=")), "maxLength": ("string", _length("<=")),
    "pattern": ("string", lambda program, _node, pattern, v, _t: f"{program.pattern(pattern)[0]}({v})"),
    "format": ("string", lambda program, node, name, v, _t:
               "" if (check := program.format(name, node)) is None else f"{check}({v})"),
    "minimum": ("number", _limit(">=", "inimum")),
    "maximum": ("number", _limit("<=", "aximum")), "exclusiveMinimum": ("number", _limit(">", "-")),
    "exclusiveMaximum": ("number", _limit("<", "-")), "multipleOf": ("number", _multiple),
    "minItems": ("array", _length(">=")), "maxItems": ("array", _length("<=")),
    "uniqueItems": ("array", lambda _program, _node, wanted, v, _t: f"unique({v})" if wanted is True else ""),
    "minProperties": ("object", _length(">=")), "maxProperties": ("object", _length("<=")),
}  # fmt: skip


def condition(program: Program, node: Node, keyword: str, v: str, t: str, *, report: bool = False) -> str:
    """The condition of one keyword of `CONDITIONS`, for a value of its type. A pattern that runs into its limit ends a
    verdict at once; in a report it only counts as broken."""
    value = node.keywords[keyword]
    if report and keyword == "pattern":
        search, is_linear = program.pattern(value)
        return f"{search}({v})" if is_linear else f"bounded({search}, {v})"
    return CONDITIONS[keyword][1](program, node, value, v, t)


def sole_group(node: Node) -> str | None:
    """The group of `GUARDS` for a node's `type`, where exactly one allowed type has a group."""
    named = node.types
    if named is None or len(named) != 1:
        return None
    (name,) = named
    return {"integer": "number"}.get(name, name) if name in _TYPE_TESTS else None


# --- writes the functions of a node -----------------------------------------------------------------------------------
# Beyond this indentation, or this many nested nodes, a node becomes a function: CPython allows 20 nested loops.
MAX_LEVEL: Final = 14
# A longer function calls functions for its remaining nodes: compiling it would block the calls served in the meantime.
LONG: Final = 500

# The rank of keywords that judge what all others of their node have left.
LAST: Final = 9


@value_class
class Spot:
    """The place in the value that is being written: the variable, the steps of its path (as source), its type if known,
    and the variable that holds its Python type."""

    v: str
    steps: tuple[str, ...] = ()
    known: str | None = None
    t: str | None = None

    @property
    def type(self) -> str:
        """The expression of the value's Python type."""
        return self.t or f"type({self.v})"

    def part(self, v: str, *steps: str) -> Spot:
        """The spot of a part of this value."""
        return Spot(v, (*self.steps, *steps))


# Writes one keyword of a node at a spot, with those that only make sense together with it.
Shape = Callable[["Writer", Node, Spot], None]


class ShapeRow(NamedTuple):
    """The writers of a keyword that leads to further nodes. `group` is the type it applies to ('' for any), `rank` its
    order in a judge (expensive ones last; a report has the schema's order, and `LAST` at its end)."""

    group: str
    rank: int
    judge: Shape
    report: Shape


class Writer:
    """The text of one function, of a kind that `program.py` lists."""

    def __init__(self, program: Program, shapes: Mapping[str, ShapeRow], kind: str) -> None:
        self.lines: list[str] = []
        self.program = program
        self._shapes = shapes
        self.report = kind in "rR"
        # The entry of a judge reads KeyError as False, so it may read a required key without looking for it first.
        self.misses = kind == "A"
        self._base = "p" if kind == "r" else ""
        self._level = 2 if kind in "AR" else 1
        self._depth = 0
        self._variables = 0

    # --- text -------------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Adds one line at the present indentation."""
        self.lines.append("    " * self._level + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block. A block without content is removed again."""
        start = len(self.lines)
        self.line(header)
        self._level += 1
        yield
        self._level -= 1
        if self.is_silent(start + 1):
            del self.lines[start:]

    def is_silent(self, start: int) -> bool:
        """Returns whether the lines from `start` on do nothing."""
        return all(line.lstrip().startswith("#") for line in self.lines[start:])

    def name(self, prefix: str) -> str:
        """A variable that no other code in this function uses, and that differs from the names of functions (`k1`)."""
        self._variables += 1
        return f"{prefix}_{self._variables}"

    def path(self, spot: Spot) -> str:
        """The expression of a spot's path."""
        steps = f"({', '.join(spot.steps)},)" if spot.steps else ""
        if not self._base:
            return steps or "()"
        return f"{self._base} + {steps}" if steps else self._base

    def fail(self, node: Node, keyword: str, spot: Spot, detail: str = "None", branches: str = "()") -> None:
        """Writes the failure of a keyword."""
        holder = self.program.constant("node", node) if self.report else ""
        made = f"add(new(B, ({keyword!r}, {self.path(spot)}, {holder}, {detail}, {branches})))"
        self.line(made if self.report else "return False")

    # --- nodes ------------------------------------------------------------------------------------------------------
    def node(self, node: Node, spot: Spot) -> None:
        """Writes a node at a spot: in place, or as a call."""
        graph = self.program.graph
        is_deep, is_long = max(self._level, self._depth) > MAX_LEVEL, len(self.lines) > LONG
        is_function = is_deep or graph.recursive(node) or graph.remembers(node) or (is_long and not graph.small(node))
        if node.keywords and is_function:
            self.call(node, spot)
            return
        self._depth += 1
        self.body(node, spot)
        self._depth -= 1

    def refer(self, node: Node, spot: Spot) -> None:
        """Writes the target of a reference."""
        if self.program.graph.small(node) or self.program.graph.once(node):
            self.node(node, spot)
        else:
            self.call(node, spot)

    def call(self, node: Node, spot: Spot) -> None:
        """Writes a call of the node's own function."""
        if self.report:
            self.line(f"{self.program.call('r', node)}({spot.v}, {self.path(spot)}, out, m)")
        else:
            with self.block(f"if not {self.program.call('a', node)}({spot.v}, m):"):
                self.line("return False")

    def body(self, node: Node, spot: Spot) -> None:
        """Writes a node in place."""
        if node.never:
            self.fail(node, "false", spot)
        if not node.keywords:  # a schema that is false has none either
            return
        self.line(f"# {node.uri}")
        tasks = self._tasks(node)
        if not self.report and "type" in node.keywords:
            spot = self._type_first(node, spot, tasks)
        if spot.known is None and spot.t is None and _needs_type(tasks):
            spot = replace(spot, t=self.name("t"))
            self.line(f"{spot.t} = type({spot.v})")
        for group, together in groupby(tasks, key=lambda task: task.group):
            if group in ("", spot.known):
                for task in together:
                    self._run(task, node, spot)
            elif spot.known is None:
                with self.block(f"if {GUARDS[group].format(t=spot.type)}:"):
                    for task in together:
                        self._run(task, node, replace(spot, known=group))

    def _type_first(self, node: Node, spot: Spot, tasks: list[_Task]) -> Spot:
        """In a judge, the type is tested first; a passed test makes the later guards unnecessary."""
        tasks.remove(next(task for task in tasks if task.keyword == "type"))
        group = sole_group(node)
        if spot.known is not None and group == spot.known and node.types != frozenset(("integer",)):
            return spot
        if spot.t is None and (group is None or group == "number") and (_needs_type(tasks) or group is None):
            spot = replace(spot, t=self.name("t"))
            self.line(f"{spot.t} = type({spot.v})")
        test = condition(self.program, node, "type", spot.v, spot.type)
        with self.block(f"if {_negate(test)}:"):
            self.line("return False")
        return replace(spot, known=group) if group is not None else spot

    def _run(self, task: _Task, node: Node, spot: Spot) -> None:
        if task.shape is not None:
            task.shape(self, node, spot)
            return
        test = condition(self.program, node, task.keyword, spot.v, spot.type, report=self.report)
        if test:
            with self.block(f"if {_negate(test)}:"):
                self.fail(node, task.keyword, spot)

    def _tasks(self, node: Node) -> list[_Task]:
        tasks: dict[object, _Task] = {}
        for keyword in node.keywords:
            if keyword in CONDITIONS:
                tasks[keyword] = _Task(keyword, CONDITIONS[keyword][0], _RANKS.get(keyword, 1))
            elif (row := self._shapes.get(keyword)) is not None:
                shape = row.report if self.report else row.judge
                tasks.setdefault(shape, _Task(keyword, row.group, row.rank, shape))
        if self.report:
            return sorted(tasks.values(), key=lambda task: task.rank == LAST)
        return sorted(tasks.values(), key=lambda task: (task.rank, task.group))

    # --- expressions ------------------------------------------------------------------------------------------------
    def truth(self, node: Node, v: str) -> str:
        """An expression that says whether a node accepts the value of a variable."""
        node = follow_reference(node)
        if node.never:
            return "False"
        text = self.simple(node, v)
        return text if text is not None else f"{self.program.call('a', node)}({v}, m)"

    def simple(self, node: Node, v: str) -> str | None:
        """An expression like that of `truth`, but without a call; None where that takes more than one expression."""
        node = follow_reference(node)
        if node.keywords.keys() & self._shapes.keys():
            return None
        group = sole_group(node)
        tests = []
        for keyword in sorted(node.keywords.keys() & CONDITIONS.keys(), key=lambda name: _RANKS.get(name, 1)):
            test = condition(self.program, node, keyword, v, f"type({v})")
            about = CONDITIONS[keyword][0]
            if test and about and about != group:
                test = f"not ({GUARDS[about].format(t=f'type({v})')}) or ({test})"
            tests.append(test)
        return " and ".join(f"({test})" for test in tests if test) or "True"


@value_class
class _Task:
    keyword: str
    group: str
    rank: int
    shape: Shape | None = None


# The order in a judge: type first, then comparisons, then (rank 1) sets and limits; shapes bring their own rank.
_RANKS: Final = {"type": 0, "const": 1, "enum": 1, "pattern": 2, "format": 2, "uniqueItems": 5}


def _needs_type(tasks: list[_Task]) -> bool:
    return any(task.group or task.keyword in ("enum", "const", "type") for task in tasks)


def _negate(test: str) -> str:
    return f"not ({test})" if not test.endswith(" is str") or " " in test[:-7] else f"{test[:-7]} is not str"
