"""The calls of the proxy benchmark: one tool, its schema, the bodies, and the headers of an agent's call.

The bodies: `clean` fits the schema, `repaired` holds numbers and booleans as text, `one error` and `refused` have one
and four errors. `large` is a clean call with a text of 16 KB, as a tool that writes files gets it. `changing` is the
clean one with another trace and call id in each request, `later` the clean one after calls of others have failed.
`signed` is the clean one with a token that an issuer has signed (peers/signed.json: its key signs nothing else).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

TOOL_PATH: Final = "/tools/forecast"

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "latitude": {"type": "number", "minimum": -90, "maximum": 90},
        "longitude": {"type": "number", "minimum": -180, "maximum": 180},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "units": {"enum": ["metric", "imperial"]},
        "hourly": {"type": "boolean"},
        "variables": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
        "note": {"type": "string", "maxLength": 100_000},
    },
    "required": ["city", "latitude", "longitude"],
}

_CLEAN: Final[dict[str, Any]] = {
    "city": "Berlin", "latitude": 52.52, "longitude": 13.405, "days": 3, "units": "metric", "hourly": False,
    "variables": ["temperature", "wind"], "note": "leaving on Friday",
}  # fmt: skip
_LINE: Final = 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n\n'

BODIES: Final[dict[str, bytes]] = {
    name: json.dumps(body).encode()
    for name, body in {
        "clean": _CLEAN,
        "changing": _CLEAN,
        "repaired": {**_CLEAN, "latitude": "52.52", "longitude": "13.405", "days": "3", "hourly": "false"},
        "one error": {**_CLEAN, "latitude": "north"},
        "refused": {**_CLEAN, "latitude": "north", "days": 99, "units": "kelvin", "variables": "wind"},
        "later": _CLEAN,
        "signed": _CLEAN,
        "large": {**_CLEAN, "note": _LINE * (16_000 // len(_LINE.replace("\n", "\\n").replace('"', '\\"')))},
    }.items()
}


def _make_rows(count: int, last: Any = None) -> dict[str, Any]:
    rows = [{"id": row, "name": f"row {row}", "ok": True, "v": row * 1.5 + 0.25} for row in range(count)]
    return {"rows": rows if last is None else [*rows[:-1], {**rows[-1], "id": last}]}


_ROW: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"}, "name": {"type": "string"}, "ok": {"type": "boolean"}, "v": {"type": "number"},
    },
    "required": ["id"],
}  # fmt: skip
_PROSE: Final = "leaving on Friday. "
_MORE: Final = {f"extra_{number}": {"type": "string", "maxLength": number} for number in range(1, 1001)}
# The tools that benchmarks.growth adds: schemas with more properties, which a call fills or leaves out.
WIDE: Final[dict[str, Any]] = {
    "rows": {"type": "object", "properties": {"rows": {"type": "array", "items": _ROW}}},
    **{
        f"wide_{count}": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}
        for count in (10, 50, 200)
    },
    **{
        f"large_{count}": {**SCHEMA, "properties": {**SCHEMA["properties"], **dict(list(_MORE.items())[:count])}}
        for count in (100, 1000)
    },
}
# Bodies that grow, each with its tool. Those in WRONG are rejected, and some names say that a row is repaired.
WRONG: Final = ("400 rows, the last wrong", "1600 rows, the last wrong")
GROWING: Final[dict[str, tuple[str, bytes]]] = {
    name: (tool, json.dumps(body).encode())
    for name, (tool, body) in {
        **{
            f"text of {size} KB": ("forecast", {**_CLEAN, "note": _PROSE * (size * 1000 // len(_PROSE))})
            for size in (1, 16, 64, 95)
        },
        "code of 64 KB": ("forecast", {**_CLEAN, "note": _LINE * (64_000 // (len(_LINE) + 7))}),
        **{f"{count} rows": ("rows", _make_rows(count)) for count in (10, 100, 400, 1600)},
        **{f"{count} rows, the last repaired": ("rows", _make_rows(count, "7")) for count in (400, 1600)},
        **{name: ("rows", _make_rows(int(name.split()[0]), "x")) for name in WRONG},
        **{f"{count} properties": (f"wide_{count}", {f"p{i}": i for i in range(count)}) for count in (10, 50, 200)},
        **{f"schema of {count + 8} properties": (f"large_{count}", _CLEAN) for count in (100, 1000)},
    }.items()
}

# A call of MCP: the same arguments in revision 2026-07-28.
MCP: Final = json.dumps({
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {
        "name": "forecast", "arguments": _CLEAN,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        },
    },
}).encode()  # fmt: skip
# The kinds of calls that need another path, each with its path.
MCP_PATHS: Final = {"MCP, server at a URL": "/mcp/url", "MCP, server as a command": "/mcp/command"}
_MCP_FIELDS: Final = {"Accept": "application/json, text/event-stream"}
_MCP_MORE: Final = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: forecast\r\n"

# With Host and Content-Length ten, as an agent's HTTP client sends them. CONVERSATION is another one in each request,
# so that refusals are first attempts and not the repetition of one.
CONVERSATION: Final = "{conversation}"
HEADERS: Final = (
    ("User-Agent", "python-httpx/0.28.1"),
    ("Accept", "application/json"),
    ("Accept-Encoding", "gzip, deflate, br"),
    ("Content-Type", "application/json"),
    ("Authorization", "Bearer 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("X-Conversation-Id", f"conversation-{CONVERSATION}"),
    ("X-Tool-Call-Id", "call_yxQv3fCzXm1TnPb0tJ7wUo8K"),
)

CHANGING: Final = {
    "traceparent": f"00-4bf92f3577b34da6{CONVERSATION}-00f067aa0ba902b7-01",
    "X-Tool-Call-Id": f"call_{CONVERSATION}",
}

SIGNED: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "peers" / "signed.json").read_text())
# The header fields of a kind of request that are not those of HEADERS.
FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "changing": CHANGING,
    "signed": {"Authorization": f"Bearer {SIGNED['token']}"},
}

# The tool's answer.
ANSWER: Final = json.dumps(
    {"city": "Berlin", "days": [{"date": f"2026-01-0{day}", "min": -2.5, "max": 3.5} for day in (5, 6, 7)]}
).encode()


def request(port: int, kind: str) -> list[bytes]:
    """A whole HTTP request with a body of this kind, as the parts between which `write_number` goes."""
    tool, body = GROWING.get(kind) or ("forecast", MCP if kind in MCP_PATHS else BODIES[kind])
    own, more = (_MCP_FIELDS, _MCP_MORE) if kind in MCP_PATHS else (FIELDS.get(kind, {}), "")
    fields = "".join(f"{name}: {own.get(name, value)}\r\n" for name, value in HEADERS) + more
    path = MCP_PATHS.get(kind, f"/tools/{tool}")
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    *parts, last = head.encode().split(CONVERSATION.encode())
    return [*parts, last + body]


def write_number(seed: int, count: int) -> bytes:
    """Returns what tells one request of a run from every other: 16 digits, which half a trace id may be too."""
    return b"%07d%09d" % (seed, count)


def write_schema(folder: Path) -> Path:
    """The schema as a file, and beside it as an OpenAPI description (`openapi.json`)."""
    path = folder / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    operation = {
        "requestBody": {"required": True, "content": {"application/json": {"schema": SCHEMA}}},
        "responses": {"200": {"description": "The forecast.", "content": {"application/json": {"schema": {}}}}},
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "bench", "version": "1"},
        "paths": {TOOL_PATH: {"post": operation}},
    }
    (folder / "openapi.json").write_text(json.dumps(document))
    return path


def write_config(
    folder: Path, name: str, routes: int, upstream: int, listen: int, settings: Mapping[str, Any] = MappingProxyType({})
) -> Path:
    """A config of this proxy with everything on, so many routes, and further `settings`; the tool is called through the
    last route."""
    tools = {
        "forecast": {"schema": SCHEMA},
        **{
            f"other_{number}": {"schema": {"type": "object", "properties": {f"key_{number}": {"type": "string"}}}}
            for number in range(routes - 1)
        },
    }
    paths = [{"path": f"/tools/{tool}", "tool": tool, "upstream": "bench"} for tool in (*list(tools)[1:], "forecast")]
    config = {
        "version": 1,
        "listen": f"127.0.0.1:{listen}",
        "admin": {"listen": "127.0.0.1:0"},
        "upstreams": {"bench": {"url": f"http://127.0.0.1:{upstream}", "pool": {"idle": "60s"}}},
        "tools": tools,
        "routes": paths,
        **settings,
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(config))
    return path
