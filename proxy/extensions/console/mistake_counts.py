"""Counts the mistakes of models, by route, tool, place in the schema, and code or rule: `MistakeCounts`.

The counts are bounded, whatever clients send. Places are those of the schema.
Names of invented keys are cut, and the rarest are dropped. Shapes of texts hold no letter or digit that was sent. A
value that an enum refused is kept only if the operator allows values, and only after three conversations have tried
it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from proxy.call_record import CallRecord
from proxy.core.contract.attempts import hash_conversation
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.display.preview import is_secret_path
from proxy.core.display.secrets import may_hold_secret
from proxy.core.explain.misplaced import find_renames
from proxy.core.explain.places import find_value
from proxy.core.json.jsontext import name_json_type
from proxy.core.model import codes
from proxy.core.model.values import Absent, Document, JsonValue, Pointer, ToolCall, Violation
from proxy.core.rules.facts import nodes_at, walk_schema
from proxy.extensions.console.core.repair_advice import INVENTED, CountedMistake, InventedKey, ToolMistakes
from proxy.plugin import OTHER
from proxy.telemetry.failures import find_renamed, list_errors

# The most mistakes with their own counts; further ones are counted together under `_other`.
MOST_MISTAKES: Final = 4000
MOST_INVENTED: Final = 32
MOST_SHAPES: Final = 8
MOST_TRIED: Final = 20
# The most sets of renames tried together that are counted for one invented key.
MOST_RENAMES: Final = 8
# A value is shown once this many conversations have tried it.
TRIED_BY: Final = 3
# The most refused calls whose next try is awaited.
MOST_PENDING: Final = 2000
_LONGEST_KEY: Final = 64
# Places that are remembered for one schema.
_MOST_KNOWN: Final = 1024
_LONGEST_TRIED: Final = 32
_LONGEST_SHAPE: Final = 40
# Signs of dates and times that stay as they are beside a digit.
_TIME_SIGNS: Final = frozenset("TZtz")

Key = tuple[str, str, Pointer, str]
# In `totals` in the place of a code, as `INVENTED`: refused calls that were tried again, and those of them that were
# right then.
RETRIED: Final = "retried"
RIGHT: Final = "right"
_OTHER_KEY: Final[Key] = (OTHER, OTHER, (), OTHER)


class MistakeCounts:
    """`values`: values that an enum refused may be kept."""

    def __init__(self, wall: Callable[[], float], *, values: bool = False, most: int = MOST_MISTAKES) -> None:
        self._wall = wall
        self._values = values
        self._most = most
        self._since = wall()
        self._mistakes: dict[Key, CountedMistake] = {}
        self._by_tool: dict[tuple[str, str], list[CountedMistake]] = {}
        self._invented: dict[tuple[str, str], dict[tuple[Pointer, str], InventedKey]] = {}
        self._tried: dict[Key, dict[str, set[str]]] = {}
        self._pending: OrderedDict[tuple[str, str], tuple[Key, ...]] = OrderedDict()
        self._would: dict[tuple[str, str], tuple[int, float]] = {}
        self._totals: dict[tuple[Any, ...], int] = {}  # of all that `_mistakes` does not count

    @property
    def totals(self) -> dict[tuple[Any, ...], int]:
        """(route, tool, place, code or rule) -> the number of calls, as a counter that only grows."""
        return self._totals | {key: each.calls for key, each in self._mistakes.items()}

    def count_call(self, record: CallRecord) -> None:
        """Counts the mistakes of one call, or that a call after a refused one was right."""
        if record.violations or record.repairs:
            if record.call is not None:
                self._count(record, record.call)
        elif record.corrected_after and record.call is not None:
            self._settle(record, record.call, ())

    def mistakes_of(
        self, route: str, tool: str, calls: int, mode: str, repair: RepairPolicy | None = None
    ) -> ToolMistakes:
        """The counts of one tool; `calls` is the number of all its calls, `repair` the policy of its config."""
        refused, last = self._would.get((route, tool), (0, self._since))
        return ToolMistakes(
            calls,
            tuple(self.rows(route, tool)),
            tuple(sorted(self._invented.get((route, tool), {}).values(), key=lambda key: -key.calls)),
            mode,
            refused,
            self._wall() - last,
            repair,
            self._values,
        )

    def rows(self, route: str, tool: str) -> Iterator[CountedMistake]:
        """The mistakes of one tool, the most frequent first."""
        return iter(sorted(self._by_tool.get((route, tool), ()), key=lambda each: -each.calls))

    def find(self, key: Key) -> CountedMistake | None:
        """The counts of one mistake."""
        return self._mistakes.get(key)

    # --- counting -----------------------------------------------------------------------------------------------------
    def _count(self, record: CallRecord, call: ToolCall) -> None:
        policy, now = record.policy, self._wall()
        route, tool = (record.route, record.tool) if policy is not None else (OTHER, OTHER)
        refused = record.outcome == "refused" or record.would_refuse
        if record.would_refuse:
            self._would[route, tool] = (self._would.get((route, tool), (0, 0.0))[0] + 1, now)
        found: dict[Key, list[Violation]] = {}
        errors = list_errors(record)
        for each in errors:  # an unknown key is counted at its object
            place = _find_place(policy, each.path[:-1] if each.code is codes.UNKNOWN_FIELD else each.path)
            found.setdefault((route, tool, place, each.code.name), []).append(each)
        for key, alike in found.items():
            mistake = self._find_mistake(key, repaired=False, now=now)
            mistake.alone += len(found) == 1
            mistake.expected, mistake.keyword = alike[0].expected[:200], alike[0].keyword
            for each in alike:
                self._describe(key, mistake, each, record, call, alone=len(errors) == 1)
        if record.repairs:
            self._count_repairs(record, call, (route, tool), now)
        if policy is not None and record.violations:
            self._count_invented(record, call, policy, errors, now)
        if refused or record.corrected_after:
            self._settle(record, call, tuple(found) if refused else ())

    def _find_mistake(self, key: Key, *, repaired: bool, now: float) -> CountedMistake:
        """The counts of one mistake, with one more call."""
        found = self._mistakes.get(key)
        if found is None:
            if len(self._mistakes) >= self._most:
                key = _OTHER_KEY
            found = self._mistakes.get(key)
        if found is None:
            found = self._mistakes[key] = CountedMistake(key[2], key[3], repaired)
            self._by_tool.setdefault(key[:2], []).append(found)
        found.calls, found.last = found.calls + 1, now
        return found

    def _count_total(self, key: tuple[Any, ...]) -> None:
        self._totals[key] = self._totals.get(key, 0) + 1

    def _count_repairs(self, record: CallRecord, call: ToolCall, key: tuple[str, str], now: float) -> None:
        sent = call.arguments.value if isinstance(call.arguments, Document) else None
        went = record.checked.value if record.checked is not None else None
        seen: dict[tuple[str, Pointer], str] = {}
        for each in record.repairs:
            renamed = find_renamed(each, sent, went)
            seen[each.rule, _find_place(record.policy, renamed or each.path)] = str(each.path[-1]) if renamed else ""
        for (rule, place), name in seen.items():
            mistake = self._find_mistake((*key, place, rule), repaired=True, now=now)
            if name and len(name) <= _LONGEST_KEY and name.isprintable():
                _add(mistake.names, name, MOST_SHAPES)

    def _describe(
        self,
        key: Key,
        mistake: CountedMistake,
        violation: Violation,
        record: CallRecord,
        call: ToolCall,
        *,
        alone: bool,
    ) -> None:
        value = violation.value
        mistake.got["nothing" if isinstance(value, Absent) else name_json_type(value)] += 1
        if not isinstance(value, str):
            return
        if violation.code in (codes.FORMAT_MISMATCH, codes.PATTERN_MISMATCH):
            _add(mistake.shapes, _make_shape(value), MOST_SHAPES)
        if self._values and violation.code is codes.ENUM_MISMATCH and alone and _may_show(violation, record):
            self._try(key, mistake, value, call)

    def _try(self, key: Key, mistake: CountedMistake, value: str, call: ToolCall) -> None:
        """Counts a value that an enum refused, once enough conversations have tried it."""
        waiting = self._tried.setdefault(key, {})
        if value in mistake.tried:
            mistake.tried[value] += 1
            return
        if value not in waiting and len(waiting) >= MOST_TRIED:
            waiting.pop(next(iter(waiting)))
        by = waiting.setdefault(value, set())
        by.add(hash_conversation(call.conversation))
        if len(by) >= TRIED_BY:
            del waiting[value]
            _add(mistake.tried, value, MOST_TRIED)
            if value in mistake.tried:
                mistake.tried[value] = len(by)

    def _count_invented(
        self, record: CallRecord, call: ToolCall, policy: ToolPolicy, errors: list[Violation], now: float
    ) -> None:
        if policy.check is None or not isinstance(call.arguments, Document):
            return
        table = self._invented.setdefault((record.route, record.tool), {})
        renames = find_renames(policy.check, call.arguments.value, record.violations)
        for parent in {each.path[:-1] for each in errors if each.code in _ABOUT_KEYS and each.path}:
            holder = find_value(call.arguments.value, parent)
            if not isinstance(holder, dict):
                continue
            declared = {name for part in nodes_at(policy.check, parent) for name in part.properties}
            missing = [str(each.path[-1]) for each in record.violations
                       if each.code is codes.REQUIRED_MISSING and each.path[:-1] == parent]  # fmt: skip
            renamed = {str(source[-1]): str(path[-1]) for path, source in renames.items()
                     if path[:-1] == parent and source[:-1] == parent}  # fmt: skip
            open_names = [name for name in missing if name not in renamed.values()]
            for name in [key for key in holder if key not in declared][:MOST_INVENTED]:
                if len(name) <= _LONGEST_KEY and name.isprintable():
                    key = self._find_invented(record, table, _find_place(policy, parent), name)
                    key.calls, key.last = key.calls + 1, now
                    self._count_total((record.route, record.tool, (*key.parent, name), INVENTED))
                    key.refused += all(each.path == (*parent, name) for each in errors)
                    for lacking in [renamed[name]] if name in renamed else open_names:
                        key.beside[lacking] += 1
                        tried = renamed | {name: lacking}
                        together = tuple(sorted(tried.items()))
                        if together in key.instead or len(key.instead) < MOST_RENAMES:
                            key.instead[together] += _fits(policy, call.arguments.value, parent, tried)

    def _find_invented(
        self, record: CallRecord, table: dict[tuple[Pointer, str], InventedKey], parent: Pointer, name: str
    ) -> InventedKey:
        found = table.get((parent, name))
        if found is None:
            if len(table) >= MOST_INVENTED:
                gone, named = min(table, key=lambda known: table[known].calls)
                del table[gone, named]
                self._totals.pop((record.route, record.tool, (*gone, named), INVENTED), None)
            found = table[parent, name] = InventedKey(parent, name)
        return found

    def _settle(self, record: CallRecord, call: ToolCall, keys: tuple[Key, ...]) -> None:
        """Counts whether the try after a refusal was right, and remembers this refusal for the next try."""
        who = (hash_conversation(call.conversation), record.tool)
        before = self._pending.pop(who, ())
        if before:
            self._count_total((*before[0][:2], (), RETRIED))
            if not keys:
                self._count_total((*before[0][:2], (), RIGHT))
        for key in before:
            mistake = self._mistakes.get(key)
            if mistake is not None:
                mistake.retried += 1
                mistake.right += not keys
        if keys:
            self._pending[who] = keys
            if len(self._pending) > MOST_PENDING:
                self._pending.popitem(last=False)


_ABOUT_KEYS: Final = (codes.REQUIRED_MISSING, codes.UNKNOWN_FIELD)


def _find_place(policy: ToolPolicy | None, path: Pointer) -> Pointer:
    """The place of a value in the schema, `/legs/*/from` for `/legs/3/from`, of at most 16 steps. An index and a
    key that the schema does not declare are both `*`, so that clients cannot invent places."""
    if policy is None or policy.check is None:
        return ()
    memo: dict[Pointer, Pointer] = policy.check.schemas.memos.setdefault("places", {})
    if (known := memo.get(path)) is not None:
        return known
    steps = zip(path, walk_schema(policy.check, path), strict=False)
    place = tuple(step if any(step in part.properties for part in parts) else "*" for step, parts in steps)[:16]
    if place == path and len(memo) < _MOST_KNOWN:  # every step is declared: others are the client's own
        memo[path] = place
    return place


def _fits(policy: ToolPolicy, value: JsonValue, parent: Pointer, names: Mapping[str, str]) -> bool:
    """Returns whether a call would be right with the invented keys renamed to the missing ones."""
    return policy.check is not None and policy.check.accepts(_rename(value, parent, names))


def _rename(value: JsonValue, parent: Pointer, names: Mapping[str, str]) -> JsonValue:
    if not parent:
        return {names.get(key, key): item for key, item in value.items()}
    step, rest = parent[0], parent[1:]
    if isinstance(value, list) and isinstance(step, int):
        return [_rename(item, rest, names) if index == step else item for index, item in enumerate(value)]
    return {key: _rename(item, rest, names) if key == step else item for key, item in value.items()}


def _may_show(violation: Violation, record: CallRecord) -> bool:
    """Returns whether a refused value may be shown to an operator who sees values."""
    limits, value = record.policy.feedback if record.policy is not None else None, violation.value
    return (
        limits is not None and not violation.sensitive and not is_secret_path(violation.path, limits)
        and len(value) <= _LONGEST_TRIED and value.isprintable() and not may_hold_secret(value)
    )  # fmt: skip


def _add(counts: Counter[str], name: str, most: int) -> None:
    """Counts a name; beyond `most` names the rarest is dropped."""
    if name not in counts and len(counts) >= most:
        del counts[min(counts, key=lambda known: counts[known])]
    counts[name] += 1


def _make_shape(text: str) -> str:
    """The shape of a text, such as `0000-00-00T00:00:00`: digits become 0, letters a; ASCII punctuation, spaces, and T
    and Z beside a digit stay; all else becomes ?. At most _LONGEST_SHAPE characters, then `...`."""
    shown = text[:_LONGEST_SHAPE]
    shape = "".join(_shape_sign(shown, index) for index in range(len(shown)))
    return shape + "..." if len(text) > _LONGEST_SHAPE else shape


def _shape_sign(text: str, index: int) -> str:
    character = text[index]
    if character.isdecimal():
        return "0"
    if character in _TIME_SIGNS and index and text[index - 1].isdecimal():
        return character
    if character.isalpha():
        return "a"
    return character if character.isascii() and character.isprintable() else "?"
