"""The text of a client's config with other entries for some of its servers; every other byte stays as it was. Pure.

JSON may have comments and trailing commas, as editors write it. They are blanked out only for the search, which keeps
every offset. In TOML the lines of a server's table are changed. Every result is read again and compared with the
expected value.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from proxy.core.json.jsonspan import find_span
from proxy.core.json.jsontext import TextLimits, are_equal, dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.operations.importing.harvest import ImportProblem

_LIMITS: Final = TextLimits(depth=64, nodes=1_000_000)
_BOM: Final = b"\xef\xbb\xbf"
# The parts of a JSON text that the search needs: strings, comments, and commas before a closing bracket.
_BESIDE: Final = re.compile(
    rb'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*\n|/\*.*?\*/)*[}\]])', re.DOTALL
)

Entries = Mapping[str, Mapping[str, JsonValue]]


def blank_comments(text: bytes) -> bytes:
    """A JSON text with spaces in place of comments, trailing commas and a byte order mark; as long as before."""
    if text.startswith(_BOM):
        text = b"   " + text[len(_BOM) :]

    def blank(found: re.Match[bytes]) -> bytes:
        return found[0] if found[0].startswith(b'"') else re.sub(rb"[^\r\n]", b" ", found[0])

    return _BESIDE.sub(blank, text)


def read_text(text: bytes, source: str, *, is_toml: bool) -> JsonValue:
    """A client's config as a value. Raises ImportProblem, with the place of the mistake."""
    if is_toml:
        try:
            found: JsonValue = tomllib.loads(text.decode())
        except ValueError as error:  # not UTF-8, or no TOML
            raise ImportProblem(f"{source}: {error}") from None
        return found
    value = parse(blank_comments(text), _LIMITS)
    if isinstance(value, JsonProblem):
        raise ImportProblem(f"{source}:{value.line}:{value.column}: {value.reason}")
    return value


def replace_entries(text: bytes, place: tuple[str, ...], entries: Entries, source: str, *, is_toml: bool) -> bytes:
    """The text with these entries under `place` in place of those of the same names. Raises ImportProblem if the text
    is written in a way that cannot be edited so."""
    made = _replace_in_toml(text.decode(), place, entries).encode() if is_toml else text
    for name, entry in entries.items() if not is_toml else ():
        made = _replace_in_json(made, (*place, name), entry)
    expected = read_text(text, source, is_toml=is_toml)
    servers: Any = expected
    for key in place:
        servers = servers[key]
    servers.update(entries)
    try:
        found = read_text(made, source, is_toml=is_toml)
        is_right = found == expected if is_toml else are_equal(found, expected)
    except ImportProblem:
        is_right = False
    if not is_right:
        names = ", ".join(entries)
        raise ImportProblem(
            f"{source}: the entries of {names} are written in a way that cannot be edited", "do it by hand"
        )
    return made


# --- JSON -------------------------------------------------------------------------------------------------------------
def _replace_in_json(text: bytes, path: tuple[str, ...], entry: Mapping[str, JsonValue]) -> bytes:
    """One entry; where only `command` and `args` differ, only these two are written."""
    searched = blank_comments(text)
    start, end = find_span(searched, path)
    before = parse(searched[start:end], _LIMITS)
    same: dict[str, JsonValue] = {"command": None, "args": None}
    if isinstance(before, dict) and are_equal({**before, **same}, {**entry, **same}):
        return _replace_command(text, searched, path, entry, has_args="args" in before)
    line = text[:start].rpartition(b"\n")[2]
    margin = line[: len(line) - len(line.lstrip())].decode()
    step = "\t" if margin.startswith("\t") else "  "
    lines = json.dumps(json.loads(dumps(dict(entry))), indent=step, ensure_ascii=False).split("\n")
    return text[:start] + f"\n{margin}".join(lines).encode() + text[end:]


