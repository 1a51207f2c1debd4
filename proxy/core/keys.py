"""The rules that change an object's keys: a key under another spelling, plumbing keys, a missing default.

Each function takes the object and the schemas that judge it, and gives the object (the same one where nothing
changed) and the repairs made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from proxy.core.members import declared, patterned, required
from proxy.core.model import ABSENT, JsonValue, Pointer, Repair
from proxy.core.proposals import fold
from proxy.core.schema import Node
from proxy.core.sites import facts
from proxy.core.work import Work

Accepts = Callable[[Node, JsonValue], bool]
Made = tuple[JsonValue, tuple[Repair, ...]]

# What `targets` gives for a fold that several declared keys share.
_SEVERAL = ""


def renamed(
    nodes: tuple[Node, ...],
    value: dict[str, JsonValue],
    path: Pointer,
    rules: frozenset[str],
    drop: frozenset[str],
    accepts: Accepts,
    work: Work,
) -> Made:
    """Keys that differ from one absent declared key in spelling alone get its name; those in `drop` are removed.

    Only a key that some schema refuses is touched, or one whose target is required. Raises TooMuchWorkError.
    """
    known, wanted = declared(nodes), required(nodes)
    work.spend(len(known) + len(value))
    unknown = [key for key in value if key not in known and not patterned(nodes, key, work)]
    meant = targets(unknown, known) if unknown and "key_case" in rules else {}
    names: dict[str, str | None] = {}
    work.spend(4 * len(unknown))
    for key in unknown:
        target = meant.get(key)
        named = target is not None and target not in value
        if named and (target in wanted or _refused(nodes, key, value[key], accepts)):
            names[key] = target
        elif "drop_unknown" in rules and key in drop and _refused(nodes, key, value[key], accepts):
            names[key] = None
    return rename(value, path, names)


def rename(value: dict[str, JsonValue], path: Pointer, names: Mapping[str, str | None]) -> Made:
    """The object with keys under new names (None: removed), its order kept."""
    if not names:
        return value, ()
    repairs = [Repair("drop_unknown" if new is None else "key_case", (*path, key)) for key, new in names.items()]
    kept = ((names.get(key, key), item) for key, item in value.items())
    return {key: item for key, item in kept if key is not None}, tuple(repairs)


def targets(unknown: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """For each unknown key the one declared key it folds to; none where two keys on either side fold alike."""
    folded = {key: fold(key) for key in unknown}
    rivals = Counter(folded.values())
    names: dict[str, str] = {}
    for name in known:
        key = fold(name)
        names[key] = _SEVERAL if key in names else name
    return {key: names[spelling] for key, spelling in folded.items() if rivals[spelling] == 1 and names.get(spelling)}


def _refused(nodes: Iterable[Node], key: str, value: JsonValue, accepts: Accepts) -> bool:
    """Whether some schema refuses an undeclared key (or its value)."""
    for schema in nodes:
        for rest in (schema.additional, schema.unevaluated):
            if rest is not None and key not in schema.properties and (rest.never or not accepts(rest, value)):
                return True
    return False


def without(schemas: list[Node], item: JsonValue, path: Pointer, rules: frozenset[str]) -> tuple[Repair, ...]:
    """The repair that takes an optional key holding null or nothing as not sent; () where no rule does."""
    for schema in schemas:
        allowed = facts(schema).allowed
        rules = rules if allowed is None else rules & allowed
    name = "drop_null_optional" if item is None else "empty_optional" if item == "" else ""
    return (Repair(name, path),) if name in rules else ()


def filled(node: Node, nodes: tuple[Node, ...], value: dict[str, JsonValue], path: Pointer, accepts: Accepts) -> Made:
    """The one missing optional key whose `default` makes the object acceptable. Raises TooMuchWorkError."""
    wanted = required(nodes)
    found: dict[str, JsonValue] = {}
    for schema in nodes:
        for key, member in schema.properties.items():
            if key in value or key in wanted or key in found or not member.has("default"):
                continue
            whole = {**value, key: member.get("default")}
            if accepts(node, whole):
                found[key] = whole
    if len(found) != 1:
        return value, ()
    ((key, whole),) = found.items()
    return whole, (Repair("fill_default", (*path, key)),)


def removed(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The object without the members that were taken out (`ABSENT`)."""
    return {key: item for key, item in value.items() if item is not ABSENT}
