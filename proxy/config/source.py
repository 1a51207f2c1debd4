"""Files: each is read once, remembered with its bytes (reload watches them later), and knows where its values stand.

YAML knows its places from the parser (`yaml12.py`). JSON files go through the strict reader of the core, which keeps
no places; they are found again in the text when a mistake has to be shown.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.yaml12 import MAX_DEPTH, MAX_NODES, Node, YamlError, read_yaml
from proxy.core.jsontext import TextLimits, parse
from proxy.core.model import JsonProblem, JsonValue, Pointer

# Larger than any OpenAPI description we know (the largest of 23 public ones is 5 MiB).
MAX_FILE_BYTES: Final = 32 * 1024 * 1024

# What `Files.seen` has for a file that is not there, or cannot be read.
UNREADABLE: Final = ""

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class Places(Protocol):
    """Says where in a file a value or a key stands; line and column count from 1."""

    def at(self, path: Pointer) -> tuple[int, int]:
        """The place of the value at a path, or of the nearest one around it."""

    def key_at(self, path: Pointer) -> tuple[int, int]:
        """The place of the key a path ends with, or of the value where it is no key."""


@dataclass(frozen=True, slots=True)
class Source:
    """One document: the file's name as shown, its value and the places in it."""

    file: str
    value: JsonValue = field(repr=False)
    places: Places = field(repr=False)

    def mistake(self, path: Pointer, where: str, message: str, hint: str = "", *, key: bool = False) -> Mistake:
        """A mistake about the value at `path`, or about its key."""
        line, column = self.places.key_at(path) if key else self.places.at(path)
        return Mistake(self.file, line, column, where, message, hint)


@dataclass(frozen=True, slots=True)
class JsonPlaces:
    """The places in a JSON text, found by reading it again. The text is valid JSON."""

    text: bytes = field(repr=False)

    def at(self, path: Pointer) -> tuple[int, int]:
        """The place of the value at a path, or of the nearest one around it."""
        return self._place(path, key=False)

    def key_at(self, path: Pointer) -> tuple[int, int]:
        """The place of the key a path ends with, or of the value where it is no key."""
        return self._place(path, key=True)

    def _place(self, path: Pointer, *, key: bool) -> tuple[int, int]:
        text = self.text.decode()
        best, offset = -1, 0
        for place, steps, is_key in _json_walk(text):
            depth = len(steps)
            wanted = depth == len(path) if is_key and key else not is_key
            if wanted and depth > best and steps == path[:depth]:
                best, offset = depth, place
        return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _json_walk(text: str) -> Iterator[tuple[int, Pointer, bool]]:
    """Every key and value of a JSON text in order: its offset, its path, whether it is a key. A key comes first."""
    path: list[str | int] = []
    expects_key: list[bool] = []
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece in "}]":
            path.pop()
            expects_key.pop()
        elif piece == ",":
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
            else:
                expects_key[-1] = True
        elif piece == ":":
            continue
        elif expects_key and expects_key[-1]:
            path[-1] = json.loads(piece)
            expects_key[-1] = False
            yield found.start(), tuple(path), True
        else:
            yield found.start(), tuple(path), False
            if piece in "{[":
                path.append("" if piece == "{" else 0)
                expects_key.append(piece == "{")


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, or ValueError where it is too large."""
    with path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
    return content


class Files:
    """Reads files and remembers each: `read` gives the paths in order, `digest` a hash over all that was read."""

    def __init__(self) -> None:
        self._bytes: dict[Path, bytes] = {}
        self._seen: dict[Path, str] = {}
        self._sources: dict[Path, Source] = {}

    @property
    def read(self) -> tuple[Path, ...]:
        """Every file read so far, in order of first use."""
        return tuple(self._bytes)

    @property
    def seen(self) -> dict[Path, str]:
        """The hash of every file that was asked for, '' where it could not be read."""
        return dict(self._seen)

    @property
    def digest(self) -> str:
        """SHA-256 over the contents of every file read, in hexadecimal."""
        whole = hashlib.sha256()
        for content in self._bytes.values():
            whole.update(hashlib.sha256(content).digest())
        return whole.hexdigest()

    def text(self, path: Path) -> bytes:
        """The bytes of a file. Raises OSError, or ValueError where it is too large."""
        if path not in self._bytes:
            self._seen[path] = UNREADABLE
            content = self._bytes[path] = read_file(path)
            self._seen[path] = hashlib.sha256(content).hexdigest()
        return self._bytes[path]

    def source(self, path: Path, shown: str) -> Source:
        """A YAML or JSON document. Raises OSError, ValueError, or ConfigError with the place of a syntax mistake."""
        if path not in self._sources:
            self._sources[path] = _parse(self.text(path), path, shown)
        return self._sources[path]


def _parse(text: bytes, path: Path, shown: str) -> Source:
    if path.suffix != ".json":
        try:
            node: Node = read_yaml(text)
        except YamlError as problem:
            raise ConfigError([Mistake(shown, problem.line, problem.column, "", problem.message)]) from None
        return Source(shown, node.value, node)
    value = parse(text, TextLimits(depth=MAX_DEPTH, nodes=MAX_NODES))
    if isinstance(value, JsonProblem):
        raise ConfigError([Mistake(shown, value.line, value.column, "", f"not JSON: {value.reason}")])
    return Source(shown, value, JsonPlaces(text))
