"""Reads source files, each once, keeps their bytes (for reload), and finds the place of each value.

To show a mistake, it reads the text again and finds the place. Places kept for each value would take most of the memory
of a large config.
"""

from __future__ import annotations

import hashlib
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from proxy.config.files.yaml12 import MAX_DEPTH, MAX_NODES, YamlError, YamlNode, read_yaml
from proxy.config.mistakes import ConfigError, Mistake
from proxy.core.json.jsonspan import find_span
from proxy.core.json.jsontext import TextLimits, find_at_pointer, parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue, Pointer

# Larger than any known OpenAPI description (the largest of 23 public ones has 5 MiB).
MAX_FILE_BYTES: Final = 32 * 1024 * 1024

# The hash in `Files.seen` of a file that does not exist or cannot be read.
UNREADABLE: Final = ""


@value_class
class JsonPlaces:
    """The places in a JSON text, found by reading it again. The text must be valid JSON."""

    text: bytes = field(repr=False)

    def at(self, path: Pointer, *, key: bool = False) -> tuple[int, int]:
        """Line and column as `YamlNode.at` gives them."""
        text, found, at = self.text, path, 0
        while True:
            try:
                at, _ = find_span(text, found)
                break
            except LookupError:
                found = found[:-1]
        if key and found == path and path and isinstance(path[-1], str):
            at = text.rindex(b'"', 0, text.rindex(b":", 0, at))  # the end of the key
            at = text.rindex(b'"', 0, at)
            while text[at - 1 : at] == b"\\":  # a quote within the key
                at = text.rindex(b'"', 0, at)
        before = text[:at].decode()
        return before.count("\n") + 1, len(before) - before.rfind("\n")


class YamlPlaces:
    """The places in a YAML text, found by reading it again once. The text must be valid YAML."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    @cached_property
    def _root(self) -> YamlNode:
        return read_yaml(self._text)

    def at(self, path: Pointer, *, key: bool = False) -> tuple[int, int]:
        """Line and column as `YamlNode.at` gives them."""
        return self._root.at(path, key=key)


@value_class
class ConfigSource:
    """One document: the file's name as shown, its value and the places in the file, in which the value is at `base`."""

    file: str
    value: JsonValue = field(repr=False)
    places: YamlPlaces | JsonPlaces = field(repr=False)
    base: Pointer = ()

    def at(self, path: Pointer) -> ConfigSource:
        """Returns the value at a path as a separate source."""
        return replace(self, value=find_at_pointer(self.value, path), base=(*self.base, *path))

    def mistake(self, path: Pointer, where: str, message: str, hint: str = "", *, key: bool = False) -> Mistake:
        """A mistake about the value at `path`, or about its key."""
        line, column = self.places.at((*self.base, *path), key=key)
        return Mistake(self.file, line, column, where, message, hint)


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, or ValueError if it is too large."""
    with path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
    return content


def describe_failure(error: OSError | ValueError) -> str:
    """Returns why a file cannot be read, in words."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


class Files:
    """Reads files and keeps each. `seen` has the hash of every requested file, '' if unreadable; `secrets` hold one."""

    def __init__(self) -> None:
        self._bytes: dict[Path, bytes] = {}
        self.seen: dict[Path, str] = {}
        self._sources: dict[Path, ConfigSource] = {}
        self.secrets: set[Path] = set()

    @property
    def read(self) -> tuple[Path, ...]:
        """Every file read so far, in order of first use."""
        return tuple(self._bytes)

    def digest(self, folder: Path | None = None) -> str:
        """SHA-256 over the contents of every file read, in hexadecimal; with a folder over the files in it except
        secrets, so that it can be computed without them."""
        whole = hashlib.sha256()
        for path in self._bytes:
            if folder is None or (path.is_relative_to(folder) and path not in self.secrets):
                whole.update(bytes.fromhex(self.seen[path]))
        return whole.hexdigest()

    def text(self, path: Path) -> bytes:
        """The bytes of a file. Raises OSError, or ValueError if it is too large."""
        if path not in self._bytes:
            self.seen[path] = UNREADABLE
            content = self._bytes[path] = read_file(path)
            self.seen[path] = hashlib.sha256(content).hexdigest()
        return self._bytes[path]

    def secret(self, path: Path) -> bytes:
        """The bytes of a file that holds a secret."""
        self.secrets.add(path)
        return self.text(path)

    def source(self, path: Path, shown: str) -> ConfigSource:
        """A YAML or JSON document. Raises OSError, ValueError, or ConfigError with the place of a syntax mistake."""
        if path not in self._sources:
            self._sources[path] = _parse(self.text(path), path, shown)
        return self._sources[path]


def _parse(text: bytes, path: Path, shown: str) -> ConfigSource:
    if path.suffix != ".json":
        try:
            value = read_yaml(text).value
        except YamlError as problem:
            raise ConfigError([Mistake(shown, problem.line, problem.column, "", problem.message)]) from None
        return ConfigSource(shown, value, YamlPlaces(text))
    value = parse(text, TextLimits(depth=MAX_DEPTH, nodes=MAX_NODES))
    if isinstance(value, JsonProblem):
        raise ConfigError([Mistake(shown, value.line, value.column, "", f"not JSON: {value.reason}")])
    return ConfigSource(shown, value, JsonPlaces(text))
