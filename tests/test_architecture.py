"""The staircase, checked: each rule reads the syntax trees of `proxy/` and lists every breach as `file:line rule`.

A rule is a function from one parsed file to its breaches. Each rule is also shown to find what it forbids, so that a
rule that went blind fails here and not in a year.
"""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent

FLOORS: Final = {
    "core": 0,
    "interfaces": 1,
    "adapters": 2,
    "upstream": 3,
    "hooks": 3,
    "formatters": 3,
    "correction": 3,
    "state": 3,
    "config": 3,
    "telemetry": 3,
    "pipeline": 4,
    "story": 4,
    "learning": 4,
    "routing": 4,
    "app": 5,
    "importing": 5,  # stands beside the app: writes configs, serves none
    "samples": 5,  # stands beside the app: tools to sit in front of, unknown to it
    "cli": 6,
    "__main__": 6,
    "": 0,  # proxy/__init__.py: the version alone
}
ONE_ROOM: Final = {
    frozenset({"cli", "__main__"}),  # the command line and its verbs
    frozenset({"pipeline", "story"}),  # the story and its chapters
}

IMPURE: Final = frozenset(["asyncio", "aiohttp", "logging", "structlog", "time", "random", "os", "redis", "yaml"])
PURE_ROOMS: Final = frozenset({"core", "adapters"})

# Each third-party module -> the places that may import it. A new library names its room here.
LIBRARIES: Final = {
    "jiter": ("proxy/core/strictreader.py",),
    "orjson": ("proxy/core/jsontext.py",),
    "jsonschema_rs": ("proxy/core/engine/",),
    "yaml": ("proxy/config/",),
    "structlog": ("proxy/telemetry/logs.py",),
    "opentelemetry": ("proxy/telemetry/otlp.py",),
    "prometheus_client": ("proxy/telemetry/exposition.py", "proxy/telemetry/merged.py"),
    "httptools": ("proxy/upstream/http1/",),
    "redis": ("proxy/state/redis/",),
    "uvloop": ("proxy/app.py", "proxy/app/", "proxy/cli/serve.py"),
}

NO_ROOM: Final = frozenset(["utils", "util", "helpers", "helper", "common", "misc"])
MAX_FUNCTION: Final = 40
MAX_PIPELINE: Final = 200
MAX_FILE: Final = 400
MAX_MEDIAN: Final = 180
# Files that may be longer than MAX_FILE, each with its reason.
LONG_FILES: Final[dict[str, str]] = {}


@dataclass(frozen=True)
class Source:
    """One file of the package: its path below the root, with forward slashes, its tree and its length in lines."""

    path: str
    tree: ast.Module
    lines: int

    @property
    def room(self) -> str:
        """The name under which FLOORS knows the file."""
        first = PurePosixPath(self.path).parts[1]
        return first.removesuffix(".py").replace("__init__", "")


def source(path: str, text: str) -> Source:
    return Source(path, ast.parse(text, path), text.count("\n"))


