"""Writes the files of an import: the config, a schema for each tool, and the record. It replaces files only if asked
to.

Values are written as YAML that `config/files/yaml12.py` reads back as the same values, laid out as a person would:
plain text if it can have no other meaning, block text for several lines, and JSON's quotes for the rest. A JSON string
is a double-quoted YAML scalar (YAML 1.2 section 1.3, of which JSON is meant to be a subset).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from proxy.config.files.yaml12 import read_scalar
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.importing.fetch import hide_query
from proxy.extensions.operations.importing.harvest import (
    FILE,
    FoundTool,
    Harvest,
    ImportProblem,
    describe_unguarded,
    flatten_text,
    write_record,
)
from proxy.file_writing import SHARED, check_below, check_regular, replace_file

CONFIG: Final = "config.yaml"
SCHEMAS: Final = "schemas"
# The schema of configs, for editors; `toolcall-proxy schema` prints it.
SCHEMA: Final = "config.schema.json"
UPSTREAM: Final = "tools"
# The route by which every tool can be called by its name, with its arguments as JSON.
BY_NAME: Final = "/tools/{tool}"
_LONGEST: Final = 80  # characters of a file's name, so that every file system takes it

_HEAD: Final = """\
# yaml-language-server: $schema={schema}
# Written by `toolcall-proxy import {kind}` from {source}. It is yours now: edit it, and the schemas beside it.
#   toolcall-proxy check {config} --live   what has changed at the source since (it reads {record})
#   toolcall-proxy serve {config}
#   toolcall-proxy schema > {schema}          what editors complete and check this file by
"""


def make_files(harvest: Harvest) -> dict[str, str]:
    """Relative path -> text of every file of an import, the config first."""
    names = _name_schema_files([tool.name for tool in harvest.tools])
    files = {CONFIG: write_config_text(harvest, names)}
    for tool in harvest.tools:
        notes = "".join(f"# {flatten_text(note)}\n" for note in tool.notes)
        files[names[tool.name]] = f"# The arguments of {flatten_text(tool.name)}.\n{notes}{write_yaml(tool.schema)}"
    files[FILE] = write_record(harvest)
    return files


def _name_schema_files(names: list[str]) -> dict[str, str]:
    """Tool -> its schema's file. Names have letters, digits, `.`, `_` and `-`, and differ in more than case."""
    taken: set[str] = set()
    made: dict[str, str] = {}
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:_LONGEST].lstrip(".-") or "tool"
        candidates = (base, *(f"{base}_{number}" for number in range(2, len(names) + 2)))
        chosen = next(each for each in candidates if each.casefold() not in taken)
        taken.add(chosen.casefold())
        made[name] = f"{SCHEMAS}/{chosen}.yaml"
    return made


def write_config_text(harvest: Harvest, schemas: Mapping[str, str]) -> str:
    """The text of the config; `schemas` maps each tool to its schema file."""
    head = _HEAD.format(
        kind=harvest.kind, source=flatten_text(hide_query(harvest.source)), config=CONFIG, record=FILE, schema=SCHEMA
    )
    sections: dict[str, JsonValue] = {
        "version": 1,
        "listen": "127.0.0.1:8080",
        "schemas": {"unknown_keywords": "note"} if any(map(describe_unguarded, harvest.tools)) else {},
        "upstreams": {UPSTREAM: {"url": escape_variables(harvest.upstream)}},
        "tools": {}
        if harvest.kind == "mcp"
        else {each.name: _make_entry(each, schemas[each.name]) for each in harvest.tools},
        "routes": [_make_mcp_route(harvest, schemas)] if harvest.path else list(_make_routes(harvest)),
    }
    return head + "".join(f"\n{write_yaml({key: value})}" for key, value in sections.items() if value)


def _make_entry(tool: FoundTool, schema: str) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {}
    if tool.description.strip():
        made["description"] = escape_variables(_strip_line_ends(tool.description))
    made["schema"] = schema
    if tool.request is not None:
        made["request"] = _escape_texts(tool.request.write_entry())
    return made


