"""Finds the argument that a tool means: turns a place in a framework's spelling into a JSON Pointer into what was sent.

Frameworks spell one place in many ways: `WeatherRequest.Place.Lat`, `/place/lat`, `$.place.lat`, `place -> lat`,
`["body", "place", "lat"]`, `stops[1].lat`, `stops.1.lat`; some leave an index out. The steps are looked up in the sent
arguments and the schema, first exactly, then folded (`Lat`, `lat` and `LAT` are one name). Leading steps that match
nothing (`body`, a type's name) are left out one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.suggestions import fold_name
from proxy.core.explain.places import find_child, find_value, list_members
from proxy.core.json.jsontext import FRACTIONS, dumps, name_json_type
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, JsonValue, Pointer
from proxy.core.schema.nodes import Node
from proxy.core.tool_errors.error_body import find_json_type
from proxy.core.tool_errors.readers import Claim, Place

_MOST_STEPS: Final = 32
_MOST_DROPPED: Final = 4
_MOST_VALUES: Final = 2000
# A number with more digits is not read as an index.
_LONGEST_INDEX: Final = 9
_MOST_NODES: Final = 64
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
    """Changes the places of FastAPI's items that are parameters of the URL or headers, `["path", "trip_id"]`, to those
    of the arguments that they are (`named`: place and parameter -> argument); whether there were any."""
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
    """The place of a claim. `known`: it is one of the sent arguments or of the schema."""

    path: Pointer
    known: bool


class Arguments:
    """What was sent and the schema it was checked against. It keeps its results, and serves one answer."""

    def __init__(self, sent: JsonValue, check: Check | None) -> None:
        self.sent = sent
        self._top = _parts([check.root]) if check is not None else []

        self._nodes: dict[Pointer, list[Node]] = {}

    def locate(self, claim: Claim, missing: bool, unknown: bool) -> Located | None:
        """The place of a claim (about a key that is `missing`, or `unknown`); None where it cannot be found."""
        if claim.place is not None:
            return self._locate_written(claim, claim.place, missing, unknown)
        return self._locate_named(claim.name, missing) if claim.name else self._locate_value(claim)

    def nodes_at(self, path: Pointer) -> list[Node]:
        """Every schema that may apply to a place, branches of unions included."""
        if path not in self._nodes:
            self._nodes[path] = _below(self.nodes_at(path[:-1]), path[-1]) if path else self._top
        return self._nodes[path]

    def only_below(self, path: Pointer, got: str) -> Pointer | None:
        """The only value of a JSON type inside the container at a path, where the container has another type itself."""
        value = find_value(self.sent, path)
        if not isinstance(value, dict | list) or _is(value, got):
            return None
        found = [below for below, item in _list_values(value) if below and _is(item, got)]
        return (*path, *found[0]) if len(found) == 1 else None

    # --- a written place --------------------------------------------------------------------------------------------
    def _locate_written(self, claim: Claim, place: Place, missing: bool, unknown: bool) -> Located | None:
        steps = read_steps(place)
        got = find_json_type(claim.got)
        for start in range(min(len(steps), _MOST_DROPPED + 1)):
            found = _follow(self.sent, self._top, steps[start:], got)
            if found:
                return Located(self._find_undeclared(found) if unknown else found, known=True)
        while steps and fold_name(steps[0]) in PREFIXES:
            steps = steps[1:]
        if not steps:
            return Located(self._find_undeclared(()) if unknown else (), known=True)
        found, last = _follow(self.sent, self._top, steps[:-1], ""), steps[-1]
        # Go names the type of an inner object without the way to it: the key may stand elsewhere in what was sent.
        if (found is None or not (missing or found)) and fold_name(last) and self._list_standing(fold_name(last)):
            return self._find_below(steps, got)
        parent = found or ()
        indexed = isinstance(find_value(self.sent, parent), list) and last.isdecimal() and len(last) < _LONGEST_INDEX
        return Located((*parent, int(last) if indexed else last), known=False)

    def _find_below(self, steps: tuple[str, ...], got: str) -> Located | None:
        """The only place in what was sent that ends as the steps do and holds the reported type; None where several
        do."""
        for start in range(len(steps)):
            names = [fold_name(step) for step in steps[start:]]
            found = [
                path
                for path, value in self._list_standing(names[-1])
                if [fold_name(step) for step in path if isinstance(step, str)][-len(names) :] == names
                and (not got or _is(value, got))
            ]
            if found:
                return Located(found[0], known=True) if len(found) == 1 else None
        return None

    def _find_undeclared(self, path: Pointer) -> Pointer:
        """The one key of an object that no schema declares, for a tool that does not name the key."""
        value = find_value(self.sent, path)
        declared = {key for node in self.nodes_at(path) for key in node.properties}
        if not isinstance(value, dict) or not declared:
            return path
        strange = [key for key in value if key not in declared]
        return (*path, strange[0]) if len(strange) == 1 else path

    # --- a key alone, or a value alone --------------------------------------------------------------------------------
    @cached_property
    def _values(self) -> list[tuple[Pointer, JsonValue]]:
        return _list_values(self.sent)

    def _list_standing(self, wanted: str) -> list[tuple[Pointer, JsonValue]]:
        """The sent values under a key of this folded name, with their paths."""
        keyed = ((path, value) for path, value in self._values if path and isinstance(path[-1], str))
        return [(path, value) for path, value in keyed if fold_name(str(path[-1])) == wanted]

    def _locate_named(self, name: str, missing: bool) -> Located | None:
        """The place of a key whose object is not named: where it is missing, or where it stands."""
        wanted = fold_name(name)
        for path, value in ((path, value) for path, value in self._values if missing and isinstance(value, dict)):
            declared = {key for node in self.nodes_at(path) for key in node.properties}
            for key in sorted(declared - value.keys()):
                if fold_name(key) == wanted:
                    return Located((*path, key), known=True)
        standing = self._list_standing(wanted)
        return Located(standing[0][0], known=True) if standing else Located((name,), known=False)

    def _locate_value(self, claim: Claim) -> Located | None:
        """The only value of the reported type, and with the reported text where the tool repeats it."""
        got = find_json_type(claim.got)
        if not got and claim.quoted is None:
            return None
        if isinstance(self.sent, list) and got == "array":
            return Located((), known=True)
        found = [
            path
            for path, value in self._values
            if path and (not got or _is(value, got)) and (claim.quoted is None or _text(value) == str(claim.quoted))
        ]
        return Located(found[0], known=True) if len(found) == 1 else None


def _follow(value: JsonValue, nodes: list[Node], steps: tuple[str, ...], got: str) -> Pointer | None:
    """The path along all steps, or None."""
    path: Pointer = ()
    for index, step in enumerate(steps):
        if isinstance(value, list) and not step.isdecimal():
            inner = _item(value, steps[index:], got)
            return (*path, *inner) if inner is not None else path or None
        key = _key(step, value, nodes)
        if key is None:
            return None
        path = (*path, key)
        value, nodes = find_value(value, (key,)), _below(nodes, key)
    if isinstance(value, list) and got and got != "array":
        # Go leaves out the index of an item: the only item of the reported type is meant.
        fitting = [index for index, item in enumerate(value) if _is(item, got)]
        return (*path, fitting[0]) if len(fitting) == 1 else path
    return path


def _item(value: list[JsonValue], steps: tuple[str, ...], got: str) -> Pointer | None:
    """A place below a list whose index was left out: the only possible item, None where several are possible."""
    found: list[Pointer] = []
    for index, item in enumerate(value[:_MOST_VALUES]):
        inner = _follow(item, [], steps, "") if isinstance(item, dict) else None
        if inner and (not got or _is(find_value(item, inner), got)):
            found.append((index, *inner))
    return found[0] if len(found) == 1 else None


def _key(step: str, value: JsonValue, nodes: list[Node]) -> str | int | None:
    """The key or index that a step means here."""
    if isinstance(value, list):
        return int(step) if step.isdecimal() and len(step) < _LONGEST_INDEX else None
    names = [*(value if isinstance(value, dict) else ()), *(key for node in nodes for key in node.properties)]
    if step in names:
        return step
    return next((name for name in names if fold_name(name) == fold_name(step) != ""), None)


def _parts(nodes: list[Node]) -> list[Node]:
    """The nodes and all that apply beside them: references, `allOf`, and the branches of unions."""
    found: list[Node] = []
    for node in nodes:
        for part in node.always:
            found.append(part)
            for branch in (*part.any_of, *part.one_of):
                found += branch.always
            if len(found) > _MOST_NODES:
                return found
    return found


def _below(nodes: list[Node], key: str | int) -> list[Node]:
    return _parts([child for node in nodes if (child := find_child(node, key)) is not None])


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
