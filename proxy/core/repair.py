"""The repair engine: changes refused arguments where the schema leaves exactly one meaning (repair.md sections 2, 3).

How it works. `fit(node, value)` asks the judge first; what it accepts is not touched. A refused scalar is shown to
the value rules, tier by tier: the proposals that the judge accepts count, and if they differ the value is ambiguous
and stays as it is. A refused object or array is repaired part by part: each part is fitted to every schema that
applies to it, keys are renamed or removed by the key rules, and for each union that accepts no branch the branches
are fitted one by one, of which exactly one result may remain. Whatever comes out counts only if the judge accepts
the whole. A result that failed is kept as far as it got, so that the answer speaks of what is still wrong.

Everything is bounded: each (node, value) pair is fitted once, paths end at 64 steps, and the work of a call is counted
(`work.py`); a call that takes more than `MAX_WORK` is refused as it is. The rules are in `rules.py`, what they do to
keys in `keys.py`, unions in `branches.py`; this file knows no spelling of any value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from proxy.core.branches import Fit, discriminated, distinct
from proxy.core.jsontext import equal
from proxy.core.keys import filled, removed, renamed, without
from proxy.core.members import declared, required, schemas_of
from proxy.core.model import ABSENT, JsonValue, Pointer, Repair
from proxy.core.noun import noun
from proxy.core.policy import RepairPolicy
from proxy.core.proposals import NONE, Site, read_inside
from proxy.core.reach import asked
from proxy.core.respell import respell_integers
from proxy.core.rules import Rule
from proxy.core.schema import Node
from proxy.core.sites import applies_always, facts
from proxy.core.validation import Check
from proxy.core.work import TooMuchWorkError, Work

# The work one call's repair may take: about a second, hundreds of times what the largest real call takes.
MAX_WORK: Final = 300_000
_MAX_PATH: Final = 64
# An object is gone over again while a change may have made another one possible (a union's branch, an `if`).
_MAX_ROUNDS: Final = 4
# What fitting one value to one node costs beside the judge.
_FIT: Final = 5
# Characters read as a value for one unit of work; text that has to be mended is read character by character.
_READ: Final = 5
# Proposals of these rules may be repaired further inside; all others must be right as they are.
_NESTING: Final = frozenset({"parse_json_string", "python_literal", "schema_shaped", "first_of_one"})
# Of these, a result that is not accepted is kept, so that the answer can speak of what stands inside the text.
_READING: Final = frozenset({"parse_json_string", "python_literal"})
# Tried only where nothing else gives the call a meaning (repair.md: unwrap, then these in order).
_LAST_RESORTS: Final = frozenset({"schema_shaped", "object_to_json_string"})


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """A place where two or more repairs are possible: each with its rule's name and what it would make of the value."""

    path: Pointer
    options: tuple[tuple[str, JsonValue], ...] = field(repr=False)


@noun
class Repaired:
    """What the engine made of a value. `accepted` is the judge's last word; if it is False, `value` is as far as the
    repairs got and nothing of it may be sent. `exhausted`: it gave up, because the call took too much work."""

    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...]
    accepted: bool
    ambiguous: tuple[Ambiguity, ...] = ()
    exhausted: bool = False


def repair(check: Check, value: JsonValue, policy: RepairPolicy, limit: int = MAX_WORK) -> Repaired:
    """Repairs one value (the arguments) under a policy. Never changes `value` itself; never raises.

    `limit` bounds the work, in the units of `work.py`.
    """
    run = _Run(check, policy, Work(limit))
    try:
        fitted = run.arguments(value)
    except (RecursionError, TooMuchWorkError):
        return Repaired(value, (), False, exhausted=True)
    if not fitted.accepted:
        return Repaired(fitted.value, fitted.repairs, False, tuple(run.ambiguous.values()))
    respelt, repairs = respell_integers(check, fitted.value, policy)
    return Repaired(respelt, fitted.repairs + repairs, True)