def _escape_texts(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return escape_variables(value)
    if isinstance(value, list):
        return [_escape_texts(item) for item in value]
    return {key: _escape_texts(item) for key, item in value.items()} if isinstance(value, dict) else value


def _make_mcp_route(harvest: Harvest, schemas: Mapping[str, str]) -> JsonValue:
    """One route for all tools: the operations of the catalogue, or the tools of an MCP server. Tools of the server that
    it does not name are learned while serving."""
    if harvest.kind == "openapi":
        return {"path": harvest.path, "protocol": "mcp", "upstream": UPSTREAM, "operations": "all"}
    tools = {tool.name: {"schema": schemas[tool.name]} for tool in harvest.tools}
    return {"path": escape_variables(harvest.path), "protocol": "mcp", "upstream": UPSTREAM, "mcp": {"tools": tools}}


def _make_routes(harvest: Harvest) -> Iterator[JsonValue]:
    for tool in harvest.tools:
        own_head = f"HEAD {tool.origin.partition(' ')[2]}" in harvest.seen
        methods = ["GET", "HEAD"] if tool.method == "GET" and not own_head else [tool.method]
        match = {} if methods == ["POST"] else {"methods": methods}
        yield {"path": escape_variables(tool.path), **match, "upstream": UPSTREAM, "tool": escape_variables(tool.name)}
    if harvest.tools and not any(tool.path.startswith("/tools/") for tool in harvest.tools):
        yield {"path": BY_NAME, "upstream": UPSTREAM}
    for left in harvest.left_out:
        if left.path:
            yield {"path": escape_variables(left.path), "methods": [left.method], "refuse": escape_variables(left.why)}
    for relayed in harvest.relayed:
        yield {
            "path": escape_variables(relayed.path),
            "methods": [relayed.method],
            "upstream": UPSTREAM,
            "passthrough": True,
        }


def escape_variables(text: str) -> str:
    """A text as a config spells it: `$` is doubled, because `${` begins a reference to a variable."""
    return text.replace("$", "$$")


def _strip_line_ends(text: str) -> str:
    """A description without invisible blanks at line ends, which YAML's block text would lose."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def write_files(folder: Path, files: Mapping[str, str], *, force: bool, mode: int = SHARED) -> list[Path]:
    """Writes the files below a folder, which is created if needed; gives their paths. New files get `mode`.

    Raises ImportProblem, and writes nothing, if one of them exists and `force` is not set, or if a link leads out of
    the folder.
    """
    paths = {folder / name: text for name, text in files.items()}
    there = [path for path in paths if os.path.lexists(path)]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        hint = "--into ANOTHER_FOLDER keeps it, --force replaces it"
        raise ImportProblem(f"{there[0]} exists{more}: nothing is written", hint)
    try:
        for path in paths:
            check_below(path.parent, folder)
            check_regular(path)
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode(), mode)
    except OSError as error:
        raise ImportProblem(f"cannot write {error.filename}: {error.strerror}", "--into names another folder") from None
    return list(paths)


WIDTH: Final = 100  # columns that a list may fill before it is written one item a line
# Text that needs no quotes: letters, digits and a few signs without a meaning in YAML.
_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_./()$+-]*(?: [A-Za-z0-9_./()$+-]+)*")
_PATH: Final = re.compile(r"/[A-Za-z0-9_./-]*|https?://[A-Za-z0-9_./:-]*[A-Za-z0-9_/-]")
# A line that block text can hold: printable, without blanks at its ends, which would be lost or read as indentation.
_LINE: Final = re.compile(r"(?:[^\s\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff](?:.*\S)?)?")
_UNPRINTABLE: Final = re.compile(
    r"[^\t\n\x20-\x7e\xa1-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)


def write_yaml(value: JsonValue, indent: int = 0) -> str:
    """A JSON value (numbers as `jsontext.parse` gives them) as YAML lines that end in a line break."""
    return "".join(f"{line}\n" for line in _write_block(value, indent))


def write_scalar(text: str) -> str:
    """Returns one line of YAML for a text: unquoted if that is safe, otherwise quoted."""
    plain = _PLAIN.fullmatch(text) or _PATH.fullmatch(text)
    if plain and read_scalar(text) == text and not text.endswith(":"):
        return text
    # JSON quotes, with characters escaped that YAML does not accept as they are (section 5.1).
    return _UNPRINTABLE.sub(lambda found: _escape(found[0]), dumps(text).decode())


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _write_block(value: JsonValue, indent: int) -> Iterator[str]:
    pad = " " * indent
    if (short := _write_flow(value)) is not None and indent + len(short) <= WIDTH:
        yield pad + short
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _write_entry(f"{pad}{write_scalar(key)}:", item, indent + 2)
    elif isinstance(value, list):
        for item in value:
            first, *rest = _write_block(item, indent + 2)
            yield f"{pad}- {first[indent + 2 :]}"
            yield from rest
    else:
        yield pad + _write_one_line(value)


def _write_entry(head: str, item: JsonValue, indent: int) -> Iterator[str]:
    """A key with its value: beside it where it fits, else below."""
    if isinstance(item, str) and _is_blocky(item):
        yield f"{head} |-"
        yield from (f"{' ' * indent}{line}".rstrip() for line in item.split("\n"))
        return
    short = _write_flow(item)
    if short is not None and len(head) + 1 + len(short) <= WIDTH:
        yield f"{head} {short}"
    elif isinstance(item, dict | list):
        yield head
        yield from _write_block(item, indent)
    else:
        yield f"{head} {_write_one_line(item)}"


def _is_blocky(text: str) -> bool:
    lines = text.split("\n")
    printable = not _UNPRINTABLE.search(text) and "\t" not in text
    return len(lines) > 1 and bool(lines[0] and lines[-1]) and printable and all(map(_LINE.fullmatch, lines))


def _write_flow(value: JsonValue) -> str | None:
    """The value on one line; None for a mapping, and for a list of more than single values."""
    if isinstance(value, dict | list) and value:
        if isinstance(value, dict) or any(isinstance(item, dict | list) and item for item in value):
            return None
        return f"[{', '.join(map(_write_one_line, value))}]"  # plain text holds no `,` and no bracket
    return _write_one_line(value)


def _write_one_line(value: JsonValue) -> str:
    return write_scalar(value) if isinstance(value, str) else dumps(value).decode()
