"""The repair engine: changes refused arguments where the schema leaves exactly one meaning (docs/repair.md).

How it works. `fit(node, value)` asks the judge first; an accepted value is not touched. The notations that are on read
a refused scalar: the readings that the judge accepts count, and if they differ the value is ambiguous and stays as it
is. A refused object or array is repaired part by part. Each part is fitted to every schema that applies to it, and the
key rules rename or remove keys. For each union that accepts no branch the branches are fitted one by one. Exactly one
result may remain. Any result counts only if the judge accepts the whole. A failed result is kept as far as it got, so
that the answer can describe what is still wrong. Everything is bounded: each (node, value) pair is fitted once, paths
end at 64 steps, and the work of a call is counted (`work.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.json.jsontext import are_equal
from proxy.core.model.values import ABSENT, JsonValue, Pointer, Repair, value_class
from proxy.core.model.work import REPAIRING, SINGLE, TooMuchWorkError, Work, borrow_work
from proxy.core.repair.fast_repair import CHOICES, FIT, OF_KEYS, READ, repair_plainly
from proxy.core.repair.respell import WRAPPER_RULES, respell_integers, respell_keys, unwrap
from proxy.core.rules.branches import Ambiguity, Fit, select_branches
from proxy.core.rules.facts import (
    list_applicable_rules,
    list_applying,
    list_declared,
    list_member_schemas,
    list_required,
    read_facts,
)
from proxy.core.rules.keys import FILLING, KEY_RULES, Changed, drop_null, fill_defaults, rename_one_key
from proxy.core.rules.proposals import Site, read_inside
from proxy.core.rules.rules import ASSUMING, Rule
from proxy.core.schema.nodes import Node

_MAX_PATH: Final = 64
# The most rounds over one object. A change may make another one possible (in a union's branch, in an `if`).
_MAX_ROUNDS: Final = 4
_CONTAINERS: Final = (dict, list)
_Names = frozenset[str]
Step = Callable[[tuple[Node, ...], JsonValue, Pointer, _Names], Changed]


@value_class
class Repaired:
    """The engine's result for a value. `accepted` is the judge's final verdict; if it is False, `value` is as far as
    the repairs got and must not be sent. `exhausted`: the engine gave up, because the call took too much work."""

    value: JsonValue = field(repr=False)
    repairs: tuple[Repair, ...]
    accepted: bool
    ambiguous: tuple[Ambiguity, ...] = ()
    exhausted: bool = False


def repair(
    check: Check,
    value: JsonValue,
    policy: RepairPolicy,
    limit: int = REPAIRING,
    *,
    tool: str = "",
    refused: bool = False,
) -> Repaired:
    """Repairs one value (the arguments) under a policy. Never changes `value` itself; never raises. `tool` is the
    tool's name, which a call may hold once more; `limit` bounds the work (`work.py`); `refused`: the judge has refused
    the value already."""
    try:
        with borrow_work(limit) as work:
            run = _Run(check, policy, work, tool)
            plain = repair_plainly(check, value, policy.rules, tool, work) if refused else None
            fitted = plain or run.arguments(value, refused=refused)
            if fitted.accepted and not KEY_RULES.isdisjoint([made.rule for made in fitted.repairs]):
                # No half repair: every other undeclared key that folds to a declared one is renamed too, at any depth.
                renamed, repairs = respell_keys(check, fitted.value, policy)
                if repairs:
                    again = run.arguments(renamed)
                    made = (*fitted.repairs, *repairs, *again.repairs)
                    fitted = Fit(again.value, made, True) if again.accepted else Fit(value, (), False)
    except (RecursionError, TooMuchWorkError):
        return Repaired(value, (), False, exhausted=True)
    if not fitted.accepted:
        return Repaired(fitted.value, fitted.repairs, False, tuple(run.ambiguous.values()))
    respelt, repairs = respell_integers(check, fitted.value, policy)
    return Repaired(respelt, fitted.repairs + repairs, True)


class _Run:
    """One repair of one call's arguments."""

    def __init__(self, check: Check, policy: RepairPolicy, work: Work, tool: str) -> None:
        self.check = check
        self.judges = check.judges
        self.policy = policy
        self.work = work
        self.tool = tool
        self.ambiguous: dict[Pointer, Ambiguity] = {}
        # Keyed by identity. Each value is stored beside its result, so that its id is not used again.
        self.memo: dict[tuple[int, int, Pointer, frozenset[str]], tuple[JsonValue, Fit]] = {}

    def accepts(self, node: Node, value: JsonValue) -> bool:
        work = self.work
        work.left -= 1 if type(value) in SINGLE else work.size(value)
        if work.left < 0:
            raise TooMuchWorkError
        judge = self.judges.get(node)
        return judge(value) if judge is not None else self.check.accepts_at(node, value)

    # --- the whole arguments ------------------------------------------------------------------------------------
    def arguments(self, value: JsonValue, *, refused: bool = False) -> Fit:
        """Fits the arguments as a whole. Only here is a wrapper around them considered."""
        root, rules = self.check.root, self.policy.rules
        if not refused and self.accepts(root, value):
            return Fit(value, (), True)
        if not rules & WRAPPER_RULES or not isinstance(value, _CONTAINERS):
            return self.fit(root, value, (), rules, refused=True)
        direct = self.fit(root, value, (), rules, refused=True)
        inner = unwrap(self, value)
        if not direct.accepted:
            return inner or direct
        if inner is not None and inner.accepted and not are_equal(direct.value, inner.value):
            self.note(("", direct.value), (inner.repairs[0].rule, inner.value))
            return Fit(value, (), False)
        return direct

    # --- one value at one node ----------------------------------------------------------------------------------
    def fit(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str], *, refused: bool = False) -> Fit:
        """The value as the node accepts it, or as far as the rules reach. `refused`: it was refused here before."""
        key = (id(node), id(value), path, rules)
        if (known := self.memo.get(key)) is not None:
            return known[1]
        self.work.left -= FIT  # counted in place, here and below: most refused values come by
        if self.work.left < 0:
            raise TooMuchWorkError
        fitted: Fit | None = None
        if not refused and self.accepts(node, value):
            fitted = Fit(value, (), True)
        elif len(path) < _MAX_PATH:
            fitted = self.parts(node, value, path, rules) if isinstance(value, _CONTAINERS) else None
            if fitted is None or not fitted.accepted:
                fitted = self.readings(node, value, path, rules) or fitted
        fitted = fitted or Fit(value, (), False)
        self.memo[key] = (value, fitted)
        return fitted

    def readings(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit | None:
        """The one accepted reading of a value. If none is accepted but a text was read as a container, that reading is
        returned unaccepted, for the answer to describe."""
        applicable = list_applicable_rules(node, type(value), rules, bool(path) and isinstance(path[-1], str))
        if applicable is None:
            return None
        rules, site, notations = applicable
        self.work.left -= FIT
        if self.work.left < 0:
            raise TooMuchWorkError
        choosing = 0 if site.choices is None else len(site.choices) // CHOICES
        partial: Fit | None = None
        found: list[tuple[Rule, Fit]] = []
        for rule, read in notations:
            if choosing or rule.nests:
                self.work.spend(choosing + (len(value) // READ if rule.nests and isinstance(value, str) else 0))
            result = read(value, site)
            if result is None:
                continue
            fitted = self.judge_reading(rule, node, value, result[0], site, path, rules)
            if fitted is not None and fitted.accepted:
                found.append((rule, fitted))
            elif fitted is not None and rule.reads:
                partial = partial or fitted
        if len(found) < 2:
            return found[0][1] if found else partial
        if len(meanings := self.meanings([fitted for _, fitted in found])) == 1:
            return meanings[0]
        self.note(*((rule.name, fitted.value) for rule, fitted in found), path=path)
        return None

    def judge_reading(
        self, rule: Rule, node: Node, value: JsonValue, candidate: JsonValue, site: Site, path: Pointer, rules: _Names
    ) -> Fit | None:
        """One rule's reading, judged, and repaired inside if the rule allows that; None if nothing is worth keeping."""
        made: tuple[Repair, ...] = (Repair(rule.name, path),)
        if rule.json and (read := read_inside(value, site, rule.json & site.types or rule.json)) is not None:
            made += tuple(Repair(name, path) for name in read[1])
        if self.accepts(node, candidate):
            return Fit(candidate, made, True)
        holds_parts = isinstance(candidate, (dict, list))
        allowed = rules if rule.nests and holds_parts else rules & rule.inside
        if not allowed:
            return None
        refit = self.parts if holds_parts else self.readings
        inner = refit(node, candidate, path, allowed)
        return None if inner is None else Fit(inner.value, (*made, *inner.repairs), inner.accepted)

    def meanings(self, fits: list[Fit]) -> list[Fit]:
        """The fits without duplicates of the same value."""
        if len(fits) < 2:
            return fits
        self.work.spend(sum(self.work.size(fitted.value) for fitted in fits) * len(fits))
        kept: list[Fit] = []
        for fitted in fits:
            if not any(are_equal(fitted.value, other.value) for other in kept):
                kept.append(fitted)
        return kept

    def note(self, *options: tuple[str, JsonValue], path: Pointer = ()) -> None:
        self.ambiguous[path] = Ambiguity(path, options)

    # --- objects and arrays -------------------------------------------------------------------------------------
    def parts(self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit | None:
        """Repairs the parts of an object or array; None if `x-repair` leaves no rule on. If the repairs changed the
        applicable schemas (`if`, dependent schemas), they are made again under those; if that is not stable, nothing
        counts."""
        allowed = read_facts(node).allowed
        rules = rules if allowed is None else rules & allowed
        if not rules:
            return None
        fitted, used = self.rounds(node, value, path, rules, value)
        if not fitted.accepted or not node.is_conditional:
            return fitted
        final = frozenset(self.applying(node, fitted.value))
        if final == used:
            return fitted
        again, _ = self.rounds(node, value, path, rules, fitted.value)
        settled = again.accepted and frozenset(self.applying(node, again.value)) == final
        return again if settled else Fit(value, (), False)

    def rounds(
        self, node: Node, value: JsonValue, path: Pointer, rules: frozenset[str], judged: JsonValue
    ) -> tuple[Fit, frozenset[Node]]:
        """Repairs the parts until the node accepts the whole or nothing changes any more. `judged` is the value by
        which conditional schemas are chosen. Gives the result and the schemas applied."""
        work = value
        repairs: tuple[Repair, ...] = ()
        nodes = self.applying(node, judged)
        used = frozenset(nodes)
        for _ in range(_MAX_ROUNDS):
            before = work
            for step in self.steps(nodes, rules):
                work, made = step(nodes, work, path, rules)
                repairs = (*repairs, *made)
                if made and self.accepts(node, work):
                    return Fit(work, repairs, True), used
            if work is before or not isinstance(work, _CONTAINERS) or self.is_settled(nodes, before, work):
                break
            if judged is value and not isinstance(work, list):
                nodes = self.applying(node, work)
                used |= frozenset(nodes)
        return Fit(work, repairs, False), used

    def steps(self, nodes: tuple[Node, ...], rules: _Names) -> Iterator[Step]:
        """The steps of a round that can change anything under these schemas and rules: each gives the value, the same
        object if nothing changed, and its repairs."""
        if not rules.isdisjoint(OF_KEYS):
            yield self.keys
        yield self.children
        for node in nodes:
            if node.any_of or node.one_of:
                yield self.unions
                break
        if not rules.isdisjoint(FILLING):
            yield partial(fill_defaults, accepts=self.accepts)

    def is_settled(self, nodes: tuple[Node, ...], before: JsonValue, work: JsonValue) -> bool:
        """Returns whether another round changes nothing: the keys are the same, no schema depends on several members,
        and each member that was changed is accepted."""
        for node in nodes:
            if node.any_of or node.one_of or node.condition is not None or node.dependent:
                return False
        if before.keys() != work.keys() if isinstance(work, dict) else not isinstance(before, list):
            return False
        for step, item in work.items() if isinstance(work, dict) else enumerate(work):
            if item is not before[step]:
                for schema in list_member_schemas(nodes, step, self.work):
                    if not self.accepts(schema, item):
                        return False
        return True

    def applying(self, node: Node, value: JsonValue) -> tuple[Node, ...]:
        return list_applying(node, value, self.accepts, self.work)

    def keys(self, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: _Names) -> Changed:
        """Renames keys that differ from a declared one only in spelling; removes plumbing keys."""
        if not isinstance(work, dict):
            return work, ()
        known = list_declared(nodes)
        self.work.spend(len(known) + len(work))
        if work.keys() <= known:
            return work, ()
        aliases = {} if path else self.policy.aliases
        return rename_one_key(nodes, work, path, rules, self.policy.drop_keys, aliases, self.accepts, self.work)

    def children(self, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: _Names) -> Changed:
        """Fits every member of an object or array to all schemas that apply to it."""
        refused = self.list_refused(nodes, work)
        wanted = list_required(nodes) if refused else set()
        repairs: list[Repair] = []
        changed: dict[str | int, JsonValue] = {}
        for step, item, schemas in refused:
            place = (*path, step)
            if len(schemas) == 1:
                fitted = self.fit(schemas[0], item, place, rules, refused=True)
            else:
                fitted = self.member(schemas, item, place, rules)
            if item is None and not fitted.accepted and isinstance(work, dict) and step not in wanted:
                made = drop_null(schemas, place, rules, keeps_defaults=self.policy.keeps_defaults)
                fitted = Fit(ABSENT, made, True) if made else fitted
            if fitted.value is not item:
                changed[step] = fitted.value
                repairs.extend(fitted.repairs)
        if isinstance(work, list) and changed:
            work = [changed.get(index, item) for index, item in enumerate(work)]
        elif changed:
            work = {key: item for key, item in {**work, **changed}.items() if item is not ABSENT}
        return work, tuple(repairs)

    def list_refused(self, nodes: tuple[Node, ...], work: JsonValue) -> list[tuple[str | int, JsonValue, list[Node]]]:
        """The members of an object or array that one schema refuses, or that several judge, with those schemas."""
        found: list[tuple[str | int, JsonValue, list[Node]]] = []
        for step, item in work.items() if isinstance(work, dict) else enumerate(work):
            schemas = list_member_schemas(nodes, step, self.work)
            if len(schemas) != 1 or not self.accepts(schemas[0], item):
                found.append((step, item, schemas))
        return found

    def member(self, schemas: list[Node], item: JsonValue, path: Pointer, rules: frozenset[str]) -> Fit:
        """Fits a member to each schema in turn; the result is accepted only if all schemas accept it."""
        fitted = Fit(item, (), True)
        for schema in schemas:
            step = self.fit(schema, fitted.value, path, rules)
            fitted = Fit(step.value, fitted.repairs + step.repairs, fitted.accepted and step.accepted)
        is_done = not fitted.repairs or not fitted.accepted
        return fitted if is_done or all(self.accepts(each, fitted.value) for each in schemas) else Fit(item, (), False)

    def unions(self, nodes: tuple[Node, ...], work: JsonValue, path: Pointer, rules: _Names) -> Changed:
        """For each union without an accepting branch: the one branch that accepts the value after repair."""
        repairs: tuple[Repair, ...] = ()
        for schema in nodes:
            for branches in (schema.any_of, schema.one_of):
                if not branches or any(self.accepts(branch, work) for branch in branches):
                    continue
                # Missing keys distinguish branches, so none is assumed here.
                chosen = self.branch(nodes[0], branches, work, path, rules - ASSUMING)
                if chosen is not None and chosen.value is not work:
                    work, repairs = chosen.value, repairs + chosen.repairs
        return work, repairs

    def branch(
        self, node: Node, branches: tuple[Node, ...], work: JsonValue, path: Pointer, rules: _Names
    ) -> Fit | None:
        """The one branch that accepts the value after repair; a discriminating const or enum chooses first."""
        self.work.spend(len(branches))
        fits = [self.fit(branch, work, path, rules) for branch in select_branches(branches, work)]
        accepted = self.meanings([fitted for fitted in fits if fitted.accepted])
        if len(accepted) > 1:
            accepted = [fitted for fitted in accepted if self.accepts(node, fitted.value)] or accepted
        if len(accepted) > 1:
            options = (("+".join(made.rule for made in fitted.repairs), fitted.value) for fitted in accepted)
            self.note(*options, path=path)
            return None
        return accepted[0] if accepted else fits[0] if len(fits) == 1 else None