def sources() -> list[Source]:
    paths = sorted((ROOT / "proxy").rglob("*.py"))
    return [source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


Rule = Callable[[Source], Iterator[str]]


def imports(file: Source) -> Iterator[tuple[int, str]]:
    """Every module a file imports, with its line; `from a import b` counts as `a` and as `a.b`."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def rooms_imported(file: Source) -> list[tuple[int, str]]:
    parts = [(line, module.split(".")) for line, module in imports(file)]
    return sorted(
        {(line, part[1]) for line, part in parts if part[0] == "proxy" and len(part) > 1 and part[1] in FLOORS}
    )


# --- the rules --------------------------------------------------------------------------------------------------------
def every_room_has_a_floor(file: Source) -> Iterator[str]:
    if file.room not in FLOORS:
        yield f"{file.path}:1 the room {file.room!r} is not in FLOORS: give it a floor"


def imports_go_down(file: Source) -> Iterator[str]:
    here = FLOORS.get(file.room, 0)
    for line, room in rooms_imported(file):
        if FLOORS[room] > here:
            yield f"{file.path}:{line} {file.room} (floor {here}) imports {room} (floor {FLOORS[room]}): only lower"


def rooms_of_a_floor_keep_apart(file: Source) -> Iterator[str]:
    for line, room in rooms_imported(file):
        neighbours = FLOORS[room] == FLOORS.get(file.room) and room != file.room
        if neighbours and frozenset({room, file.room}) not in ONE_ROOM and "" not in (room, file.room):
            yield f"{file.path}:{line} {file.room} imports {room} of its own floor: let a higher floor wire them"


def imports_are_absolute(file: Source) -> Iterator[str]:
    for line, module in imports(file):
        if module.startswith("."):
            yield f"{file.path}:{line} relative import: write it from `proxy`"


def the_core_is_pure(file: Source) -> Iterator[str]:
    if file.room in PURE_ROOMS:
        for line, library in sorted({(line, module.split(".")[0]) for line, module in imports(file)}):
            if library in IMPURE:
                yield f"{file.path}:{line} {file.room}/ imports {library}: no I/O, clock, chance or logging here"
        for node in ast.walk(file.tree):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await):
                yield f"{file.path}:{node.lineno} async code in {file.room}/"


def a_library_has_one_room(file: Source) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for line, module in imports(file):
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or top in ("proxy", "") or (line, top) in seen:
            continue
        places = LIBRARIES.get(".".join(module.split(".")[:2]), LIBRARIES.get(top))
        if places is None:
            seen.add((line, top))
            yield f"{file.path}:{line} {top} has no room in LIBRARIES: give it one"
        elif not file.path.startswith(places):
            seen.add((line, top))
            yield f"{file.path}:{line} {module} may be imported in {' or '.join(places)} only"


def only_decide_makes_a_checked_call(file: Source) -> Iterator[str]:
    """Outside `decide.py` the name may stand in annotations, `isinstance` and `case` alone; so it is never called,
    renamed or handed to something that makes one."""
    if file.path in ("proxy/core/decide.py", "proxy/core/model.py"):
        return
    allowed = {id(inner) for outer in _naming_only(file.tree) for inner in ast.walk(outer)}
    checked = {
        argument.arg
        for argument in ast.walk(file.tree)
        if isinstance(argument, ast.arg) and argument.annotation and "CheckedCall" in ast.unparse(argument.annotation)
    }
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name | ast.Attribute) and _last_name(node) == "CheckedCall" and id(node) not in allowed:
            yield f"{file.path}:{node.lineno} CheckedCall is made by core/decide.py alone"
        if isinstance(node, ast.alias) and node.name.endswith("CheckedCall") and node.asname:
            yield f"{file.path}:{node.lineno} CheckedCall keeps its name"
        if isinstance(node, ast.Call) and _last_name(node.func) in ("replace", "copy", "deepcopy") and node.args:
            target = _last_name(node.args[0])
            if target == "checked" or target in checked:
                yield f"{file.path}:{node.lineno} a copy of a CheckedCall: only core/decide.py makes one"
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            target = _last_name(node.value)
            if target == "checked" or target in checked:
                yield f"{file.path}:{node.lineno} a CheckedCall stays as core/decide.py made it"


def _naming_only(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            yield node.returns
        elif isinstance(node, ast.MatchClass):
            yield node.cls
        elif isinstance(node, ast.Call) and _last_name(node.func) == "isinstance":
            yield node.args[1]


def _last_name(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def rooms_have_real_names(file: Source) -> Iterator[str]:
    for part in PurePosixPath(file.path).parts:
        if part.removesuffix(".py") in NO_ROOM:
            yield f"{file.path}:1 no room is called {part}: name what it knows"


def functions_are_short(file: Source) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                yield f"{file.path}:{node.lineno} {node.name} has {length} lines: at most {MAX_FUNCTION}"


def files_are_short(file: Source) -> Iterator[str]:
    limit = MAX_PIPELINE if file.path == "proxy/pipeline.py" else MAX_FILE
    if file.lines > limit and file.path not in LONG_FILES:
        yield f"{file.path}:1 {file.lines} lines: at most {limit}, or a reason in LONG_FILES"


def what_is_public_says_what_it_is(file: Source) -> Iterator[str]:
    if file.lines and not ast.get_docstring(file.tree):
        yield f"{file.path}:1 no module docstring"
    for node in file.tree.body:
        public = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith(
            "_"
        )
        if public and not ast.get_docstring(node):  # type: ignore[arg-type]  # narrowed by `public`
            yield f"{file.path}:{node.lineno} public and without a docstring"


RULES: Final[tuple[Rule, ...]] = (
    every_room_has_a_floor,
    imports_go_down,
    rooms_of_a_floor_keep_apart,
    imports_are_absolute,
    the_core_is_pure,
    a_library_has_one_room,
    only_decide_makes_a_checked_call,
    rooms_have_real_names,
    functions_are_short,
    files_are_short,
    what_is_public_says_what_it_is,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Rule) -> None:
    assert [] == [breach for file in sources() for breach in rule(file)]


def test_a_file_is_about_as_long_as_a_page_can_be_read() -> None:
    lengths = [file.lines for file in sources() if file.lines > 3]
    assert statistics.median(lengths) <= MAX_MEDIAN


BREACHES: Final = [
    (every_room_has_a_floor, "proxy/attic/x.py", ""),
    (imports_go_down, "proxy/core/x.py", "from proxy.config import load"),
    (imports_go_down, "proxy/routing.py", "import proxy.app"),
    (rooms_of_a_floor_keep_apart, "proxy/state/x.py", "from proxy.telemetry.logs import line"),
    (rooms_of_a_floor_keep_apart, "proxy/pipeline.py", "from proxy import routing"),
    (imports_are_absolute, "proxy/core/x.py", "from . import model"),
    (the_core_is_pure, "proxy/core/x.py", "import os.path"),
    (the_core_is_pure, "proxy/adapters/x.py", "def f():\n    from time import monotonic"),
    (the_core_is_pure, "proxy/core/x.py", "async def f(): ..."),
    (a_library_has_one_room, "proxy/core/x.py", "import jiter"),
    (a_library_has_one_room, "proxy/app/x.py", "from aiohttp import web"),
    (a_library_has_one_room, "proxy/cli/x.py", "import requests"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "CheckedCall(call, b'{}', {})"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "model.CheckedCall(call, b'{}', {})"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "object.__new__(CheckedCall)"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "Sneaky = CheckedCall"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "from proxy.core.model import CheckedCall as C"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "replace(forward.checked, arguments=b'')"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "def f(it: CheckedCall): return replace(it, value=1)"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "forward.checked.arguments = b''"),
    (only_decide_makes_a_checked_call, "proxy/pipeline.py", "def f(it: CheckedCall): del it.would"),
    (rooms_have_real_names, "proxy/core/utils.py", ""),
    (rooms_have_real_names, "proxy/helpers/x.py", ""),
    (functions_are_short, "proxy/core/x.py", "def f():\n" + "    pass\n" * 40),
    (files_are_short, "proxy/core/x.py", "\n" * 401),
    (files_are_short, "proxy/pipeline.py", "\n" * 201),
    (what_is_public_says_what_it_is, "proxy/core/x.py", '"""Doc."""\ndef f(): ...\n'),
    (what_is_public_says_what_it_is, "proxy/core/x.py", "x = 1\n"),
]


@pytest.mark.parametrize(
    ("rule", "path", "text"), BREACHES, ids=[f"{row[0].__name__}-{row[2][:40]}" for row in BREACHES]
)
def test_a_rule_finds_what_it_forbids_and_says_where(rule: Rule, path: str, text: str) -> None:
    found = list(rule(source(path, text)))
    assert len(found) == 1
    assert found[0].startswith(f"{path}:")


def test_a_checked_call_may_be_named_where_nothing_is_made() -> None:
    text = (
        "def f(a: CheckedCall | None) -> CheckedCall:\n"
        "    match a:\n        case CheckedCall(): ...\n"
        "    isinstance(a, CheckedCall)"
    )
    assert [] == list(only_decide_makes_a_checked_call(source("proxy/pipeline.py", text)))


# --- prose ------------------------------------------------------------------------------------------------------------
# Written in two halves, so that this file does not name them itself.
REGISTRIES: Final = tuple(
    "".join(halves)
    for halves in [
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("registry.", "npmjs.org"),
        ("proxy.", "golang.org"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("--find", "-links"),
        ("files.python", "hosted"),
    ]
)


def tracked_files() -> list[Path]:
    """The files git knows or would add; without git, everything that is not made by a tool."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.splitlines()]
    made = {
        ".git",
        ".venv",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "dist",
        "build",
        "__pycache__",
    }
    return [path for path in ROOT.rglob("*") if made.isdisjoint(path.relative_to(ROOT).parts)]


def test_no_file_names_a_package_registry() -> None:
    named = [
        f"{path.relative_to(ROOT)}: names {registry}"
        for path in tracked_files()
        if path.is_file() and not path.is_relative_to(ROOT / "tests" / "data")
        for registry in REGISTRIES
        if registry.encode() in path.read_bytes()
    ]
    assert [] == named
