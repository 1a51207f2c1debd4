"""Adds what makes the next call right to an answer with errors: the tool's signature and an example.

The example (`make_example`) has the good values that the caller sent, and placeholders for what is wrong or missing. It
never invents a plausible value for a wrong one. In place of an unknown value it has `<string>` or `<integer>`, and the
example is marked as incomplete (docs/contract.md). Of a union the example shows the branch that the caller meant; if
that is open, a placeholder replaces the property that distinguishes the branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.explain.expectation import describe_types, list_choices, list_unlisted_types
from proxy.core.explain.misplaced import WRONG, keep_good
from proxy.core.explain.places import find_nodes_at, find_possible_nodes, find_value, list_declared_at, put_member
from proxy.core.explain.signature import (
    SHORT_ACCEPTS,
    Wanted,
    is_placeholder,
    make_copyable,
    write_accepts,
    write_schema,
)
from proxy.core.explain.undeclared import list_candidates
from proxy.core.json.jsontext import are_equal, dumps_known, name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import REQUIRED_MISSING
from proxy.core.model.values import ABSENT, JsonValue, Pointer, ToolResult, Violation
from proxy.core.model.work import SKETCHING, TooMuchWorkError, Work
from proxy.core.rules.branches import list_shared_choices, select_branches
from proxy.core.rules.facts import list_declared, list_member_schemas, list_required, list_schemas_by_key, read_facts
from proxy.core.rules.proposals import Site
from proxy.core.schema.nodes import Node


def add_advice(result: ToolResult, policy: ToolPolicy | None) -> ToolResult:
    """The result with `accepts` and `example`, where arguments broke a schema; any other result comes back unchanged.

    The example keeps what the caller sent well, never what was just refused, by us or by the tool; it is sanitised like
    every other echo of arguments. One that holds a placeholder is not complete: it shows the shape.
    """
    check = None if policy is None else policy.check
    if result.failure.advice is not None:
        accepts, text, complete = result.failure.advice
        return replace(result, accepts=accepts, example=text, example_complete=complete)
    sent, found = result.failure.sent, result.failure.violations
    if check is None or (not found and result.failure.code not in _UNPLACED):
        return result
    base = sent if result.failure.mended is ABSENT else result.failure.mended
    accepts = _write_accepts(check, base, found)
    if not found:
        return replace(result, accepts=accepts)
    value, is_valid = make_example(check, *keep_good(check, base, found))
    safe = make_copyable(check, value, base, result.limits)
    text = "" if safe is ABSENT else dumps_known(safe).decode()
    complete = is_valid and safe == value and not ('"<' in text and _holds_placeholder(safe))
    # Refused arguments are no example, nor are arguments without a key that may have another name.
    is_refused = sent is not ABSENT and are_equal(safe, sent)
    if (
        safe is ABSENT
        or is_refused
        or (complete and any(each.code is codes.UNKNOWN_FIELD and each.hint.startswith(_ASKING) for each in found))
    ):
        text, complete = "", False
    return ToolResult(  # `replace` takes several times as long
        result.call, result.failure, result.attempt, result.escalated, result.repeated, result.history, accepts, text,
        complete, result.extra, result.repairs, result.limits, result.finalising,
    )  # fmt: skip


# Failures by which a tool refuses its arguments without saying which: the answer says all the same what it takes.
_UNPLACED: Final = (codes.UPSTREAM_REJECTED_ARGUMENTS, codes.INVALID_REQUEST)
# The beginnings of a hint if it is open which field an unknown key means.
_ASKING: Final = ("If you", "If no", "Did you", "Name it so", "It belongs to", "It may belong to")


def _write_accepts(check: Check, sent: JsonValue, found: Iterable[Violation]) -> tuple[str, ...]:
    """Returns the accepted arguments in several sizes: the schema itself, if it is shorter than its description."""
    shown: list[Pointer] = []
    missing: list[Pointer] = []
    undeclared: list[Pointer] = []
    around: set[Pointer] = set()
    for violation in found:
        path = violation.path
        if violation.code is REQUIRED_MISSING and path and isinstance(path[-1], str):
            (missing if find_possible_nodes(check, path) else undeclared).append(path)
            around.add(path[:-1])
        elif violation.code is codes.UNKNOWN_FIELD and path:
            around.add(path[:-1])
        elif path:
            shown.append(path)
    candidates: list[Pointer] = []
    for place in around:  # the fields that unknown keys of an object may mean
        holder, declared = find_value(sent, place), list_declared_at(check, place)
        if isinstance(holder, dict):
            unsent = {key: member for key, member in declared.items() if key not in holder}
            unknown = islice((key for key in holder if key not in declared), _MOST_KEYS)
            names = {name for key in unknown for name in list_candidates(key, unsent)}
            candidates += [(*place, name) for name in sorted(names)]
    sizes = write_accepts(check.root, Wanted(tuple(shown), tuple(missing), tuple(undeclared), tuple(candidates)))
    schema = write_schema(check.root) if len(sizes[0]) > SHORT_ACCEPTS else ""
    return (f"JSON Schema {schema}", *sizes) if schema and len(schema) < len(sizes[0]) else sizes


_MOST_KEYS: Final = 12


def _holds_placeholder(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(_holds_placeholder(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_placeholder(item) for item in value)
    return is_placeholder(value)


# --- the example ------------------------------------------------------------------------------------------------------
_MAX_DEPTH: Final = 24
_PLACE: Final = 20
# Characters of a placeholder, and items of a list that are kept.
_LONGEST_PLACEHOLDER: Final = 80
_ITEMS: Final = 20
# Drawings that a schema remembers.
_MOST_DRAWN: Final = 512


def make_example(
    check: Check, sent: JsonValue = ABSENT, places: Mapping[Pointer, str] = MappingProxyType({})
) -> tuple[JsonValue, bool]:
    """Returns arguments with every required key, those at `places` too (with their expectation in words), and the
    caller's good values (`sent`, with `WRONG` in the place of the others). Also returns whether they are valid;
    otherwise they only show the shape. `ABSENT` if not even that can be shown. Deterministic; never raises."""
    try:
        sketch = _Sketch(check, Work(SKETCHING), sent)
        value = sketch.draw(check.root, sent, 0)
        for path in [path for path in places if find_value(value, path) is ABSENT]:
            value = sketch.add(value, path, places[path])
    except (TooMuchWorkError, RecursionError):
        return ABSENT, False
    return value, value is not ABSENT and check.accepts(value)


class _Sketch:
    """Draws an example for an answer: good values of the caller, and placeholders for unknown values."""

    def __init__(self, check: Check, work: Work, sent: JsonValue) -> None:
        self.check = check
        self.work = work
        self.holders: set[int] = set()  # containers with a wrong value inside, by identity
        _find_holders(sent, self.holders)
        self.items: set[int] = set()  # the items that are being drawn, by their schema's identity
        # The drawings of places without a sent value, and their work, by the schema's identity and the depth. If a
        # search may be given up for want of work, a drawing depends on the call, and no other call gets it.
        kept = check.schemas.memos if check.linear else {}
        self.drawn: dict[tuple[int, int], tuple[JsonValue, int]] = kept.setdefault("drawings", {})

    def is_accepted(self, schemas: Sequence[Node], value: JsonValue) -> bool:
        """Returns whether every schema of a place accepts a value."""
        if value is WRONG or id(value) in self.holders:
            return not schemas
        for schema in schemas:
            self.work.look(value)
            judge = self.check.judges.get(schema)
            if not (judge(value) if judge is not None else self.check.accepts_at(schema, value)):
                return False
        return True

    def draw(self, node: Node, sent: JsonValue, depth: int) -> JsonValue:
        """Returns the sent value if it is good; otherwise the first accepted drawing, or else the first of all."""
        if sent is not ABSENT and sent is not WRONG:
            self.work.spend(_PLACE)
            return sent if self.is_accepted((node,), sent) else self.draw_unsent(node, sent, depth)
        known = self.drawn.get((id(node), depth)) if not self.items else None
        if known is None:
            left = self.work.left
            self.work.spend(_PLACE)
            known = self.draw_unsent(node, sent, depth), left - self.work.left
            if not self.items and len(self.drawn) < _MOST_DRAWN:
                self.drawn[id(node), depth] = known
        else:
            self.work.spend(known[1])
        return known[0]

    def draw_unsent(self, node: Node, sent: JsonValue, depth: int) -> JsonValue:
        """The only drawing of a place, or the first that is accepted, or otherwise the first of all."""
        drawings = self.drawings(node, sent, depth) if depth < _MAX_DEPTH else ()
        if type(drawings) is tuple:
            return drawings[0] if drawings else ABSENT
        first = ABSENT
        for drawing in drawings:
            if drawing is not ABSENT and self.is_accepted((node,), drawing):
                return drawing
            first = drawing if first is ABSENT else first
        return first

    def add(self, value: JsonValue, path: Pointer, expected: str) -> JsonValue:
        """Returns the value with a drawing at a path if an object lacks a key that it may have."""
        if find_value(value, path) is not ABSENT:
            return value
        missing = next(index for index in range(len(path)) if find_value(value, path[: index + 1]) is ABSENT)
        if missing < len(path) - 1:  # an object above it is not there either: it is drawn with what it needs
            above = path[: missing + 1]
            larger = self.add(value, above, "") if isinstance(above[-1], str) else value
            return larger if find_value(larger, above) is ABSENT else self.add(larger, path, expected)
        if not isinstance(find_value(value, path[:-1]), dict):
            return value
        schemas = find_nodes_at(self.check, path)
        if not schemas and find_possible_nodes(self.check, path):
            return value  # another branch of a union has it than was drawn
        if not schemas:  # the tool asks for what its schema does not declare
            around = find_nodes_at(self.check, path[:-1])
            is_closed = any(part.additional is not None and part.additional.never for part in around)
            shown = expected.split(" (")[0] if len(expected.split(" (")[0]) <= _LONGEST_PLACEHOLDER else ""
            return value if is_closed else put_member(value, path, f"<{shown.replace(chr(39), '') or 'value'}>")
        drawn = self.draw(schemas[0], ABSENT, len(path))
        return value if drawn is ABSENT else put_member(value, path, drawn)

    def drawings(self, node: Node, sent: JsonValue, depth: int) -> Iterable[JsonValue]:
        """Drawings of a place, best first; a tuple if there is only one."""
        parts = node.always
        site = read_facts(node).site
        if (listed := _draw_listed(site, sent)) is not ABSENT:
            return (listed,)
        unions = [part.any_of or part.one_of for part in parts if part.any_of or part.one_of]
        branches = [each for union in unions for each in select_branches(union, sent)]
        taking = [branch for branch in branches if read_facts(branch).site.types != {"null"}]
        is_nullable, branches = 0 < len(taking) < len(branches), taking or branches
        if isinstance(sent, dict) and branches:  # those that declare most of the sent keys
            counts = [len(list_declared(branch.always) & sent.keys()) for branch in branches]
            branches = [branch for branch, count in zip(branches, counts, strict=True) if count == max(counts)]
        is_object = "object" in site.types and (not branches or bool(list_declared(parts)))
        if is_object and (list_declared(parts) or site.types == {"object"} or isinstance(sent, dict)):
            return (self.object(parts, sent if isinstance(sent, dict) else {}, depth),)
        if (undecided := self.draw_undecided(branches, sent)) is not None:
            return (undecided,)
        drawn = (self.draw_branch(branch, sent, depth, is_nullable) for branch in branches)
        if branches and isinstance(sent, dict):
            return drawn
        if "array" in site.types and isinstance(sent, list) and sent:
            return chain(drawn, self.array(parts, sent, depth))
        return chain(drawn, self.plain(parts, site, depth))

    def draw_branch(self, branch: Node, sent: JsonValue, depth: int, is_nullable: bool) -> JsonValue:
        drawn = self.draw(branch, sent, depth + 1)
        return f"{drawn[:-1]} or null>" if is_nullable and drawn is not sent and is_placeholder(drawn) else drawn

    def array(self, parts: tuple[Node, ...], sent: list[JsonValue], depth: int) -> Iterator[JsonValue]:
        """The accepted items of a sent list, and drawings of the others."""
        schemas = list_member_schemas(parts, 0, self.work)
        more = [f"<{len(sent) - _ITEMS} more items>"] if len(sent) > _ITEMS else []
        if not schemas:  # no schema of the items: leave out only wrong parts inside them
            yield [*_strip(sent[:_ITEMS]), *more]
            return
        yield [*(each if self.is_accepted(schemas, each) else self.draw(schemas[0], each, depth + 1)
                 for each in sent[:_ITEMS]), *more]  # fmt: skip

    def draw_undecided(self, branches: list[Node], sent: JsonValue) -> JsonValue:
        """Returns the sent object with a placeholder for the key that distinguishes branches, None if the branch is
        known."""
        if not isinstance(sent, dict) or len(branches) < 2:
            return None
        for key, choices in list_shared_choices(tuple(branches)):
            if sent.get(key, WRONG) is WRONG:
                declared = {name for branch in branches for name in list_declared(branch.always)}
                kept = {name: _strip(item) for name, item in sent.items() if name in declared and item is not WRONG}
                named = list_choices(choices).replace("'", "")
                return {key: f"<{named if len(named) <= _LONGEST_PLACEHOLDER else 'one of the alternatives'}>", **kept}
        return None

    def plain(self, parts: tuple[Node, ...], site: Site, depth: int) -> Iterator[JsonValue]:
        null = " or null" if "null" in site.types else ""  # never drawn for what was wrong: it may clear a field
        if "string" in site.types:
            form = next((str(part.get("format")) for part in parts if part.has("format")), "string")
            yield f"<{form}{null}>"
        if "array" in site.types:
            least = max((n for part in parts if isinstance(n := part.get("minItems"), int)), default=0)
            schemas = list_member_schemas(parts, 0, self.work)
            inner = self.item(schemas[0], depth) if schemas else "<value>"
            yield [] if inner is ABSENT else [inner] * max(1, min(least, 5))
        if "integer" in site.types:
            yield f"<{describe_types(Site(site.types & {'integer', 'number'}, False, None))}{null}>"
        if "boolean" in site.types:
            yield f"<true or false{null}>"
        if "object" in site.types:
            yield {}
        if site.types == {"null"}:
            yield None

    def item(self, node: Node, depth: int) -> JsonValue:
        """The drawing of an array's item, `ABSENT` within an item of the same schema: a tree has an end."""
        if id(node) in self.items:
            return ABSENT
        self.items.add(id(node))
        drawn = self.draw(node, ABSENT, depth + 1)
        self.items.discard(id(node))
        return drawn

    def object(self, parts: tuple[Node, ...], given: dict[str, JsonValue], depth: int) -> dict[str, JsonValue]:
        """Returns good members as they came; required members are drawn if they are wrong or missing."""
        wanted, known = list_required(parts), list_declared(parts)
        is_map = not known and any(part.additional is not None and not part.additional.never for part in parts)
        named = [key for key, item in given.items() if is_map or key in known or key in wanted or item is WRONG]
        keys = dict.fromkeys((*sorted(wanted & known), *named, *sorted(wanted - known)))
        built: dict[str, JsonValue] = {}
        for key, schemas in list_schemas_by_key(parts, keys.keys(), self.work):
            item = given.get(key, ABSENT)
            if item is not ABSENT and item is not WRONG and self.is_accepted(schemas, item):
                built[key] = item
            elif key in wanted or item is WRONG or isinstance(item, (dict, list)):
                drawn = self.draw(schemas[0], item, depth + 1) if schemas else "<value>"
                if item is WRONG and drawn in ({}, []):  # an empty container would leave out what was sent
                    drawn = f"<{name_json_type(drawn)}>"
                if drawn is not ABSENT:
                    built[key] = drawn
        return built


