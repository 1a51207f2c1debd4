"""Writes the functions of a program whole: the signature, the entry's frame, and the body that `Writer` writes.

The kinds of function stand in `program.py`. This file brings `Writer` together with the keywords it writes.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.check.program import Program
from proxy.core.check.shapes import SHAPES
from proxy.core.check.unevaluated import CLOSING, COLLECTORS, write_collector
from proxy.core.check.writer import Shapes, Spot, Writer
from proxy.core.schema.nodes import Node

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

_KEYWORDS: Final = Shapes(SHAPES, CLOSING)


def write_function(program: Program, kind: str, node: Node) -> str:
    """The source of one function (see program.py for the kinds)."""
    name = program.call(kind, node)
    number = name[1:]
    if kind in COLLECTORS:
        writer = Writer(program, _KEYWORDS, report=False, base="", level=1)
        write_collector(writer, node, kind)
        return f"def {name}(v, m, s):\n" + "\n".join(writer.lines or ["    pass"]) + "\n"
    report = kind in "rR"
    writer = Writer(
        program,
        _KEYWORDS,
        report=report,
        base="p" if kind == "r" else "",
        level=2 if kind in "AR" else 1,
        entry=kind == "A",
    )
    if kind in "AR" and (program.graph.recursive(node) or program.graph.remembers(node)):
        writer.call(node, Spot("v"))
    else:
        writer.body(node, Spot("v"))
    if all(line.lstrip().startswith("#") for line in writer.lines):
        writer.line("pass")
    body = "\n".join(writer.lines)
    if kind == "A":
        memory = "{}" if program.graph.any_remembers else "None"
        return _JUDGE_ENTRY.format(name=name, memory=memory, body=body)
    if kind == "R":
        memory = "State()" if _MEMORY.search(body) else "None"
        return _REPORT_ENTRY.format(name=name, memory=memory, body=body, node=writer.constant(node))
    remembers = program.graph.remembers(node)
    if kind == "a":
        head = _REMEMBERING.format(number=number) if remembers else ""
        return f"{head}def {'w' if remembers else 'a'}{number}(v, m):\n{body}\n    return True\n"
    once = _REPORTING_ONCE.format(number=program.call("a", node)[1:]) if remembers else ""
    return f"def {name}(v, p, out, m):\n{once}    add = out.append\n{body}\n"
