"""Renames a tool, its schema and a call part by part, so that no name keeps its meaning and each keeps its shape.

A part is one word of a name. Names are split at separators and between letters and digits. They are also split before a
capital behind a small letter, and before the last capital of a run that a small letter follows. One part becomes the
same random part wherever it occurs, in the case that it had there. Values are left as they are, but for JSON text and
markup in them.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from urllib.parse import quote, unquote

from proxy.core.model.values import JsonValue
from proxy.core.rules.vocabulary import PROTOCOL_WORDS, READING_VERBS

Parts = tuple[str, ...]
Rename = Callable[[str], str]

# The keys beside which a call names its tool.
_TOOL_KEYS: Final = frozenset({"name", "function", "tool", "tool_name", "function_name", "action", "recipient_name"})
# Words that a reader of JSON or Python takes for a value.
_VALUES: Final = frozenset(["true", "false", "null", "none", "nan", "inf", "infinity", "undefined", "yes"])
_LEAST: Final = 3
_LONGEST: Final = 9
_CASELESS: Final = "가나다라마바사아자차카타파하"


class UnrenamableError(Exception):
    """A schema that states its names by a pattern."""


@dataclass(frozen=True)
class Case:
    """A call and the tool that it is for."""

    id: str
    tool: str
    schema: JsonValue
    sent: str


# --- names ------------------------------------------------------------------------------------------------------------
_RUN: Final = re.compile(r"[^\W\d_]+")
_TOKEN: Final = re.compile(r"[^\W\d_]+|\d+")
_SEGMENTS: Final = re.compile(r"([.\[\]/]+)")


def _cut(run: str) -> list[str]:
    """The parts of a run of letters."""
    parts, start = [], 0
    for at in range(1, len(run)):
        ends_capitals = run[at - 1].isupper() and run[at + 1 : at + 2].islower()
        if run[at].isupper() and (run[at - 1].islower() or ends_capitals):
            parts.append(run[start:at])
            start = at
    return [*parts, run[start:]]


def split_parts(name: str) -> Parts:
    """The parts of a name in small letters, those of digits too."""
    return tuple(part.lower() for token in _TOKEN.findall(name) for part in _cut(token))


def replace_parts(text: str, parts: Mapping[str, str], keep: int = 0) -> str:
    """The text with each part replaced in the case that it has there, but for the first `keep` parts."""
    left = keep

    def replaced(run: re.Match[str]) -> str:
        nonlocal left
        made = []
        for part in _cut(run[0]):
            new = part if left > 0 else parts.get(part.lower(), "")
            made.append(_recased(new, part) if new else part)
            left -= 1
        return "".join(made)

    return _RUN.sub(replaced, text)


def _recased(new: str, part: str) -> str:
    if part.isupper():
        return new.upper()
    return new.capitalize() if part[0].isupper() else new


_PROTOCOL: Final = frozenset(map(split_parts, PROTOCOL_WORDS))


@dataclass(frozen=True)
class Renaming:
    """New parts for those of a case. `known` holds the names that the schema declares, and the tool's, as parts."""

    tool: Parts
    known: frozenset[Parts]
    parts: Mapping[str, str]

    def rename(self, name: str) -> str:
        """The new name; a path of names is renamed step by step, a word of the protocols never."""
        found = split_parts(name)
        if found in _PROTOCOL:
            return name
        if found in self.known or _SEGMENTS.search(name) is None:
            verb = found == self.tool and found[:1] != () and found[0] in READING_VERBS
            return replace_parts(name, self.parts, keep=int(verb))
        return "".join(self.rename(step) if _TOKEN.search(step) else step for step in _SEGMENTS.split(name))

    def normalize(self, value: Any) -> Any:
        """The value with each part replaced in every key and text: equal for results that differ by names only."""
        if isinstance(value, str):
            return replace_parts(value, self.parts)
        if isinstance(value, dict):
            return {replace_parts(key, self.parts): self.normalize(item) for key, item in value.items()}
        return [self.normalize(item) for item in value] if isinstance(value, list | tuple) else value


# --- schemas ----------------------------------------------------------------------------------------------------------
_NAMING: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_PROSE: Final = frozenset({"description", "title", "$comment", "comment", "markdownDescription"})
_SAMPLES: Final = frozenset({"examples", "example"})
_DATA: Final = frozenset({"const", "enum", "default"})
_PATTERNS: Final = frozenset({"enum", "const", "pattern", "format", "minLength", "maxLength"})


