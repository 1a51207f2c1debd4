"""Writes the functions of a program (`program.py`) whole: the signature, the entry's frame, and the body.

`unevaluatedProperties` and `unevaluatedItems` need their own functions: they judge what no other keyword of the node
has judged in place. So the other keywords are judged first; then a collector adds up the keys or indexes that they
evaluated. Only subschemas that accept the value count (2020-12 core 7.7.1.1), so the collector asks the branches again.
Those answers are remembered where asking again could add up to much work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from proxy.core.check.program import Program
from proxy.core.check.shapes import SHAPES
from proxy.core.check.writer import LAST, ShapeRow, Spot, Writer
from proxy.core.schema.drafts import Draft
from proxy.core.schema.nodes import Node

# The kinds of collector: `k` collects keys, `i` indexes, both into the set `s`; and the keyword that asks each.
COLLECTORS: Final = {"k": "unevaluatedProperties", "i": "unevaluatedItems"}

_JUDGE_ENTRY: Final = """\
def {name}(v):
    m = {memory}
    try:
{body}
        return True
    except (Refused, KeyError):
        return False
    except RecursionError:
        return deeper({name}, v, False)
"""

_REPORT_ENTRY: Final = """\
def {name}(v):
    m = {memory}
    out = []
    add = out.append
    try:
{body}
    except Refused as error:
        add(refusal(error, v, {node}))
    except RecursionError:
        return deeper({name}, v, [new(B, ("$ref", (), {node}, None, ()))])
    return out
"""

_REMEMBERING: Final = """\
def a{number}(v, m):
    mark = ({number}, id(v))
    known = m.get(mark)
    if known is None:
        known = m[mark] = w{number}(v, m)
    return known


"""

_REPORTING_ONCE: Final = """\
    if a{number}(v, m):
        return
    mark = ({number}, p)
    if mark in m.seen:
        return
    m.seen.add(mark)
"""

# The variable `m` wherever a text uses it.
_MEMORY: Final = re.compile(r"\bm\b")


def write_function(program: Program, kind: str, node: Node) -> str:
    """The source of one function (see program.py for the kinds)."""
    name = program.call(kind, node)
    number = name[1:]
    writer = Writer(program, KEYWORDS, kind)
    if kind in COLLECTORS:
        write_collector(writer, node, kind)
        return f"def {name}(v, m, s):\n" + "\n".join(writer.lines or ["    pass"]) + "\n"
    if kind in "AR" and (program.graph.recursive(node) or program.graph.remembers(node)):
        writer.call(node, Spot("v"))
    else:
        writer.body(node, Spot("v"))
    if writer.is_silent(0):
        writer.line("pass")
    body = "\n".join(writer.lines)
    if kind == "A":
        memory = "{}" if program.graph.any_remembers else "None"
        return _JUDGE_ENTRY.format(name=name, memory=memory, body=body)
    if kind == "R":
        memory = "State()" if _MEMORY.search(body) else "None"
        return _REPORT_ENTRY.format(name=name, memory=memory, body=body, node=program.constant("node", node))
    remembers = program.graph.remembers(node)
    if kind == "a":
        head = _REMEMBERING.format(number=number) if remembers else ""
        return f"{head}def {'w' if remembers else 'a'}{number}(v, m):\n{body}\n    return True\n"
    once = _REPORTING_ONCE.format(number=program.call("a", node)[1:]) if remembers else ""
    return f"def {name}(v, p, out, m):\n{once}    add = out.append\n{body}\n"


# --- the keywords `unevaluated*`, and the collectors they need --------------------------------------------------------
def _judge_rest(writer: Writer, node: Node, spot: Spot, kind: str) -> None:
    """Judges the parts of a value that no other keyword has evaluated."""
    keyword = COLLECTORS[kind]
    inner = node.inner(keyword)
    if inner is None or not (inner.never or inner.keywords):
        return
    s, step, x, broken = map(writer.name, "skxe")
    writer.line(f"{s} = set()")
    writer.line(f"{writer.program.call(kind, node)}({spot.v}, m, {s})")
    pairs = f"{spot.v}.items()" if kind == "k" else f"enumerate({spot.v})"
    refused = "" if inner.never else f" and not ({writer.truth(inner, x)})"
    writer.line(f"{broken} = [{step} for {step}, {x} in {pairs} if {step} not in {s}{refused}]")
    with writer.block(f"if {broken}:"):
        writer.fail(node, keyword, spot, broken)


def write_collector(writer: Writer, node: Node, kind: str) -> None:
    """The body of a collector: adds the parts of `v` that `node` evaluates to `s`, without its own `unevaluated*`."""
    program, contains = writer.program, node.inner("contains")
    everything = "s.update(v)" if kind == "k" else "s.update(range(len(v)))"
    if (node.additional if kind == "k" else node.items) is not None:
        writer.line(everything)
    elif kind == "k":
        if node.properties:
            writer.line(f"s.update({program.constant('keys', frozenset(node.properties))})")
        for pattern in node.pattern_properties:
            writer.line(f"s.update(filter({program.pattern(pattern)[0]}, v))")
    else:
        if node.prefix_items:
            writer.line(f"s.update(range({len(node.prefix_items)}))")
        if contains is not None and node.draft >= Draft.D2020:  # in 2019-09, `contains` produces no annotation
            writer.line(f"s.update(i for i, x in enumerate(v) if {writer.truth(contains, 'x')})")
    for test, inner in _list_counted(writer, node):
        if inner.keywords:
            with writer.block(f"if {test}:"):  # a subschema with an `unevaluated*` keyword itself evaluates everything
                whole = inner.inner(COLLECTORS[kind]) is not None
                writer.line(everything if whole else f"{program.call(kind, inner)}(v, m, s)")


def _list_counted(writer: Writer, node: Node) -> Iterator[tuple[str, Node]]:
    """The in-place subschemas, each with the expression that says whether it counts. `not` never does."""
    yield from (("True", inner) for inner in (*node.references, *node.all_of))
    yield from ((writer.truth(inner, "v"), inner) for inner in (*node.any_of, *node.one_of))
    yield from ((f"{key!r} in v", inner) for key, inner in node.dependent.items())
    if (test := node.inner("if")) is not None:
        holds = writer.truth(test, "v")
        for keyword, condition in (("if", holds), ("then", holds), ("else", f"not ({holds})")):
            if (inner := node.inner(keyword)) is not None:
                yield condition, inner


KEYWORDS: Final = {
    **SHAPES,
    "unevaluatedProperties": ShapeRow("object", LAST, *[partial(_judge_rest, kind="k")] * 2),
    "unevaluatedItems": ShapeRow("array", LAST, *[partial(_judge_rest, kind="i")] * 2),
}
