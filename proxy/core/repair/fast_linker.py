"""Links generated repair functions: one namespace per schema and set of rules, each function written on first use.
Part of fast_repair.py, which says what it is worth (about 40 % of a repaired call).

`fast_writer.py` writes the functions, as `writer.py` writes those of the judge; this file knows no rule. Each function
is compiled on its own, for the reason given in `program.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.repair.fast_readers import SPACE, At, QuickRepairRun
from proxy.core.repair.fast_writer import INDEX, Step, path_of, write_entry, write_function
from proxy.core.schema.nodes import Node, Schemas

# A generated repair function: (value, the list of its repairs, the work left and its notes) -> the repaired copy.
# Raises GiveUp, or KeyError or ValueError for a text it cannot read.
Mend = Callable[[JsonValue, list[Repair], QuickRepairRun], JsonValue]


class QuickRepairs:
    """The repair functions of one schema under one set of rules."""

    def __init__(self, schemas: Schemas, rules: frozenset[str]) -> None:
        self.rules = rules
        self._space: dict[str, Any] = dict(SPACE)
        self._names: dict[Hashable, str] = {}
        self._pending: list[tuple[str, Node, frozenset[str]]] = []
        self._acts = False
        self._parts = [write_entry(self, schemas.root)]
        while self._pending:
            self._parts.append(write_function(self, *self._pending.pop()))

    def mend(self) -> Mend | None:
        """The compiled repair function of the root, or None where it could never repair anything."""
        if not self._acts:
            return None
        for part in self._parts:
            # Our own writer made the text from a schema: names are numbered, and every literal goes through repr().
            exec(compile(part, "<mender>", "exec"), self._space)  # noqa: S102
        made: Mend = self._space["mend"]
        return made

    def source(self) -> str:
        """The generated code, with comments that name the place in the schema of each part."""
        return "\n\n".join(self._parts)

    # --- what writers ask for ---------------------------------------------------------------------------------------
    def function(self, node: Node, rules: frozenset[str]) -> str:
        """The name of the function that repairs the parts of a container at a node."""
        name = self._names.get((node, rules))
        if name is None:
            name = self._names[node, rules] = f"m{len(self._names)}"
            self._pending.append((name, node, rules))
        return name

    def constant(self, prefix: str, value: object) -> str:
        """A global name for a value."""
        name = f"{prefix}_{len(self._space)}"
        self._space[name] = value
        return name

    def repair(self, rule: str, base: str, steps: tuple[Step, ...]) -> str:
        """The expression of a repair at a path: made once where the path is known, kept by index within one array."""
        self._acts = True
        running = [number for number, (_, value) in enumerate(steps) if value is None]
        known: Pointer = tuple(value for _, value in steps if value is not None)
        if not base and not running:
            return self.constant("repair", Repair(rule, known))
        if not base and len(running) == 1 and steps[running[0]][0].startswith(INDEX):
            at = At(rule, known[: running[0]], known[running[0] :])
            return f"{self.constant('at', at)}[{steps[running[0]][0]}]"
        return f"Repair({rule!r}, {path_of(base, steps)})"