def rename_schema(schema: Any, rename: Rename, prose: Callable[[], str]) -> Any:
    """The schema with new names, and random text for all prose. Raises UnrenamableError."""
    if isinstance(schema, list):
        return [rename_schema(each, rename, prose) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("patternProperties") or _PATTERNS & _keys(schema.get("propertyNames")):
        raise UnrenamableError
    return {key: _rename_keyword(key, value, rename, prose) for key, value in schema.items()}


def _keys(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, dict) else frozenset()


def _rename_keyword(key: str, value: Any, rename: Rename, prose: Callable[[], str]) -> Any:
    if key in _PROSE and isinstance(value, str):
        return prose()
    if key in _SAMPLES:
        return [prose()] if isinstance(value, list) else prose()
    if key in _DATA:
        return rename_data(value, rename)
    if key in _NAMING and isinstance(value, dict):
        return {rename(name): rename_schema(item, rename, prose) for name, item in value.items()}
    if key in ("dependentRequired", "dependencies") and isinstance(value, dict):
        return {
            rename(name): list(map(rename, item)) if isinstance(item, list) else rename_schema(item, rename, prose)
            for name, item in value.items()
        }
    if key == "required" and isinstance(value, list):
        return [rename(name) for name in value]
    if key == "$ref" and isinstance(value, str):
        return _rename_reference(value, rename)
    if key == "discriminator" and isinstance(value, dict) and "propertyName" in value:
        mapping = {name: _rename_reference(target, rename) for name, target in value.get("mapping", {}).items()}
        return {**value, "propertyName": rename(value["propertyName"]), **({"mapping": mapping} if mapping else {})}
    return rename_schema(value, rename, prose)


def rename_data(value: Any, rename: Rename) -> Any:
    """A value with its keys renamed at every depth."""
    if isinstance(value, dict):
        return {rename(key): rename_data(item, rename) for key, item in value.items()}
    return [rename_data(item, rename) for item in value] if isinstance(value, list) else value


def _rename_reference(reference: str, rename: Rename) -> str:
    if not reference.startswith("#/"):
        return reference
    steps, is_name = [], False
    for step in reference[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        steps.append(quote(rename(name).replace("~", "~0").replace("/", "~1"), safe="$~") if is_name else step)
        is_name = not is_name and name in _NAMING
    return "#/" + "/".join(steps)


def list_names(schema: Any) -> set[str]:
    """The names that a schema declares or requires, and those of its definitions."""
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    rename_schema(schema, note, str)
    return found


# --- calls ------------------------------------------------------------------------------------------------------------
_LEXEME: Final = re.compile(
    r'(?P<tag></?[A-Za-z|][^<>{}]{0,200}>)|(?P<escaped>\\"(?:(?!\\").)*?\\")|(?P<text>"(?:[^"\\]|\\.)*"'
    r"|(?<!\w)'(?:[^'\\]|\\.)*')|(?P<word>[^\W\d]\w*(?:[-.]\w+)*)",
    re.DOTALL,
)
_IS_KEY: Final = re.compile(r"""["'”’\\]*\s*(?::(?!//)|=(?!=))""")
_WORD: Final = re.compile(r"[^\W\d]\w*(?:[-.]\w+)*")
_MARKUP_WITH_NAME: Final = re.compile(r"</?\s*(?:antml:)?[A-Za-z_|]+(?=[\s=:])")
_HOLDS_NAMES: Final = re.compile(r"\s*[\[{<`\"]|.*</|.*<\|", re.DOTALL)


def rename_call(text: str, renaming: Renaming, note: Callable[[str], None] = lambda _: None) -> str:
    """The text of a call with new names, and otherwise the same characters. `note` gets each name that is found.

    The text needs not be JSON: keys are found by what follows them, in quotes of any kind or without.
    """
    made, at, key = [], 0, ""
    for lexeme in _LEXEME.finditer(text):
        made.append(text[at : lexeme.start()])
        token, at = lexeme[0], lexeme.end()
        kind = lexeme.lastgroup or ""
        is_key = kind != "tag" and _IS_KEY.match(text, at) is not None
        if is_key:
            key = _strip_quotes(token)
            made.append(_rename_quoted(token, lambda name: _renamed(name, renaming, note)))
            continue
        made.append(_rename_other(token, kind, key, renaming, note))
        key = ""
    return "".join((*made, text[at:]))


def _renamed(name: str, renaming: Renaming, note: Callable[[str], None]) -> str:
    note(name)
    return renaming.rename(name)


def _rename_other(token: str, kind: str, key: str, renaming: Renaming, note: Callable[[str], None]) -> str:
    """A token that is no key: a tag, a value, or a word between them."""
    if kind == "tag":
        begin = _MARKUP_WITH_NAME.match(token)
        start = begin.end() if begin else 0
        return token[:start] + _WORD.sub(lambda word: _rename_known(word[0], renaming), token[start:])
    if kind == "word":
        return token if token.lower() in _VALUES else _rename_known(token, renaming)
    if key in _TOOL_KEYS:
        return _rename_quoted(token, lambda name: _rename_tool_at_end(name, renaming))
    return _rename_quoted(
        token, lambda text: rename_call(text, renaming, note) if _HOLDS_NAMES.match(text) is not None else text
    )


def _rename_known(word: str, renaming: Renaming) -> str:
    return renaming.rename(word) if split_parts(word) in renaming.known else word


def _rename_tool_at_end(name: str, renaming: Renaming) -> str:
    """A value that ends with the tool's name, such as `functions.get_weather`."""
    for at in range(len(name)):
        if split_parts(name[at:]) == renaming.tool and not name[at - 1 : at].isalnum():
            return name[:at] + renaming.rename(name[at:])
    return name


def _strip_quotes(token: str) -> str:
    return token.strip("\\\"'")


def _rename_quoted(token: str, rename: Rename) -> str:
    """A token with its content renamed, in the quotes that it had."""
    if token.startswith('"'):
        try:
            content = json.loads(token)
        except ValueError:
            return f'"{rename(token[1:-1])}"'
        made = rename(content)
        return token if made == content else json.dumps(made, ensure_ascii=token.isascii())
    width = 2 if token.startswith('\\"') else 1 if token.startswith("'") else 0
    return token[:width] + rename(token[width : len(token) - width]) + token[len(token) - width :]


# --- cases ------------------------------------------------------------------------------------------------------------
def make_renaming(case: Case, chance: Random) -> Renaming:
    """New parts for all names of a case. Raises UnrenamableError."""
    declared = list_names(case.schema)
    found = {case.tool, *declared}
    tool = split_parts(case.tool)
    known = frozenset({tool, *map(split_parts, declared)} - {()})
    rename_call(case.sent, Renaming(tool, known, {}), found.add)
    old = {part: part for name in sorted(found) for part in split_parts(name) if not part.isdigit()}
    taken = {*old, *READING_VERBS, *_VALUES, *(part for word in _PROTOCOL for part in word)}
    short = _list_short(found)
    parts: dict[str, str] = {}
    for part in old:
        while (new := _draw(part, chance, len(part) if part in short else 0)) in taken:
            pass
        taken.add(new)
        parts[part] = new
    return Renaming(tool, known, parts)


def _list_short(names: Iterable[str]) -> set[str]:
    """The parts of one or two letters that are names by themselves in more than one case, such as `MW` beside `mw`.
    Only the length of such a part tells that its case has a meaning, so the new part has the same length."""
    short = {name for name in names if len(name) < _LEAST and len(split_parts(name)) == 1 and name.isalpha()}
    return {name.lower() for name in short if len({each for each in short if each.lower() == name.lower()}) > 1}


def _draw(part: str, chance: Random, length: int) -> str:
    letters = string.ascii_lowercase if part.upper() != part.lower() else _CASELESS
    return "".join(chance.choices(letters, k=length or chance.randint(_LEAST, _LONGEST)))


def rename_case(case: Case, seed: int = 1) -> tuple[Case, Renaming]:
    """The case with other names, the same for the same seed. Raises UnrenamableError."""
    chance = Random(f"{seed} {case.id}")
    renaming = make_renaming(case, chance)

    def prose() -> str:
        words = ("".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(6))
        return " ".join(words).capitalize() + "."

    schema = rename_schema(case.schema, renaming.rename, prose)
    return Case(case.id, renaming.rename(case.tool), schema, rename_call(case.sent, renaming)), renaming
