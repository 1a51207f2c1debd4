"""A client's config file, with the proxy put in front of its servers and taken away again.

The first installation keeps the file as it was beside it (`BACKUP`). If nothing else was changed since, taking the
proxy away gives that file back, byte for byte; else only the entries are written back, and the backup stays.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.extensions.mcp.importing.client_entries import (
    CLIENTS,
    PROGRAM,
    ClientFormat,
    Entry,
    find_obstacle,
    find_program,
    find_servers,
    guess_client,
    list_project_servers,
    unwrap_entry,
    wrap_entry,
)
from proxy.extensions.mcp.importing.client_texts import read_text, replace_entries
from proxy.extensions.operations.importing.harvest import ImportProblem, LeftOut
from proxy.file_writing import check_below, check_regular, replace_file

BACKUP: Final = ".before-toolcall-proxy"
_OF_PROJECT: Final = "add it with `--scope user`, or with `--scope project` for `install --project`"


@value_class
class ClientFile:
    """A client's config: its bytes and value, and its servers, which are at `place`."""

    path: Path
    client: ClientFormat
    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)
    place: tuple[str, ...]
    servers: Mapping[str, JsonValue] = field(repr=False)

    @property
    def is_toml(self) -> bool:
        """Returns whether it is TOML; else it is JSON."""
        return self.path.suffix == ".toml"

    def write(self, entries: Mapping[str, Entry]) -> bytes:
        """The text with other entries for these servers. Raises ImportProblem where it cannot be edited so."""
        return replace_entries(self.text, self.place, entries, str(self.path), is_toml=self.is_toml)


@value_class
class ClientEdit:
    """The text of a client's config after an edit, the servers whose entries differ, and those that were left."""

    text: bytes = field(repr=False)
    changed: tuple[str, ...]
    left: tuple[LeftOut, ...]


def check_in_project(path: Path) -> None:
    """Raises ImportProblem if a link leads from the current folder's config to a file outside of this folder."""
    try:
        check_below(path, Path())
    except OSError as error:
        hint = f"to edit that file, run the command with `--file {path}` instead of --project"
        raise ImportProblem(f"{path}: {error.strerror}", hint) from None


def read_client_file(path: Path, client: str = "") -> ClientFile:
    """Reads a client's config. `client` is a key of `CLIENTS`; '' is decided by the file.

    Raises:
        ImportProblem: it cannot be read, or names no servers.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ImportProblem(f"cannot read {path}: {error.strerror}") from None
    return parse_client_file(text, path, client)


def parse_client_file(text: bytes, path: Path, client: str = "") -> ClientFile:
    """Reads the bytes of the client's config at `path`. Raises ImportProblem where it names no servers."""
    value = read_text(text, str(path), is_toml=path.suffix == ".toml")
    found = find_servers(value)
    if found is None:
        hint = "it is looked for under `mcpServers`, `servers` (VS Code) and `mcp_servers` (Codex)"
        if kept := list_project_servers(value):
            hint = f"{', '.join(sorted({name for _, name in kept}))} belong to single projects: {_OF_PROJECT}"
        raise ImportProblem(f"{path} names no MCP servers", hint)
    place, servers = found
    return ClientFile(path, CLIENTS.get(client) or guess_client(path, place, servers), text, value, place, servers)


def put_in_front(file: ClientFile, program: Sequence[str], named: Collection[str] = ()) -> ClientEdit:
    """Puts the proxy in front of the servers that `named` names, or of all. Raises ImportProblem."""
    _check_names(file, named)
    entries: dict[str, Entry] = {}
    left: list[LeftOut] = []
    for name, entry in _list_named(file, named):
        if why := find_obstacle(entry, file.client, named=bool(named)):
            left.append(LeftOut(name, why))
        elif isinstance(entry, dict):
            entries[name] = wrap_entry(entry, file.client, program)
    left += [
        LeftOut(name, f"it belongs to the project {folder}", _OF_PROJECT)
        for folder, name in list_project_servers(file.value)
        if not named
    ]
    return ClientEdit(file.write(entries), tuple(entries), tuple(left))


def take_away(file: ClientFile, named: Collection[str] = ()) -> ClientEdit:
    """Takes the proxy away from the servers that `named` names, or from all. Raises ImportProblem."""
    _check_names(file, named)
    entries: dict[str, Entry] = {}
    left: list[LeftOut] = []
    for name, entry in _list_named(file, named):
        if not isinstance(entry, dict) or find_program(entry) is None:
            left += [LeftOut(name, "the proxy is not in front of it")] if named else []
        elif (before := unwrap_entry(entry, file.client)) is None:
            left.append(LeftOut(name, "its arguments were not written by `install`", "change it by hand"))
        else:
            entries[name] = before
    return ClientEdit(file.write(entries), tuple(entries), tuple(left))


def _list_named(file: ClientFile, named: Collection[str]) -> Iterator[tuple[str, JsonValue]]:
    return ((name, entry) for name, entry in file.servers.items() if not named or name in named)


def _check_names(file: ClientFile, named: Collection[str]) -> None:
    if unknown := [name for name in named if name not in file.servers]:
        there = ", ".join(file.servers) or "none"
        raise ImportProblem(f"{file.path} names no server {unknown[0]!r}", f"there are: {there}")


# --- on disk ----------------------------------------------------------------------------------------------------------
def install(file: ClientFile, edit: ClientEdit) -> Path:
    """Writes an edited config; gives the backup, which holds the config without any proxy. Raises ImportProblem."""
    backup = _name_backup(file.path)
    is_first = all(find_program(entry) is None for entry in file.servers.values())
    try:
        if not check_regular(backup) or is_first:
            replace_file(backup, file.text)
        replace_file(file.path.resolve(), edit.text)
    except OSError as error:
        raise ImportProblem(f"cannot write {error.filename}: {error.strerror}") from None
    return backup


def uninstall(file: ClientFile, edit: ClientEdit) -> Path | None:
    """Writes a config without the proxy. If nothing else has changed, that is the backup, which is then removed.
    Gives the backup that stays, or None. Raises ImportProblem."""
    backup = _name_backup(file.path)
    try:
        before = backup.read_bytes() if check_regular(backup) else None
        is_whole = before is not None and _is_made_from(before, file, edit)
        replace_file(file.path.resolve(), before if before is not None and is_whole else edit.text)
        if is_whole:
            backup.unlink()
    except OSError as error:
        raise ImportProblem(f"cannot write {error.filename}: {error.strerror}") from None
    return None if before is None or is_whole else backup


def _is_made_from(backup: bytes, file: ClientFile, edit: ClientEdit) -> bool:
    """Returns whether installing into the backup's text gives this file, for all servers behind the proxy."""
    installed = {name: program for name, entry in file.servers.items() if (program := find_program(entry)) is not None}
    if set(installed) != set(edit.changed):
        return False
    try:
        before = parse_client_file(backup, file.path, file.client.name)
        entries = {
            name: wrap_entry(entry, file.client, program)
            for name, program in installed.items()
            if isinstance(entry := before.servers.get(name), dict) and find_program(entry) is None
        }
        return before.write(entries) == file.text
    except ImportProblem:
        return False


def _name_backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def find_own_program(which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...]:
    """The words that start this proxy, with an absolute path: a desktop application does not have the PATH of a virtual
    environment."""
    beside = Path(sys.executable).with_name(PROGRAM)
    if beside.exists():
        return (str(beside),)
    found = which(PROGRAM)
    return (str(Path(found).absolute()),) if found else (sys.executable, "-m", "proxy")
