"""Reads an OpenAPI description from a URL or a file, as JSON or YAML, into a Harvest."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proxy.config.files.source import MAX_FILE_BYTES, read_file
from proxy.config.files.yaml12 import MAX_DEPTH, MAX_NODES, YamlError, read_yaml
from proxy.core.json.jsontext import TextLimits, parse
from proxy.core.model.values import Headers, JsonProblem, JsonValue
from proxy.importing.fetch import fetch_description
from proxy.importing.harvest import Harvest, ImportProblem
from proxy.importing.openapi import Choice, harvest_operations

__all__ = ["MAX_FILE_BYTES", "is_url", "read_openapi"]

_LIMITS: Final = TextLimits(depth=MAX_DEPTH, nodes=MAX_NODES)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_url(source: str) -> bool:
    """Whether a source is a URL and not the path of a file."""
    return _URL.match(source) is not None


async def read_openapi(
    source: str,
    choice: Choice,
    headers: Headers = (),
    folder: Path | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Harvest:
    """The tools of an OpenAPI description at a URL or in a file (a relative path starts at `folder`).

    `headers` go with the request; `advance` is called with the number of operations read and their total.
    Raises ImportProblem.
    """
    if is_url(source):
        text = await fetch_description(source, headers)
    else:
        text = _file((folder or Path()) / source)
    return harvest_operations(_parsed(text, source), source, choice, advance)


def _file(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ImportProblem(f"cannot read {path}: {error.strerror}", "a URL begins with http:// or https://") from None
    except ValueError as error:
        raise ImportProblem(f"cannot read {path}: {error}") from None


def _parsed(text: bytes, source: str) -> JsonValue:
    """The parsed text: JSON if it begins with `{`, else YAML."""
    shown = source.partition("?")[0]
    if text.lstrip()[:1] == b"{":
        value = parse(text, _LIMITS)
        if isinstance(value, JsonProblem):
            raise ImportProblem(f"{shown}:{value.line}:{value.column}: not JSON: {value.reason}")
        return value
    try:
        return read_yaml(text).value
    except YamlError as problem:
        raise ImportProblem(f"{shown}:{problem.line}:{problem.column}: {problem.message}") from None
