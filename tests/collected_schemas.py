"""Policies for tests of guidance and exports: of written schemas, and of the collected tools of real MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.json.jsontext import dumps, parse
from proxy.core.rules.rules import select_rules
from tests.corpora.calls import check_of, rows

DATA = Path(__file__).parent / "data"


def policy(schema: object, tool: str = "tool", **fields: Any) -> ToolPolicy:
    """A policy with the standard repairs for a schema written in place."""
    fields.setdefault("repair", RepairPolicy(select_rules("standard", {})))
    return ToolPolicy(tool, compile_check(parse(dumps(schema))), "f", **fields)


@cache
def real_tools() -> Mapping[str, ToolPolicy]:
    """The collected tools by name; one of a name that came before has its number behind it."""
    found: dict[str, ToolPolicy] = {}
    for row in rows(DATA / "mcp-tools/tools.jsonl.gz"):
        name = row["id"].rpartition("/")[2]
        name = name if name not in found else f"{name}_{len(found)}"
        repairs = RepairPolicy(select_rules("standard", {}))
        found[name] = ToolPolicy(name, check_of(row["inputSchema"]), "f", repair=repairs)
    return found