def _draw_listed(site: Site, sent: JsonValue) -> JsonValue:
    """Returns the only value that a place lists, or a placeholder for all that it takes. `ABSENT` if it lists none, and
    if the sent value is of a type that it takes beside them."""
    rest = list_unlisted_types(site)
    if site.choices is None or site.free_text or (isinstance(sent, (dict, list)) and name_json_type(sent) in rest):
        return ABSENT
    if len(site.choices) == 1 and not rest:
        return site.choices[0]
    named = list_choices(site.choices).replace("'", "")
    several = named if len(named) <= _LONGEST_PLACEHOLDER else f"one of the {len(site.choices)} values"
    return f"<{several}{f' or {describe_types(replace(site, types=rest))}' if rest else ''}>"


def _find_holders(value: JsonValue, holders: set[int]) -> bool:
    """Returns whether a value holds `WRONG` at any depth; adds the containers that do to `holders`, by identity."""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = False
    for item in members:
        if item is WRONG or (isinstance(item, (dict, list)) and _find_holders(item, holders)):
            found = True
    if found:
        holders.add(id(value))
    return found


def _strip(value: JsonValue) -> JsonValue:
    """A value without what is wrong inside it."""
    if isinstance(value, dict):
        return {key: _strip(item) for key, item in value.items() if item is not WRONG}
    return [_strip(item) for item in value if item is not WRONG] if isinstance(value, list) else value
