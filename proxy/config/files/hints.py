"""Hints for errors in the structure of a config. Each proposed text is valid YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from proxy.config.files.yaml12 import read_scalar
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, Pointer

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./-][A-Za-z0-9_./:+-]*")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+")
_METHOD: Final = re.compile(r"[A-Za-z]+")
_MEASURE: Final = re.compile(r"([0-9]+) *([A-Za-z]+)")
_TIMES: Final = {"ms": "ms", "s": "s", "sec": "s", "secs": "s", "seconds": "s", "m": "m", "min": "m", "minutes": "m",
                 "h": "h", "hours": "h"}  # fmt: skip
_SIZES: Final = {size.casefold(): size for size in ("B", "kB", "KiB", "MB", "MiB", "GB", "GiB")}


def write_yaml_scalar(value: JsonValue) -> str:
    """A value as it can be pasted into YAML, in braces too."""
    if not isinstance(value, str):
        return dumps(value).decode()
    is_plain = _PLAIN.fullmatch(value) is not None and not value.endswith(":") and isinstance(read_scalar(value), str)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def suggest_key(path: Pointer, name: str, value: JsonValue) -> str:
    """Returns the replacement for an unknown key of the config, of a route or of a tool; '' for any other key."""
    if not path:
        if name.startswith("x-"):
            return "an anchor (`&name`) is defined where its value is first used, such as in the first schema"
        written = _AT_THE_TOP.get(name)
        return written(value) if written else ""
    if len(path) == 2 and path[0] == "routes":
        return _ON_A_ROUTE.get(name, "")
    return ""


def _suggest_listen(value: JsonValue) -> str:
    port = value if isinstance(value, int) and not isinstance(value, bool) else 8080
    return f"did you mean `listen: 127.0.0.1:{port}`?"


def _suggest_log(value: JsonValue) -> str:
    level = value if isinstance(value, str) and _HOST.fullmatch(value) else "debug"
    return f"did you mean `telemetry: {{log: {{level: {level}}}}}`?"


_AT_THE_TOP: Final[Mapping[str, Callable[[JsonValue], str]]] = {
    "port": _suggest_listen,
    "log": _suggest_log,
    "schema": lambda _: "a schema belongs to a route, or to a tool under `tools`",
    "tool": lambda _: "a tool belongs to a route: `routes: [{path: /x, tool: x}]`",
    "path": lambda _: "a path belongs to a route: `routes: [{path: /x}]`",
    "url": lambda _: "a url belongs to an upstream: `upstreams: {tools: {url: \"http://host:port\"}}`",
}  # fmt: skip
_ON_A_ROUTE: Final[Mapping[str, str]] = {
    "openapi": "did you mean `schema: {openapi: FILE, operation: ID}`?",
    "request": "`request` belongs to a tool: `tools: {NAME: {request: ...}}`",
    "url": "a url belongs to an upstream: `upstreams: {tools: {url: \"http://host:port\"}}`",
}  # fmt: skip


def suggest_value(path: Pointer, written: JsonValue, expected: str) -> str:
    """Returns a fix for a value of another form; '' for a value without a likely meaning. `expected` says what fits."""
    key = path[-1] if path else ""
    text = written if isinstance(written, str) else str(written) if isinstance(written, int) else ""
    if path == ("listen",) or path == ("admin", "listen"):
        if _PORT.fullmatch(text):
            return f"did you mean 127.0.0.1:{text}?"
        return f"did you mean {text}:8080?" if _HOST.fullmatch(text) else ""
    if key == "methods" and _METHOD.fullmatch(text):
        return f"write it as a list: [{text.upper()}]"
    if key == "auth" and text.partition(" ")[0].casefold() == "bearer":
        return "write `auth: {bearer: {NAME: \"${TOKEN}\"}}`"  # fmt: skip
    if (measure := _MEASURE.fullmatch(text)) is not None:
        number, unit = measure[1], measure[2].casefold()
        units = _SIZES if "a size" in expected else _TIMES if "a time" in expected else {}
        named = units.get(unit)
        return f"did you mean {number}{named}?" if named and f"{number}{named}" != text else ""
    return ""
