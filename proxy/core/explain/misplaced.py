"""The value as a whole: keys under another name, in another place, or inside a wrapper.

Single keywords are worded by `explain.py`; what only shows when the value is seen whole is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.graphemes import cut
from proxy.core.display.preview import clean_text
from proxy.core.display.suggestions import find_abbreviation, find_nearest, fold_name, is_other_meaning, is_same_name
from proxy.core.explain.places import (
    drop_member,
    find_possible_nodes,
    find_value,
    is_taken_at,
    list_declared_at,
    list_members,
    put_member,
)
from proxy.core.explain.undeclared import LOOKED_AT, place_unknown
from proxy.core.json.jsontext import format_pointer, name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import Severity
from proxy.core.model.values import ABSENT, JsonValue, Pointer, Violation
from proxy.core.rules.facts import read_facts
from proxy.core.rules.style import match_names
from proxy.core.rules.vocabulary import ARGUMENT_KEYS

# Missing keys that are paired, members searched for a misplaced key, length of a key worth comparing: an answer names
# the obvious, and has to stay quick for any body.
_PAIRED: Final = 20
_SEARCHED: Final = 20_000
_NAMED: Final = 4
_COMPARED: Final = 8
_LONGEST_NAME: Final = 100


def relate_fields(check: Check, root: JsonValue, found: list[Violation]) -> list[Violation]:
    """Pairs missing keys with the unknown ones that mean them; names the place of a misplaced key."""
    wrapper = find_wrapper(check, root)
    if wrapper:
        found = list(_explain_wrapper(root, wrapper, found))
    missing = list({v.path: v for v in found if v.code is codes.REQUIRED_MISSING}.values())
    if not missing:
        return [place_unknown(check, root, each) if each.code is codes.UNKNOWN_FIELD else each for each in found]
    places = find_named_places(root, {str(violation.path[-1]) for violation in missing})
    taken: set[Pointer] = set()
    renamed: dict[Pointer, Violation] = {}
    candidates = _find_candidates(check, root, missing[:_PAIRED])
    for violation in missing[:_PAIRED]:
        hint, source = _find_source(check, root, violation, places, candidates)
        if hint and not (wrapper and len(violation.path) == 1):
            renamed[violation.path] = replace(violation, hint=hint)
            if violation.severity is Severity.ERROR:  # an error must not vanish behind a warning
                taken.add(source)
    related: list[Violation] = []
    for violation in found:
        if violation.code is codes.REQUIRED_MISSING:
            related.append(renamed.get(violation.path, violation))
        elif violation.code is not codes.UNKNOWN_FIELD or violation.path not in taken:
            related.append(_ask_for_meaning(violation, candidates) or place_unknown(check, root, violation))
    return related


def _explain_wrapper(root: JsonValue, wrapper: str, found: list[Violation]) -> Iterator[Violation]:
    """The violations of the outermost keys with a hint about the wrapper around the arguments: whole at the first."""
    key, inner = next(iter(root.items())) if isinstance(root, dict) and len(root) == 1 else ("", {})
    is_explained = False
    for violation in found:
        misses = violation.code is codes.REQUIRED_MISSING and isinstance(inner, dict) and len(inner) > 0
        if len(violation.path) != 1 or (misses and violation.path[0] not in inner):
            yield violation
        elif misses and is_explained:
            yield replace(violation, hint=f"It is inside '{clean_text(str(key), 60)}'.")
        else:
            is_explained = True
            yield replace(violation, hint=wrapper)


def _ask_for_meaning(violation: Violation, candidates: Mapping[Pointer, list[Pointer]]) -> Violation | None:
    """Returns an unknown key that may mean one of several missing keys, or they it; None for any other."""
    wanted = [key for key, paths in candidates.items() if violation.path in paths]
    is_open = len(wanted) > 1 or any(len(candidates[key]) > 1 for key in wanted)
    if violation.code is not codes.UNKNOWN_FIELD or not is_open:
        return None
    names = ", ".join(f"'{cut(str(key[-1]), 60)}'" for key in wanted[:_NAMED])
    which = f"which of {names} it means, if any" if len(wanted) > 1 else f"whether it means {names}"
    return replace(violation, hint=f"Its meaning decides {which}.")


def _find_source(
    check: Check,
    root: JsonValue,
    missing: Violation,
    places: Mapping[str, list[Pointer]],
    candidates: Mapping[Pointer, list[Pointer]],
) -> tuple[str, Pointer]:
    """Returns a hint about the value that was sent in place of a missing key, and its place: beside the key under
    another name, or elsewhere under its own.

    It advises a rename if no other pairing is possible, the names differ only in case, separators and plural, and the
    value is accepted there. Otherwise the hint names the candidates, and the caller decides.
    """
    place, name = missing.path[:-1], cut(str(missing.path[-1]), 60)
    close = candidates[missing.path]
    if len(close) == 1 and sum(close[0] in others for others in candidates.values()) == 1:
        sent = cut(format_pointer(close[0]), 120)
        known = f"You sent '{sent}'"
        takes = is_taken_at(check, missing.path, find_value(root, close[0]))
        if takes and is_same_name(str(close[0][-1]), str(missing.path[-1])):
            return f"{known}: rename it to '{name}'.", close[0]
        how = "rename it" if takes else "rename it and correct its value"
        return f"{known}: if you meant '{name}', {how}; if not, leave it out.", close[0]
    if close:
        shown = ", ".join(f"'{cut(format_pointer(path), 120)}'" for path in close[:_NAMED])
        return f"You sent {shown}: if one of them means '{name}', rename that one.", ()
    elsewhere = [path for path in places.get(str(missing.path[-1]), ()) if path[:-1] != place]
    elsewhere = [path for path in elsewhere if not find_possible_nodes(check, path)]  # one that is declared stays
    if len(elsewhere) == 1 and is_taken_at(check, missing.path, find_value(root, elsewhere[0])):
        sent, target = cut(format_pointer(elsewhere[0]), 120), cut(format_pointer(missing.path), 120)
        return f"It was sent at '{sent}': move it to '{target}'.", elsewhere[0]
    if elsewhere and all(path[:-2] == place for path in elsewhere):  # one level too deep
        sent = ", ".join(f"'{cut(format_pointer(each), 120)}'" for each in elsewhere)
        one = (
            ("it holds", "move it here and correct its value")
            if len(elsewhere) == 1
            else ("one of them holds", "move that one")
        )
        return f"You sent {sent}: if {one[0]} '{name}', {one[1]}.", ()
    return _ask_about_unknown(check, root, missing), ()


def _ask_about_unknown(check: Check, root: JsonValue, missing: Violation) -> str:
    """Which of the unknown keys beside a missing one may hold its value: none that is like another field."""
    place, name = missing.path[:-1], cut(str(missing.path[-1]), 60)
    holder = find_value(root, place)
    unsent = [key for key in list_declared_at(check, place) if isinstance(holder, dict) and key not in holder]
    others = [key for key in unsent if key != missing.path[-1]]
    beside = [key for key in list_unknown_beside(check, root, place)[:_COMPARED] if find_nearest(key, others) is None]
    beside = [key for key in beside if not is_other_meaning(key, str(missing.path[-1]))]
    kinds = {kind for node in find_possible_nodes(check, missing.path) for kind in read_facts(node).site.types}
    beside = [key for key in beside if name_json_type(find_value(root, (*place, key))) in kinds]
    starting = [key for key in beside if fold_name(str(missing.path[-1])).startswith(fold_name(key) or "-")]
    beside = starting if len(starting) == 1 else beside
    if not beside or len(beside) > _NAMED:
        return ""
    shown = ", ".join(f"'{cut(format_pointer((*place, key)), 120)}'" for key in beside)
    takes = all(is_taken_at(check, missing.path, find_value(root, (*place, key))) for key in beside)
    if len(beside) == 1:
        how = "rename it" if takes else "rename it and correct its value"
        return f"You sent {shown}: if it holds '{name}', {how}."
    how = "rename that one" if takes else "rename that one and correct its value"
    return f"You sent {shown}: if one of them holds '{name}', {how}."


def find_renames(check: Check, root: JsonValue, found: Iterable[Violation]) -> dict[Pointer, Pointer]:
    """Returns the place of each missing key -> the place of its value, which is accepted there: under another name
    beside it, or elsewhere under its own."""
    missing = [each for each in found if each.code is codes.REQUIRED_MISSING and each.hint and each.path][:_PAIRED]
    if not missing:
        return {}
    places = find_named_places(root, {str(violation.path[-1]) for violation in missing})
    candidates = _find_candidates(check, root, missing)
    pairs = {violation.path: _find_source(check, root, violation, places, candidates)[1] for violation in missing}
    return {
        path: source for path, source in pairs.items() if source and is_taken_at(check, path, find_value(root, source))
    }


def _find_candidates(check: Check, root: JsonValue, missing: list[Violation]) -> dict[Pointer, list[Pointer]]:
    """Returns for each missing key the unknown keys beside it that may mean it. A name that equals it but for case and
    separators is the only one; a short form (`lat` for `latitude`) and a likeness are not weighed against each other.
    If a pairing is open, it may be every unknown key that no other missing key has for sure."""
    found: dict[Pointer, list[Pointer]] = {}
    for violation in missing:
        place, name = violation.path[:-1], str(violation.path[-1])
        unknown = list_unknown_beside(check, root, place)
        close = [key for key in unknown if find_nearest(name, [key]) or find_abbreviation(name, [key])]
        same = [key for key in close if fold_name(key) == fold_name(name)]
        found[violation.path] = [(*place, key) for key in (same if len(same) == 1 else close)]
    sure = {
        paths[0]
        for paths in found.values()
        if len(paths) == 1 and sum(paths[0] in others for others in found.values()) == 1
    }
    unsure = {path[:-1] for path, paths in found.items() if paths and not (len(paths) == 1 and paths[0] in sure)}
    for path, paths in found.items():
        if path[:-1] in unsure and sure.isdisjoint(paths):
            unknown_places = [(*path[:-1], key) for key in list_unknown_beside(check, root, path[:-1])]
            found[path] = [place for place in unknown_places if place not in sure]
    return found


def list_unknown_beside(check: Check, root: JsonValue, place: Pointer) -> list[str]:
    """The keys sent at a place that its schemas do not declare."""
    beside = find_value(root, place)
    if not isinstance(beside, dict):
        return []
    declared = list_declared_at(check, place)
    return list(islice((key for key in beside if key not in declared and len(key) <= _LONGEST_NAME), LOOKED_AT))


def find_named_places(root: JsonValue, names: set[str]) -> dict[str, list[Pointer]]:
    """Returns the places of keys of these names in a value, at most three each; searches the first 20,000 members."""
    found: dict[str, list[Pointer]] = {name: [] for name in names}
    stack: list[tuple[JsonValue, Pointer]] = [(root, ())] if names else []
    left = _SEARCHED
    while stack and left > 0:
        value, path = stack.pop()
        for step, member in islice(list_members(value), left):
            left -= 1
            if isinstance(step, str) and step in names and len(found[step]) < 3:
                found[step].append((*path, step))
            if isinstance(member, (dict, list)):
                stack.append((member, (*path, step)))
    return found


# Keywords of which each property of a schema has one.
_OF_SCHEMAS: Final = frozenset({"type", "enum", "anyOf", "description", "$ref"})


def find_wrapper(check: Check, root: JsonValue) -> str:
    """Returns a hint if the arguments are inside a wrapper key, or several calls inside one, or are a schema."""
    schemas = root.get("properties") if isinstance(root, dict) else None
    if not isinstance(schemas, dict) and (not isinstance(root, dict) or len(root) != 1):
        return ""
    declared = {name for node in check.root.always for name in node.properties}
    if (
        isinstance(schemas, dict)
        and "properties" not in declared
        and not declared.isdisjoint(schemas)
        and all(isinstance(each, dict) and not _OF_SCHEMAS.isdisjoint(each) for each in schemas.values())
    ):  # some models repeat the schema in place of a call
        return "You sent the tool's schema: send values, each under its name."
    if len(root) != 1:
        return ""
    ((key, inner),) = root.items()
    if key in declared:
        return ""
    key = clean_text(key, 60)
    if isinstance(inner, dict) and declared & inner.keys():
        if key.lower() in ARGUMENT_KEYS:
            return f"The arguments are inside '{key}': send its content itself as the arguments, without '{key}'."
        is_whole = inner.keys() <= declared
        return f"If '{key}' only wraps the arguments, send its content itself as the arguments." if is_whole else ""
    calls = [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []
    if any({"parameters", "arguments"} & item.keys() for item in calls):
        return f"'{key}' seems to hold several calls: make one call of this tool for each, with only its arguments."
    return ""


# --- what was sent well -----------------------------------------------------------------------------------------------
class _Wrong:
    """The type of `WRONG`."""

    def __repr__(self) -> str:
        return "WRONG"


# Replaces a refused value.
WRONG: Final = _Wrong()


def keep_good(check: Check, sent: JsonValue, found: Iterable[Violation]) -> tuple[JsonValue, dict[Pointer, str]]:
    """Returns the good values, each at its place, with `WRONG` in the place of others: without them, the user's wish
    would be lost. Also returns the places that an example shows, with their expectations."""
    wrong: dict[Pointer, str] = {}
    missing: dict[Pointer, str] = {}
    dropped: set[str | int] = set()
    kept = sent
    for each in found:
        place = each.path
        if each.code is codes.REQUIRED_MISSING and place:
            missing[place] = each.expected
        while place and not isinstance(place[-1], str):  # the last member of an object on the way
            place = place[:-1]
        if place and each.code not in _OF_KEYS and each.value is not ABSENT:
            wrong[place] = each.expected
        if len(place) == 1:
            dropped.add(place[0])
        elif place:
            kept = drop_member(kept, place)
        elif isinstance(find_value(kept, each.path), str):  # a text outside of any object takes the whole value
            kept = ABSENT
    if isinstance(sent, dict) and find_wrapper(check, sent):  # nothing of a schema, or of several calls
        inner = next(iter(sent.values())) if len(sent) == 1 else {}
        return inner if isinstance(inner, dict) else {}, missing | wrong
    if isinstance(kept, dict):
        kept = {key: item for key, item in kept.items() if key not in dropped}
        kept.update({path[0]: WRONG for path in wrong if len(path) == 1})
    for path in wrong:
        if len(path) > 1 or not isinstance(kept, dict):
            kept = put_member(kept, path, WRONG)
    for target, source in (find_renames(check, sent, found) | _find_respelt(check, kept, sent)).items():
        # A value moves only if both names are one name in two styles: any other rename is for the model to decide.
        is_same = source[-1] == target[-1] or bool(match_names([str(source[-1])], [str(target[-1])]))
        kept = put_member(drop_member(kept, source), target, find_value(sent, source) if is_same else WRONG)
        if len(source) > 1 and find_value(kept, source[:-1]) == {} and not find_possible_nodes(check, source[:-1]):
            kept = drop_member(kept, source[:-1])  # a wrapper that holds nothing more
    return kept, missing | wrong


# The errors of a key, not of its value.
_OF_KEYS: Final = (codes.REQUIRED_MISSING, codes.UNKNOWN_FIELD)


def _find_respelt(check: Check, root: JsonValue, sent: JsonValue) -> dict[Pointer, Pointer]:
    """Returns the required keys that were sent under another spelling (`tableName` for `table_name`), with a value that
    is accepted: the place of each -> the place of its value in `sent`. `root` may hold `WRONG`."""
    if not isinstance(root, dict):
        return {}
    wanted = {name for node in check.root.always for name in node.required if name not in root}
    found: dict[Pointer, Pointer] = {}
    for name in sorted(wanted):
        same = [key for key in list_unknown_beside(check, root, ()) if is_same_name(key, name)]
        if len(same) == 1 and is_taken_at(check, (name,), find_value(sent, (same[0],))):
            found[name,] = (same[0],)
    return found
