"""Finds the argument that a tool means: turns a place in a framework's spelling into a JSON Pointer into what was sent.

Frameworks spell one place in many ways: `WeatherRequest.Place.Lat`, `/place/lat`, `$.place.lat`, `place -> lat`,
`["body", "place", "lat"]`, `stops[1].lat`, `stops.1.lat`; some leave an index out. The steps are looked up in the sent
arguments and the schema, first exactly, then folded (`Lat`, `lat` and `LAT` are one name). Leading steps that match
nothing (`body`, a type's name) are left out one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice, takewhile
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.suggestions import fold_name
from proxy.core.explain.places import find_nodes_at, find_possible_nodes, find_value, list_members
from proxy.core.json.jsontext import FRACTIONS, dumps, name_json_type
from proxy.core.model import codes
from proxy.core.model.codes import ViolationCode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue, Pointer
from proxy.core.rules.facts import read_facts
from proxy.core.schema.nodes import Node
from proxy.core.tool_errors.error_body import find_expected_type, find_json_type
from proxy.core.tool_errors.readers import Claim, Place

_MOST_STEPS: Final = 32
_MOST_DROPPED: Final = 4
_MOST_VALUES: Final = 2000
_MOST_PREFIX_ITEMS: Final = 64
# A number with more digits is not read as an index.
_LONGEST_INDEX: Final = 9
_LONGEST_PLACE: Final = 400

# Leading steps that name the request and not an argument (unless the tool declares one of that name).
PREFIXES: Final = frozenset(
    ["body", "data", "input", "arguments", "args", "params", "parameters", "request", "json", "payload", "root",
     "requestbody", "query", "path", "instance", "value", "object", "this", "model", "dto", "command", "call", ""]
)  # fmt: skip

_STEP: Final = re.compile(r"\[\s*(?:'([^']*)'|\"([^\"]*)\"|(\d+))\s*\]|([^.\[\]/\s]+(?: [^.\[\]/\s>]+)*)")


def read_steps(place: Place) -> tuple[str, ...]:
    """The steps of a written place, all as text."""
    if isinstance(place, tuple):
        return tuple(str(step) for step in place[:_MOST_STEPS])
    text = place.strip()[:_LONGEST_PLACE].replace(" -> ", ".").replace("->", ".")
    if re.match(r"#?/", text):
        parts = text.lstrip("#").split("/")[1:]
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts[:_MOST_STEPS])
    found = [next(filter(None, match.groups()), "") for match in _STEP.finditer(text.lstrip("$"))]
    return tuple(filter(None, found[:_MOST_STEPS]))


def rename_url_places(answer: JsonValue, named: Mapping[tuple[str, str], str]) -> bool:
    """Replaces the places of FastAPI's items that are parameters of the URL or headers, `["path", "trip_id"]`. The new
    ones are those of the arguments that they are (`named`: place and parameter -> argument). Returns whether there were
    any."""
    items = answer.get("detail") if isinstance(answer, dict) else None
    changed = False
    for item in items if isinstance(items, list) else ():
        place = item.get("loc") if isinstance(item, dict) else None
        if not isinstance(place, list) or len(place) < 2 or not all(isinstance(step, str) for step in place[:2]):
            continue
        where, name = place[:2]
        for (at, each), argument in named.items():
            # Names of headers have no case.
            if at == where and (each == name or (at == "header" and each.lower() == name.lower())):
                item["loc"], changed = ["body", argument, *place[2:]], True
                break
    return changed


@value_class
class Located:
    """A place of a claim. `known`: it is one of the sent arguments or of the schema. `around`: the claim is about
    something inside the value there, and nothing says about what."""

    path: Pointer
    known: bool
    around: bool = False


_Reached = list[tuple[Pointer, JsonValue]]


class Arguments:
    """The sent arguments and the schema that they were checked against."""

    def __init__(self, sent: JsonValue, check: Check | None) -> None:
        self.sent = sent
        self.check = check

    def locate(self, claim: Claim, code: ViolationCode | None) -> tuple[Located, ...]:
        """The places of a claim that means `code`: several if the tool left out the index of a list and all of them
        fit, none if they cannot be found."""
        if claim.place is not None:
            return self._locate_written(claim, claim.place, code)
        return self._locate_named(claim.name, code) if claim.name else self._locate_value(claim)

    def nodes_at(self, path: Pointer) -> list[Node]:
        """Every schema that may apply to a place, branches of unions included."""
        if self.check is None:
            return []
        # Schemas tell only the first items of a list apart, and a long list has one result for all others.
        return find_possible_nodes(self.check, tuple(min(step, _MOST_PREFIX_ITEMS) if isinstance(step, int) else step
                                                     for step in path))  # fmt: skip

    def may_hold(self, path: Pointer, kind: str) -> bool:
        """Returns whether the schema takes a value of a JSON type at a place."""
        if self.check is None:
            return True
        always = find_nodes_at(self.check, path)
        taken = [kind in types or (kind, "integer" in types) == ("number", True)
                 for types in (read_facts(node).site.types for node in always or self.nodes_at(path))]  # fmt: skip
        return all(taken) if always else any(taken) or not taken

    def list_below(self, path: Pointer, got: str) -> list[Pointer]:
        """Every value of a JSON type inside the container at a path, if the container has another type itself."""
        value = find_value(self.sent, path)
        if not isinstance(value, (dict, list)) or _is(value, got):
            return []
        return [(*path, *below) for below, item in _list_values(value) if below and _is(item, got)]

    # --- a written place --------------------------------------------------------------------------------------------
    def _locate_written(self, claim: Claim, place: Place, code: ViolationCode | None) -> tuple[Located, ...]:
        unknown = code is codes.UNKNOWN_FIELD
        steps = read_steps(place)
        for start in range(min(len(steps), _MOST_DROPPED + 1)):
            if found := self._follow(steps[start:], claim, code):
                return tuple(replace(one, path=self._find_undeclared(one.path)) if unknown else one for one in found)
        while steps and fold_name(steps[0]) in PREFIXES:
            steps = steps[1:]
        if not steps:
            return (Located(self._find_undeclared(()) if unknown else (), known=True),)
        (above, _), last = self._reach(steps[:-1]), steps[-1]
        missing = code is codes.REQUIRED_MISSING
        # Go names the type of an inner object without the way to it: the key may be elsewhere in the arguments.
        if not (above and (missing or steps[1:])) and fold_name(last) and (standing := self._list_standing(last)):
            return self._find_below(steps, standing, find_json_type(claim.got))
        above = above or [((), self.sent)]
        is_list, is_index = isinstance(above[0][1], list), last.isdecimal() and len(last) < _LONGEST_INDEX
        if above == [((), self.sent)] or (len(above) == 1 and (is_index or not is_list)):
            return (Located((*above[0][0], int(last) if is_list and is_index else last), known=False),)
        lacking = [path for path, value in _open_lists(above) if isinstance(value, dict) and last not in value]
        return tuple(Located((*path, last), known=False) for path in lacking) if missing else _go_around(above)

    def _reach(self, steps: tuple[str, ...]) -> tuple[_Reached, bool]:
        """Returns the values at the end of all steps, in every item of a list with its index left out; and whether one
        is."""
        found: _Reached = [((), self.sent)]
        is_open = False
        for step in steps:
            while not step.isdecimal() and any(isinstance(value, list) for _, value in found):
                found, is_open = _open_lists(found), True
            if step == "*" and is_open:
                continue
            keys = ((path, value, self._key(step, path, value)) for path, value in found)
            found = [((*path, key), find_value(value, (key,))) for path, value, key in keys if key is not None]
        return found, is_open

    def _follow(self, steps: tuple[str, ...], claim: Claim, code: ViolationCode | None) -> tuple[Located, ...]:
        """The places at the end of all steps that fit a claim."""
        found, is_open = self._reach(steps)
        got = find_json_type(claim.got)
        expected = find_json_type(claim.expected) or find_expected_type(claim.words)
        # A tool may mean the items of a list and name only the list.
        while got and any(
            isinstance(value, list) and not (got == "array" and self.may_hold(path, expected or got))
            for path, value in found
        ):
            found, is_open = _open_lists(found), True
        if not is_open:
            return tuple(Located(path, known=True) for path, _ in found)
        if code is codes.REQUIRED_MISSING:
            fitting = [path for path, value in found if value in (ABSENT, None, "", [])]
        elif got:
            fitting = [path for path, value in found if _is(value, got)]
        elif code is codes.TYPE_MISMATCH and expected:
            fitting = [path for path, value in found if value is not ABSENT and not _is(value, expected)]
        else:
            fitting = [path for path, value in found if value is not ABSENT]
            if len(fitting) > 1:
                return _go_around(found)
        return tuple(Located(path, known=True) for path in fitting)

    def _find_below(self, steps: tuple[str, ...], standing: _Reached, got: str) -> tuple[Located, ...]:
        """The places of a key that end as the steps do and hold the reported type; none if their objects differ."""
        for start in range(len(steps)):
            names = [fold_name(step) for step in steps[start:]]
            found = [
                path
                for path, value in standing
                if [fold_name(step) for step in path if isinstance(step, str)][-len(names) :] == names
                and (not got or _is(value, got))
            ]
            if found:
                return _if_alike(found) if got or len(found) == 1 else ()
        return ()

    def _find_undeclared(self, path: Pointer) -> Pointer:
        """The one key of an object that no schema declares, for a tool that does not name the key."""
        value = find_value(self.sent, path)
        declared = {key for node in self.nodes_at(path) for key in node.properties}
        if not isinstance(value, dict) or not declared:
            return path
        strange = [key for key in value if key not in declared]
        return (*path, strange[0]) if len(strange) == 1 else path

    def _key(self, step: str, path: Pointer, value: JsonValue) -> str | int | None:
        """The key or index that a step means in the value at a path."""
        if isinstance(value, list):
            return int(step) if step.isdecimal() and len(step) < _LONGEST_INDEX else None
        sent = value if isinstance(value, dict) else ()
        names = [*sent, *(key for node in self.nodes_at(path) for key in node.properties)]
        if step in names:
            return step
        return next((name for name in names if fold_name(name) == fold_name(step) != ""), None)

    # --- a key alone, or a value alone --------------------------------------------------------------------------------
    @cached_property
    def _values(self) -> _Reached:
        return _list_values(self.sent)

    def _list_standing(self, name: str) -> _Reached:
        """The sent values under a key of this name, with their paths."""
        wanted = fold_name(name)
        keyed = ((path, value) for path, value in self._values if path and isinstance(path[-1], str))
        return [(path, value) for path, value in keyed if fold_name(str(path[-1])) == wanted]

    def _locate_named(self, name: str, code: ViolationCode | None) -> tuple[Located, ...]:
        """Returns the places of a key whose object is not named: those that lack it, or those that have it. None if it
        may be in different objects."""
        wanted = fold_name(name)
        lacking: list[Pointer] = []
        for path, value in self._values if code is codes.REQUIRED_MISSING else ():
            if isinstance(value, dict):
                declared = {key for node in self.nodes_at(path) for key in node.properties}
                lacking += [(*path, key) for key in sorted(declared - value.keys()) if fold_name(key) == wanted]
        if lacking:
            return _if_alike(lacking)
        standing = [path for path, _ in self._list_standing(name)]
        if code is codes.UNKNOWN_FIELD:
            standing = [path for path in standing if not self.nodes_at(path)] or standing
        return _if_alike(standing) if standing else (Located((name,), known=False),)

    def _locate_value(self, claim: Claim) -> tuple[Located, ...]:
        """The only value of the reported type, and with the reported text if the tool repeats it."""
        got = find_json_type(claim.got)
        if not got and claim.quoted is None:
            return ()
        if isinstance(self.sent, list) and got == "array":
            return (Located((), known=True),)
        found = [
            path
            for path, value in self._values
            if path and (not got or _is(value, got)) and (claim.quoted is None or _text(value) == str(claim.quoted))
        ]
        return (Located(found[0], known=True),) if len(found) == 1 else ()


def _open_lists(found: _Reached) -> _Reached:
    opened: _Reached = []
    for path, value in found:
        opened += (
            [((*path, index), item) for index, item in enumerate(value)] if isinstance(value, list) else [(path, value)]
        )
    return opened[:_MOST_VALUES]


def _go_around(found: _Reached) -> tuple[Located, ...]:
    """The innermost value that holds all places."""
    first, last = min(path for path, _ in found), max(path for path, _ in found)
    common = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return (Located(tuple(step for step, _ in common), known=True, around=True),)


def _if_alike(paths: list[Pointer]) -> tuple[Located, ...]:
    """All places if they differ only in the indexes of lists; otherwise none."""
    kinds = {tuple(step for step in path if isinstance(step, str)) for path in paths}
    return tuple(Located(path, known=True) for path in paths) if len(kinds) == 1 else ()


def _list_values(root: JsonValue) -> list[tuple[Pointer, JsonValue]]:
    """Every value with its path, outermost first, up to a bound."""
    queue: list[tuple[Pointer, JsonValue]] = [((), root)]
    for path, value in queue:
        if len(queue) < _MOST_VALUES and len(path) < _MOST_STEPS:
            queue += [((*path, step), item) for step, item in islice(list_members(value), _MOST_VALUES - len(queue))]
    return queue


def _is(value: JsonValue, got: str) -> bool:
    kind = "" if value is ABSENT else name_json_type(value)
    return kind != "" and (kind == got or {kind, got} <= {"integer", "number"})


def _text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return dumps(value).decode() if isinstance(value, (int, *FRACTIONS)) else ""