class _Run:
    """One repair of one call's arguments."""

    def __init__(self, check: Check, policy: RepairPolicy, work: Work) -> None:
        self.check = check
        self.policy = policy
        self.work = work
        self.ambiguous: dict[Pointer, Ambiguity] = {}
        # Keyed by identity; the value is kept beside the result so that its id stays taken.
        self.memo: dict[tuple[int, int, Pointer, frozenset[str]], tuple[JsonValue, Fit]] = {}

    def accepts(self, node: Node, value: JsonValue) -> bool:
        """The judge's word on a value at a node."""
        self.work.look(value)
        return self.check.accepts_at(node, value)

    # --- the whole arguments ------------------------------------------------------------------------------------
    def arguments(self, value: JsonValue) -> Fit:
        """Fits the arguments as a whole; a wrapper around them is considered here and nowhere else."""
        root, rules = self.check.root, self.policy.rules
        if "unwrap_arguments" not in rules or not isinstance(value, dict) or self.accepts(root, value):
            return self.fit(root, value, (), rules)
        direct = self.fit(root, value, (), rules - _LAST_RESORTS)
        inner = self.unwrapped(value)
        if direct.accepted and inner is not None and not equal(direct.value, inner.value):
            self.note(("", direct.value), ("unwrap_arguments", inner.value))
            return Fit(value, (), False)
        if direct.accepted:
            return direct
        return inner or self.fit(root, value, (), rules)

    def unwrapped(self, value: dict[str, JsonValue]) -> Fit | None:
        """The inner object of `{"arguments": {...}}`, if it is the call's only meaning."""
        known = declared(applies_always(self.check.root))
        others = [key for key in value if key not in self.policy.drop_keys]
        if len(others) != 1 or (len(value) > 1 and others[0] not in known):
            return None
        inner = value[others[0]]
        if not isinstance(inner, dict) or not known & inner.keys():
            return None
        fitted = self.fit(self.check.root, inner, (), self.policy.rules - _LAST_RESORTS)
        if not fitted.accepted:
            return None
        return Fit(fitted.value, (Repair("unwrap_arguments", (others[0],)), *fitted.repairs), True)

    # --- one value at one node ----------------------------------------------------------------------------------
    def fit(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit:
        """The value as the node takes it: untouched if it is accepted, else repaired as far as the rules reach."""
        key = (id(node), id(value), path, rules)
        known = self.memo.get(key)
        if known is not None:
            return known[1]
        self.work.spend(_FIT)
        fitted = self._fit(node, value, path, rules)
        self.memo[key] = (value, fitted)
        return fitted

    def _fit(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit:
        if self.accepts(node, value):
            return Fit(value, (), True)
        allowed = facts(node).allowed
        rules = rules if allowed is None else rules & allowed
        if not rules or len(path) >= _MAX_PATH:
            return Fit(value, (), False)
        inside = Fit(value, (), False)
        if isinstance(value, dict | list):
            inside = self.parts(node, value, path, rules)
            if inside.accepted:
                return inside
        return self.proposals(node, value, path, rules) or inside

    def proposals(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit | None:
        """What the value rules make of a refused value: the one accepted proposal of the best tier that has any.

        Where none is accepted but text was read as a container, that reading is given back unaccepted, so that the
        answer can speak of what is wrong inside it.
        """
        self.work.spend(_FIT)
        site, tiers = asked(node, type(value), rules)
        partial: Fit | None = None
        for tier in tiers:
            found: list[tuple[Rule, Fit]] = []
            for rule in tier:
                fitted = self.proposal(rule, node, value, site, path, rules)
                if fitted is None:
                    continue
                if fitted.accepted:
                    found.append((rule, fitted))
                elif rule.name in _READING:
                    partial = partial or fitted
            if found:
                return self.only(found, path)
        return partial

    def proposal(
        self, rule: Rule, node: Node, value: JsonValue, site: Site, path: Pointer, rules: frozenset[str]
    ) -> Fit | None:
        """One rule's proposal, judged; None if there is none worth keeping."""
        if rule.name in _NESTING and isinstance(value, str):
            self.work.spend(len(value) // _READ)
        candidate = NONE if rule.propose is None else rule.propose(value, site)
        if candidate is NONE:
            return None
        made: tuple[Repair, ...] = (Repair(rule.name, path),)
        if rule.name == "parse_json_string" and (read := read_inside(value, site)) is not None:
            made += tuple(Repair(name, path) for name in read[1])
        if self.accepts(node, candidate):
            return Fit(candidate, made, True)
        if rule.name not in _NESTING or not isinstance(candidate, dict | list):
            return None
        inner = self.parts(node, candidate, path, rules)
        return Fit(inner.value, (*made, *inner.repairs), inner.accepted)

    def only(self, found: list[tuple[Rule, Fit]], path: Pointer) -> Fit | None:
        """The one meaning among accepted proposals, or None (and a note) where they differ."""
        meanings = self.meanings([fitted for _, fitted in found])
        if len(meanings) == 1:
            return meanings[0]
        self.note(*((rule.name, fitted.value) for rule, fitted in found), path=path)
        return None

    def meanings(self, fits: list[Fit]) -> list[Fit]:
        """One of each different value."""
        if len(fits) < 2:
            return fits
        self.work.spend(sum(self.work.size(fitted.value) for fitted in fits) * len(fits))
        return distinct(fits)

    def note(self, *options: tuple[str, JsonValue], path: Pointer = ()) -> None:
        """Remembers that a place is ambiguous."""
        self.ambiguous[path] = Ambiguity(path, options)

    # --- objects and arrays -------------------------------------------------------------------------------------
    def parts(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit:
        """Repairs the parts of an object or array.

        Which schemas apply may depend on the value (`if`, dependent schemas). If repairs made that change, they are
        made again from the start under the schemas that apply in the end; if that does not settle, nothing counts.
        """
        fitted, used = self.rounds(node, value, path, rules, value)
        if not fitted.accepted:
            return fitted
        final = _identities(self.applying(node, fitted.value))
        if final == used:
            return fitted
        again, _ = self.rounds(node, value, path, rules, fitted.value)
        settled = again.accepted and _identities(self.applying(node, again.value)) == final
        return again if settled else Fit(value, (), False)

    def rounds(
        self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str], judged: JsonValue
    ) -> tuple[Fit, frozenset[int]]:
        """Goes over the parts until the node accepts the whole or nothing changes any more.

        `judged` is the value by which conditional schemas are chosen. Gives the result and the schemas applied.
        """
        work = value
        repairs: tuple[Repair, ...] = ()
        nodes = tuple(self.applying(node, judged))
        used = _identities(nodes)
        for _ in range(_MAX_ROUNDS):
            before = work
            for step in (self.keys, self.children, self.unions, self.defaults):
                work, made = step(node, nodes, work, path, rules)
                repairs = (*repairs, *made)
                if made and self.accepts(node, work):
                    return Fit(work, repairs, True), used
            if work is before or not isinstance(work, dict | list):
                break
            if _is_settled(nodes, before, work) and self.takes_changed(nodes, before, work):
                break
            if judged is value and not isinstance(work, list):
                nodes = tuple(self.applying(node, work))
                used |= _identities(nodes)
        return Fit(work, repairs, False), used

    def takes_changed(self, nodes: tuple[Node, ...], before: JsonValue, work: JsonValue) -> bool:
        """Whether every member that a round changed is now what its schemas take."""
        for step, item in work.items() if isinstance(work, dict) else enumerate(work):
            if item is not before[step]:
                for schema in schemas_of(nodes, step, self.work):
                    if not self.accepts(schema, item):
                        return False
        return True

    def applying(self, node: Node, value: JsonValue) -> Iterator[Node]:
        """Every node that judges this very value: references, `allOf`, the chosen side of `if`, dependent schemas."""
        seen: set[int] = set()
        stack = [node]
        while stack:
            for current in applies_always(stack.pop()):
                if id(current) in seen:
                    continue
                seen.add(id(current))
                self.work.spend(1)
                yield current
                if current.condition is not None:
                    test, then, other = current.condition
                    side = then if self.accepts(test, value) else other
                    stack.extend([side] if side is not None else [])
                if isinstance(value, dict):
                    stack.extend(schema for key, schema in current.dependent.items() if key in value)

    # The steps of a round. Each gives the value (the same object if nothing changed) and the repairs it made.
    def keys(
        self, node: Node, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: frozenset[str]
    ) -> tuple[JsonValue, tuple[Repair, ...]]:
        """Renames keys that differ from a declared one in spelling alone; removes plumbing keys."""
        del node
        if not isinstance(work, dict) or not rules & {"key_case", "drop_unknown"}:
            return work, ()
        return renamed(nodes, work, path, rules, self.policy.drop_keys, self.accepts, self.work)

    def children(
        self, node: Node, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: frozenset[str]
    ) -> tuple[JsonValue, tuple[Repair, ...]]:
        """Fits every member of an object or array to all schemas that apply to it."""
        del node
        wanted = required(nodes)
        repairs: list[Repair] = []
        changed: dict[str | int, JsonValue] = {}
        members = work.items() if isinstance(work, dict) else enumerate(work)
        for step, item in members:
            schemas = schemas_of(nodes, step, self.work)
            if len(schemas) == 1 and self.accepts(schemas[0], item):
                continue  # as nearly every member
            fitted = self.member(schemas, item, (*path, step), rules)
            if not fitted.accepted and isinstance(work, dict) and step not in wanted:
                taken_out = without(schemas, item, (*path, step), rules)
                fitted = Fit(ABSENT, taken_out, True) if taken_out else fitted
            if fitted.value is not item:
                changed[step] = fitted.value
                repairs.extend(fitted.repairs)
        if not changed:
            return work, ()
        if isinstance(work, list):
            return [changed.get(index, item) for index, item in enumerate(work)], tuple(repairs)
        return removed({key: changed.get(key, item) for key, item in work.items()}), tuple(repairs)

    def member(self, schemas: list[Node], item: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit:
        """One member fitted to each schema in turn; accepted only if in the end all accept it."""
        fitted = Fit(item, (), True)
        for schema in schemas:
            step = self.fit(schema, fitted.value, path, rules)
            fitted = Fit(step.value, fitted.repairs + step.repairs, fitted.accepted and step.accepted)
        if fitted.repairs and len(schemas) > 1 and fitted.accepted:
            settled = all(self.accepts(schema, fitted.value) for schema in schemas)
            return fitted if settled else Fit(item, (), False)
        return fitted

    def unions(
        self, node: Node, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: frozenset[str]
    ) -> tuple[JsonValue, tuple[Repair, ...]]:
        """For each union no branch of which takes the value: the one branch that does after repair."""
        repairs: tuple[Repair, ...] = ()
        for schema in nodes:
            for branches in (schema.any_of, schema.one_of):
                if not branches or any(self.accepts(branch, work) for branch in branches):
                    continue
                chosen = self.branch(node, branches, work, path, rules)
                if chosen is not None and chosen.value is not work:
                    work, repairs = chosen.value, repairs + chosen.repairs
        return work, repairs

    def branch(
        self, node: Node, branches: tuple[Node, ...], work: JsonValue, path: Pointer, rules: frozenset[str]
    ) -> Fit | None:
        """The one branch that takes the value after repair; a discriminating const or enum chooses first."""
        self.work.spend(len(branches))
        fits = [self.fit(branch, work, path, rules) for branch in discriminated(branches, work)]
        accepted = self.meanings([fitted for fitted in fits if fitted.accepted])
        if len(accepted) > 1:
            accepted = [fitted for fitted in accepted if self.accepts(node, fitted.value)] or accepted
        if len(accepted) > 1:
            self.note(*((fitted.rules, fitted.value) for fitted in accepted), path=path)
            return None
        if accepted:
            return accepted[0]
        return fits[0] if len(fits) == 1 else None

    def defaults(
        self, node: Node, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: frozenset[str]
    ) -> tuple[JsonValue, tuple[Repair, ...]]:
        """The one missing optional key whose `default` makes the object acceptable."""
        if "fill_default" not in rules or not isinstance(work, dict):
            return work, ()
        return filled(node, nodes, work, path, self.accepts)


def _is_settled(nodes: tuple[Node, ...], before: JsonValue, work: JsonValue) -> bool:
    """Whether only a member of its own could change any more: none came, went or got another name, and none of the
    schemas depends on what stands in another (a union's branch, an `if`)."""
    for node in nodes:
        if node.any_of or node.one_of or node.condition is not None or node.dependent:
            return False
    return before.keys() == work.keys() if isinstance(work, dict) else isinstance(before, list)


def _identities(nodes: Iterable[Node]) -> frozenset[int]:
    return frozenset(id(node) for node in nodes)
