"""The quick repair: a function generated for each schema (`fast_writer.py`), tried before the repair engine.

It repairs the most frequent mistakes, numbers and booleans sent as text, and a few more with one obvious answer. Its
result counts only if the judge accepts it, and equals the repair engine's result, repairs and their order included
(tests/core/test_quick_repair.py compares the two). `None` means that the repair engine has to decide.

`QuickRepairs` links the generated functions: one namespace per schema and set of rules, each function written on first
use. It knows no rule. Each function is compiled on its own, for the reason given in `program.py`.

Worth, measured with CPython 3.11: four damaged values of nine take 3 us instead of the engine's 60, about 40 % of such
a call; 200 damaged rows take 0.9 ms instead of 44. `ON = False` leaves every repair to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.model.values import JsonValue, Pointer, Repair
from proxy.core.model.work import REPAIRING, lend_work, pay_work
from proxy.core.repair.fast_readers import SPACE, At, GiveUp, QuickRepairRun
from proxy.core.repair.fast_writer import INDEX, Step, path_of, write_entry, write_function
from proxy.core.repair.respell import respell_integers
from proxy.core.rules.rules import WRAPPER_KEYS
from proxy.core.schema.nodes import Node, Schemas

# Whether the quick repair is used.
ON = True


def compile_quick_repair(check: Check, rules: frozenset[str]) -> QuickRepair | None:
    """The generated function that repairs the obvious cases under these repair rules; None where there are none. It is
    written and compiled on first use."""

    def write() -> QuickRepair | None:
        return QuickRepairs(check.schemas, rules).compile()

    return check.once(("quick repair", rules), write)


def write_quick_repair(check: Check, rules: frozenset[str]) -> str:
    """The source text of `compile_quick_repair`; '' without one."""
    return QuickRepairs(check.schemas, rules).source() if compile_quick_repair(check, rules) is not None else ""


def repair_quickly(
    check: Check, value: JsonValue, policy: RepairPolicy, limit: int = REPAIRING
) -> tuple[JsonValue, tuple[Repair, ...]] | None:
    """The refused value as the schema accepts it and the repairs made; None where the obvious cases do not suffice.

    `limit` bounds the work, in the units of `work.py`, as it does in `repair`. Never changes `value`; never raises.
    """
    repair = compile_quick_repair(check, policy.rules) if ON else None
    if repair is None:
        return None
    # A wrapper has one key that is not plumbing, so the number of keys rules it out for most arguments.
    if type(value) is dict and len(value) < 2 + len(policy.drop_keys) and _wraps(check, value, policy):
        return None
    made: list[Repair] = []
    run = QuickRepairRun()
    lent = lend_work(limit)
    run.late, run.left = False, lent
    try:
        candidate = repair(value, made, run)
    except (GiveUp, KeyError, ValueError, RecursionError):
        return None
    finally:
        pay_work(lent, run.left)
    if not made or not check.accepts(candidate):
        return None
    if run.late:
        candidate, respelt = respell_integers(check, candidate, policy)
        made += respelt
    return candidate, tuple(made)


def _wraps(check: Check, value: dict[str, JsonValue], policy: RepairPolicy) -> bool:
    """Whether the arguments may be a wrapper around the real ones, which only the repair engine can decide."""
    rules = policy.rules
    others = [key for key in value if key not in policy.drop_keys]
    if len(others) != 1 or (len(value) == 1 and others[0] in check.root.properties):
        return False
    if "unwrap_any" in rules or "unwrap_scalar" in rules:
        return True
    return "unwrap_arguments" in rules and others[0] in WRAPPER_KEYS


# --- linking ----------------------------------------------------------------------------------------------------------
# A generated repair function: (value, the list of its repairs, the work left and its notes) -> the repaired copy.
# Raises GiveUp, or KeyError or ValueError for a text it cannot read.
QuickRepair = Callable[[JsonValue, list[Repair], QuickRepairRun], JsonValue]


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

    def compile(self) -> QuickRepair | None:
        """The compiled repair function of the root, or None where it could never repair anything."""
        if not self._acts:
            return None
        for part in self._parts:
            # Our own writer made the text from a schema: names are numbered, and every literal goes through repr().
            exec(compile(part, "<quick repair>", "exec"), self._space)  # noqa: S102
        made: QuickRepair = self._space["repair"]
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
