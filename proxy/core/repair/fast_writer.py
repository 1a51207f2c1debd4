"""Writes the quick repairs: one function per schema that repairs, in one pass, the cases with one obvious answer.
Part of fast_repair.py, which says what it is worth (about 40 % of a repaired call).

A generated function knows places whose schema leaves one type other than free text: numbers and booleans sent as text,
numbers where text is expected, JSON text of an array or object, enum members in another case, null or an empty value at
an optional key. It visits objects, arrays, references and unions with a discriminating key, and changes a copy of what
it visits. It leaves everything else as it is: its result only counts if the judge accepts it, and then the rest was
right. In doubt it gives up, and the repair engine (`engine.py`) decides.

Its result equals the repair engine's, repairs and their order included, because it only acts where one rule alone can
give an accepted value. The value's type is certainly refused; the place is one that every valid value of the root must
satisfy (`properties`, `items`, `$ref`, the branch that the discriminator names); one rule of the first tier applies to
that value and type (`_TEXT_REMEDIES` says why); and the rules are those that are on there. Conditional and combining
schemas (`allOf`, `if`, `patternProperties` ...) are never entered.

Work is counted where a value can make it grow: before the items of an array, the keys of a map, the reading of a text
and a further call of a function. Where none is left the function gives up, and the repair engine reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

from proxy.core.check.graph import Discriminator, find_discriminator, list_types
from proxy.core.check.shapes import WIDE
from proxy.core.check.writer import FunctionText
from proxy.core.repair.fast_readers import LONGEST_PATH, cases
from proxy.core.rules.branches import list_discriminators
from proxy.core.rules.facts import Facts, applies_always, read_facts
from proxy.core.rules.proposals import Site
from proxy.core.schema.nodes import Node

# Keywords that lead to other schemas for the value or its parts; all others only judge.
_LEADING: Final = frozenset(
    ["$ref", "$dynamicRef", "$recursiveRef", "additionalItems", "additionalProperties", "allOf", "anyOf", "if", "then",
     "else", "dependencies", "dependentSchemas", "items", "oneOf", "patternProperties", "prefixItems", "properties",
     "unevaluatedItems", "unevaluatedProperties"]
)  # fmt: skip
_REFERENCES: Final = frozenset(["$ref", "$dynamicRef", "$recursiveRef"])
_UNIONS: Final = (frozenset(["anyOf"]), frozenset(["oneOf"]))
_PARTS: Final = frozenset(["additionalItems", "additionalProperties", "items", "properties"])
# Rules for a whole array or object, which may make another branch of a union possible.
_OF_CONTAINERS: Final = frozenset(["first_of_one", "schema_shaped"])

# How text becomes a value of the one type that a place allows beside null. No other rule of the first tier applies to
# such a text: other readers need another type, `null_text` needs a text that none of these reads, and `enum_case` gives
# text.
_TEXT_REMEDIES: Final[dict[frozenset[str], tuple[str, str]]] = {
    frozenset(["integer"]): ("string_to_integer", "WHOLE[{x}]"),
    frozenset(["integer", "number"]): (
        "string_to_number",
        "int({x}) if {x}.isdecimal() and {x}.isascii() and {x}[0] != '0' else read_number({x}) or number({x})",
    ),
    frozenset(["boolean"]): ("string_to_boolean", "BOOLEANS[{x}]"),
}  # fmt: skip
_CONTAINERS: Final = frozenset(["array", "object"])
# Variables of this name hold the index of an array's item.
INDEX: Final = "i"
# A part that nests deeper becomes a function of its own: CPython allows 20 nested loops.
_MAX_LEVEL: Final = 10
# A part after so many lines does too: compiling a long function would block the calls that are served meanwhile.
_LONG: Final = 400
# Lines of generated code that cost about one unit of work (work.py) if all of them run.
_LINES: Final = 8

Step = tuple[str, str | None]


class Linker(Protocol):
    """The part of `fast_repair.QuickRepairs` that a writer uses. `rules` are those that are on for the schema."""

    rules: frozenset[str]

    def function(self, node: Node, rules: frozenset[str]) -> str:
        """The name of the function that repairs the parts of a container at a node."""

    def constant(self, prefix: str, value: object) -> str:
        """A global name for a value."""

    def repair(self, rule: str, base: str, steps: tuple[Step, ...]) -> str:
        """The expression of a repair at a path."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place that is being written. `x` holds its value, `store` assigns another one, `remove` removes it ('' where
    it must stay) if `present`. `steps` is its path, each step as source and as value (None: known at run time only).
    `rules` are those that are on here."""

    x: str
    store: str
    steps: tuple[Step, ...]
    rules: frozenset[str]
    remove: str = ""
    present: str = ""
    # The key that named the branch of a union. Its value is valid.
    settled: str = ""
    facts: Facts | None = None

    def may_leave_out(self, rule: str) -> bool:
        """Whether a rule may treat the value here as not sent."""
        return self.facts is not None and self.facts.can_leave_out(rule, self.rules)


def path_of(base: str, steps: tuple[Step, ...]) -> str:
    """The expression of a path: a variable that holds its beginning ('' for the root), followed by steps."""
    written = f"({', '.join(step for step, _ in steps)},)" if steps else ""
    return " + ".join(filter(None, (base, written))) or "()"


def write_entry(linker: Linker, root: Node) -> str:
    """The source of `repair`, which takes the whole value."""
    writer = _Writer(linker, base="")
    writer.all(["r = v", "add = out.append"])
    writer.value(root, _Place("v", "r = {}", (), linker.rules))
    return "def repair(v, out, m):\n" + "\n".join([*writer.lines, "    return r"]) + "\n"


def write_function(linker: Linker, name: str, node: Node, rules: frozenset[str]) -> str:
    """The source of a function that repairs the parts of a container at a node."""
    writer = _Writer(linker, base="p")
    with writer.block(f"if len(p) > {LONGEST_PATH}:"):
        writer.line("raise GiveUp")
    writer.all(["r = v", "add = out.append"])
    start = len(writer.lines)
    writer.parts(node, _Place("v", "r = {}", (), rules))
    writer.spend(start, "")
    return f"def {name}(v, p, out, m):\n" + "\n".join([*writer.lines, "    return r"]) + "\n"


class _Writer(FunctionText):
    """The text of one function."""

    def __init__(self, linker: Linker, *, base: str) -> None:
        super().__init__(level=1)
        self.linker = linker
        self._base = base
        self._count = 0

    def spend(self, start: int, times: str) -> None:
        """Inserts code before the lines since `start` that counts the work of running them, `times` times ('' for
        once)."""
        cost = 1 + (len(self.lines) - start) // _LINES
        counted = f"m.left -= len({times}) * {cost}" if times else f"m.left -= {cost}"
        indent = "    " * self._level
        self.lines[start:start] = [indent + counted, f"{indent}if m.left < 0:", f"{indent}    raise GiveUp"]

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # --- one value --------------------------------------------------------------------------------------------------
    def value(self, node: Node, place: _Place) -> None:
        """Writes the repair of the value at a place: of the value itself, then of its parts."""
        start = len(self.lines)
        self.line(f"# {node.uri}")
        place, site = replace(_under(place, node), facts=read_facts(node)), read_facts(node).site
        word = "if"
        for test, lines in self._cases(site, place):
            with self.block(f"{word} {test}:"):
                self.all(lines)
            word = "elif"
        self._number_as_text(site, place, word)
        if site.types & _CONTAINERS:
            self.parts(node, place)
        if self.is_silent(start):
            del self.lines[start:]

    def all(self, lines: list[str]) -> None:
        """Adds lines at the present indentation."""
        for line in lines:
            self.line(line)

    def _cases(self, site: Site, place: _Place) -> Iterator[tuple[str, list[str]]]:
        """The repairs for each type of a value: (test, lines). Any other value stays as it is."""
        x, sole = place.x, site.types - {"null"}
        text = self._text(site, place)
        if text:
            yield f"type({x}) is str", text
        elif _is_listed(site) and "enum_case" in place.rules:
            among, meant = (
                self.linker.constant("among", frozenset(_texts(site))),
                self.linker.constant("cases", cases(_texts(site))),
            )
            folded = f"{meant}[{x}.strip().casefold()]"
            yield f"type({x}) is str and {x} not in {among}", self._change(folded, "enum_case", place)
        if sole == {"integer"} and "integral_float" in self.linker.rules:
            yield f"type({x}) in FRACTIONS", ["m.late = True"]
        if place.remove and "null" not in site.types and place.may_leave_out("drop_null_optional"):
            yield f"{x} is None and {place.present}", self._removal("drop_null_optional", place)

    def _number_as_text(self, site: Site, place: _Place, word: str) -> None:
        if site.types - {"null"} != {"string"} or "number_to_string" not in place.rules:
            return
        x = place.x
        with self.block(f"{word} type({x}) is not str:"):
            for test, text in (
                (f"if type({x}) is int:", f"str({x})"),
                (f"elif type({x}) in FRACTIONS:", f"number_text({x})"),
            ):
                with self.block(test):
                    self.all(self._change(text, "number_to_string", place))

    def _text(self, site: Site, place: _Place) -> list[str]:
        """The repairs of a text where text is not legal."""
        sole, x, lines = site.types - {"null"}, place.x, list[str]()
        if "string" in site.types:
            return []
        rule, reading = _TEXT_REMEDIES.get(sole, ("", ""))
        if rule in place.rules:
            lines = self._change(reading.format(x=x), rule, place)
        elif sole & _CONTAINERS and "parse_json_string" in place.rules:
            kinds = ", ".join(name for kind, name in (("array", "list"), ("object", "dict")) if kind in sole)
            lines = [f"{x} = inside({x}, ({kinds},), m)", *self._change(x, "parse_json_string", place)]
        if place.remove and "null" not in site.types and place.may_leave_out("empty_optional"):
            removal = [f"if not {x}:", *map(_indent, self._removal("empty_optional", place))]
            return [*removal, "else:", *map(_indent, lines)] if lines else removal
        return lines

    def _change(self, expression: str, rule: str, place: _Place) -> list[str]:
        return [place.store.format(expression), self._append(rule, place)]

    def _removal(self, rule: str, place: _Place) -> list[str]:
        return [place.remove, self._append(rule, place)]

    def _append(self, rule: str, place: _Place) -> str:
        return f"add({self.linker.repair(rule, self._base, place.steps)})"

    # --- its parts --------------------------------------------------------------------------------------------------
    def parts(self, node: Node, place: _Place) -> None:
        """Writes the repairs of the parts of an array or object at a node."""
        leading, x = _LEADING & node.keywords.keys(), place.x
        if leading in _UNIONS:
            self._union(node, place)
        elif leading and leading <= _REFERENCES and node.reference is not None:
            self._call(node.reference, place)
        elif self._level > _MAX_LEVEL or len(self.lines) > _LONG:
            self._call(node, place)
        elif leading <= _PARTS and not node.prefix_items:
            self._object(node, place)
            self._array(node, place)
        elif "integral_float" in self.linker.rules:
            self.line(f"loose({x}, m)")

    def _call(self, node: Node, place: _Place) -> None:
        with self.block(f"if type({place.x}) is dict or type({place.x}) is list:"):
            name = self.linker.function(node, _under(place, node).rules)
            self.line(place.store.format(f"{name}({place.x}, {path_of(self._base, place.steps)}, out, m)"))

    def _object(self, node: Node, place: _Place) -> None:
        if len(node.properties) > WIDE:
            with self.block(f"if type({place.x}) is dict:"):
                self.line("raise GiveUp")
            return
        x, w, start, rest = place.x, self._name("w"), self._name("s"), node.additional
        of_any_key = rest is not None and rest.keywords and not node.properties and "drop_unknown" not in place.rules
        with self.block(f"if type({x}) is dict:"):
            first = len(self.lines)
            self.all([f"{w} = {x}.copy()", place.store.format(w), f"{start} = len(out)"])
            head, places = len(self.lines), 0
            for key, inner in node.properties.items():
                if key == place.settled:
                    continue
                places += self._property(inner, key, w, node, place)
            if rest is not None and of_any_key:
                self._any_key(rest, w, node, place)
            elif rest is not None and rest.keywords and "integral_float" in self.linker.rules:
                self.line(f"loose({x}, m)")
            if self.is_silent(head):
                del self.lines[first:]
            elif places > 1:
                keys = self.linker.constant("keys", list(node.properties))
                depth = " + ".join(filter(None, ("len(p)" if self._base else "", str(len(place.steps)))))
                with self.block(f"if len(out) - {start} > 1 and [*{x}] != {keys}:"):
                    self.line(f"reorder(out, {start}, {x}, {depth})")

    def _property(self, inner: Node, key: str, w: str, node: Node, place: _Place) -> bool:
        """Writes one declared key; gives whether a repair is possible there."""
        x, start = self._name("x"), len(self.lines)
        removable = key not in node.required
        # An object without a required key cannot be valid, and KeyError ends the attempt.
        self.line(f"{x} = {place.x}.get({key!r})" if removable else f"{x} = {place.x}[{key!r}]")
        member = _Place(
            x, f"{w}[{_escape_braces(key)}] = {{}}", (*place.steps, (repr(key), key)), place.rules,
            f"del {w}[{key!r}]" if removable else "", f"{key!r} in {place.x}",
        )  # fmt: skip
        self.value(inner, member)
        if self.is_silent(start + 1):
            del self.lines[start:]
        return len(self.lines) > start

    def _any_key(self, rest: Node, w: str, node: Node, place: _Place) -> None:
        x, key = self._name("x"), self._name("k")
        remove, start = "" if node.required else f"del {w}[{key}]", len(self.lines)
        with self.block(f"for {key}, {x} in {place.x}.items():"):
            self.value(rest, _Place(x, f"{w}[{key}] = {{}}", (*place.steps, (key, None)), place.rules, remove, "True"))
        if len(self.lines) > start:
            self.spend(start, place.x)

    def _array(self, node: Node, place: _Place) -> None:
        if node.items is None:
            return
        w, x, index = self._name("w"), self._name("x"), self._name(INDEX)
        with self.block(f"if type({place.x}) is list:"):
            first = len(self.lines)
            self.all([f"{w} = {place.x}.copy()", place.store.format(w)])
            with self.block(f"for {index}, {x} in enumerate({place.x}):"):
                self.value(node.items, _Place(x, f"{w}[{index}] = {{}}", (*place.steps, (index, None)), place.rules))
            if self.is_silent(first + 2):
                del self.lines[first:]
            else:
                self.spend(first, place.x)

    def _union(self, node: Node, place: _Place) -> None:
        """The branch that the discriminator names, or the only branch beside null."""
        branches, x = node.any_of or node.one_of, place.x
        found = _sole_discriminator(branches)
        if found is None:
            inner = _beside_null(branches)
            if inner is not None and not place.rules & _OF_CONTAINERS:
                self.parts(inner, _under(place, inner))
            return
        tag = self._name("t")
        with self.block(f"if type({x}) is dict:"):
            start = len(self.lines)
            self.line(f"{tag} = {x}.get({found.key!r})")
            for pin in found.pins:
                word = "if" if self.is_silent(start + 1) else "elif"
                with self.block(f"{word} {' or '.join(f'{tag} == {text!r}' for text in pin.texts)}:"):
                    self.parts(pin.branch, replace(_under(place, pin.branch), settled=found.key))
            if self.is_silent(start + 1):
                del self.lines[start:]


def _under(place: _Place, node: Node) -> _Place:
    """The place with the rules that `x-repair` leaves on at a node."""
    allowed = read_facts(node).allowed
    return place if allowed is None else replace(place, rules=place.rules & allowed)


def _is_listed(site: Site) -> bool:
    return site.types == {"string"} and not site.free_text and bool(_texts(site))


def _texts(site: Site) -> list[str]:
    return [choice for choice in site.choices or () if isinstance(choice, str)]


def _indent(line: str) -> str:
    return "    " + line


def _escape_braces(key: str) -> str:
    """A key in the form it has inside a format string."""
    return repr(key).replace("{", "{{").replace("}", "}}")


def _sole_discriminator(branches: tuple[Node, ...]) -> Discriminator | None:
    """The key that names a branch, provided that the repair engine could not choose by any other key."""
    found = find_discriminator(branches)
    if found is None:
        return None
    names = {key: "" for part in applies_always(branches[0]) for key in part.properties}
    return found if [key for key, _ in list_discriminators(branches, names)] == [found.key] else None


def _beside_null(branches: tuple[Node, ...]) -> Node | None:
    others = [branch for branch in branches if list_types(branch) != {"null"}]
    return others[0] if len(others) == 1 and len(branches) == 2 else None