def _replace_command(
    text: bytes, searched: bytes, path: tuple[str, ...], entry: Mapping[str, JsonValue], *, has_args: bool
) -> bytes:
    command, args = (json.dumps(entry[key], ensure_ascii=False).encode() for key in ("command", "args"))
    spans = [(*find_span(searched, (*path, "command")), command if has_args else command + b', "args": ' + args)]
    if has_args:
        spans.append((*find_span(searched, (*path, "args")), args))
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text


# --- TOML -------------------------------------------------------------------------------------------------------------
_TABLE: Final = re.compile(r"\s*\[")
# Keys of a server's table that another transport does not use.
_CHANGED: Final = ("command", "args", "url")


def _replace_in_toml(text: str, place: tuple[str, ...], entries: Entries) -> str:
    lines = text.splitlines(keepends=True)
    for name, entry in entries.items():
        first = next((at for at, line in enumerate(lines) if _names_table(line, (*place, name))), None)
        if first is not None:
            end = next((at for at in range(first + 1, len(lines)) if _TABLE.match(lines[at])), len(lines))
            lines[first + 1 : end] = _change_lines(lines[first + 1 : end], entry)
    return "".join(lines)


def _names_table(line: str, path: tuple[str, ...]) -> bool:
    """Returns whether a line begins the table at `path`: `[mcp_servers.NAME]`."""
    return bool(_TABLE.match(line)) and not line.lstrip().startswith("[[") and _read_head(line, path) == {}


def _read_head(line: str, path: tuple[str, ...]) -> Any:
    """Returns the value at a path in the head of a table; None without one."""
    try:
        found: Any = tomllib.loads(line)
    except ValueError:
        return None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def write_toml_servers(text: bytes, place: tuple[str, ...], servers: Mapping[str, JsonValue], source: str) -> str:
    """The text of a TOML config with other servers: the tables of those that are gone or differ are left out, and new
    ones are at the end. Raises ImportProblem if the text is written in a way that cannot be edited so."""
    value: Any = read_text(text, source, is_toml=True)
    before = value
    for key in place:
        before = before[key]
    kept: list[str] = []
    is_kept = True
    for line in text.decode().splitlines(keepends=True):
        if _TABLE.match(line):
            name = _find_server(line, place)
            is_kept = name is None or (name in servers and servers[name] == before.get(name))
        kept += [line] if is_kept else []
    for name, entry in servers.items():
        if entry != before.get(name) and isinstance(entry, dict):
            head = ".".join([*place, json.dumps(name, ensure_ascii=False)])
            kept.append(f"\n[{head}]\n")
            kept += [f"{key} = {json.dumps(item, ensure_ascii=False)}\n" for key, item in entry.items()]
    made = "".join(kept)
    before.clear()
    before.update(servers)
    if read_text(made.encode(), source, is_toml=True) != value:
        raise ImportProblem(f"{source}: its servers are written in a way that cannot be edited", "do it by hand")
    return made


def _find_server(line: str, place: tuple[str, ...]) -> str | None:
    """The server whose table, or a table below it, a line begins; None for any other table."""
    found = _read_head(line, place)
    return next(iter(found), None) if isinstance(found, dict) else None


def _change_lines(lines: list[str], entry: Mapping[str, JsonValue]) -> list[str]:
    """Returns the lines of a table with an entry's `command` and `args` in place of the table's own and of a URL."""
    made = [f"{key} = {json.dumps(entry[key], ensure_ascii=False)}\n" for key in _CHANGED if key in entry]
    kept: list[str] = []
    at = 0
    while at < len(lines):
        key = lines[at].partition("=")[0].strip()
        end = _find_end(lines, at) if key in _CHANGED else at + 1
        if key not in _CHANGED:
            kept.append(lines[at])
        elif made:  # where the first of them stood
            kept += made
            made = []
        at = end
    return kept


def _find_end(lines: list[str], at: int) -> int:
    """The line behind a value that may take several lines, such as a list."""
    for end in range(at + 1, len(lines) + 1):
        try:
            tomllib.loads("".join(lines[at:end]))
        except ValueError:
            continue
        return end
    return at + 1
