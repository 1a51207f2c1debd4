"""The calls by which `evaluate` measures the layers, and the tools that receive them.

A case is one JSON line: `id`, `kind`, `tool`, `description`, `schema`, `sent` (the model's arguments) and `expected`
(all arguments that are right; none: the call is right to be refused). A case may have `query` (what the user wants),
`steps` (earlier calls of the conversation with their results) and `error` (what the tool answers to arguments that are
not right).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from proxy.core.model.value_class import value_class

BUNDLED: Final = "evaluation.jsonl"
_NEEDED: Final = ("id", "tool", "schema", "sent", "expected")


@value_class
class EvaluatedCall:
    """One call, and the arguments that would be right."""

    id: str
    kind: str
    tool: str
    description: str
    schema: Any = field(repr=False)
    sent: Any = field(repr=False)
    expected: tuple[Any, ...] = field(repr=False)
    query: str = ""
    steps: tuple[Mapping[str, Any], ...] = ()
    error: Mapping[str, Any] | None = None

    def is_right(self, arguments: object) -> bool:
        """Returns whether arguments are among those that are right, in type and value."""
        return any(_is_same(arguments, right) for right in self.expected)


def read_bundled_cases() -> list[EvaluatedCall]:
    """The bundled set."""
    return list(_read(files("proxy.extensions.correction").joinpath(BUNDLED).read_text(encoding="utf-8"), BUNDLED))


def read_cases(path: Path) -> list[EvaluatedCall]:
    """Reads the cases of a file. Raises ValueError with the line of an invalid case."""
    return list(_read(path.read_text(encoding="utf-8"), str(path)))


def _read(text: str, name: str) -> Iterator[EvaluatedCall]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            written = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{name}:{number}: no JSON: {error}") from None
        missing = [key for key in _NEEDED if not isinstance(written, dict) or key not in written]
        if missing:
            raise ValueError(f"{name}:{number}: a case needs {', '.join(missing)}")
        yield EvaluatedCall(
            str(written["id"]), str(written.get("kind", "own")), str(written["tool"]),
            str(written.get("description", "")), written["schema"], written["sent"], tuple(written["expected"]),
            str(written.get("query", "")), tuple(written.get("steps", ())), written.get("error"),
        )  # fmt: skip


def _is_same(left: object, right: object) -> bool:
    """JSON equality: true is not 1, and 1.0 is 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    return left == right


class EvaluationTools(ThreadingHTTPServer):
    """The tools of all cases on 127.0.0.1, one path per case: `/<case>` and `/<case>/<step>`. `received` holds the
    arguments that each case's tool accepted."""

    daemon_threads = True

    def __init__(self, cases: Sequence[EvaluatedCall]) -> None:
        self.cases = {case.id: case for case in cases}
        self.received: dict[str, list[Any]] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON of the answer to a call. A tool without an `error` accepts any arguments."""
        name, _, step = path.strip("/").partition("/")
        case, arguments = self.cases[name], json.loads(body or b"{}")
        if step:
            return 200, case.steps[int(step)]["result"]
        if case.error is not None and not case.is_right(arguments):
            named = {key: case.error[key] for key in ("code", "category", "message") if key in case.error}
            error = {**named, "retryable": True, "details": case.error.get("details", {})}
            return int(case.error.get("status", 400)), {"success": False, "error": error}
        self.received.setdefault(name, []).append(arguments)
        return 200, {"success": True, "data": {}}


class _Handler(BaseHTTPRequestHandler):
    server: EvaluationTools
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 16 * 1024  # head and body in one packet

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        status, value = self.server.answer(self.path, body)
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Logs nothing."""
