"""The staircase, checked: each rule reads the syntax trees of `proxy/` and lists every breach as `file:line rule`.

A rule is a function from one parsed file to its breaches. Each rule is also shown to find what it forbids, so that a
rule that went blind fails here and not in a year.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

from proxy.call_record import CallRecord
from proxy.core.rules.vocabulary import READING_VERBS
from proxy.plugin_parts import PARTS
from proxy.plugins import list_plugins

ROOT: Final = Path(__file__).parent.parent

FLOORS: Final = {
    "core": 0,
    "interfaces": 1,
    "call_record": 1,
    "driver": 0,  # only asyncio
    "adapters": 2,
    "upstream": 3,
    "hooks": 3,
    "file_writing": 1,
    "state": 2,
    "config": 3,
    "telemetry": 3,
    "offload": 3,
    "call": 4,
    "routing": 4,
    "server": 5,
    "plugin": 1,  # the interface, which names types of every floor and imports none
    "plugin_parts": 1,  # those types, and the helpers that plugins take from the interface
    "plugins": 1,
    "extensions": 0,  # only a docstring
    "extension": 6,  # files of a plugin that are in none of these rooms
    "cli": 7,
    "__main__": 7,
    "plugin file": 8,  # the `plugin.py` of a plugin, which leads to all of its files
    "": 0,  # proxy/__init__.py: only the version
}
ONE_ROOM: Final = {
    frozenset({"cli", "__main__"}),  # the command line and its verbs
    frozenset({"call_record", "interfaces"}),  # the record of a call, and the seams that it goes through
    frozenset({"plugin", "plugins"}),  # the interface of plugins, and those of this process
    frozenset({"plugin", "plugin_parts"}),
}
# Plugin -> the others that it uses, as it says.
USES: Final = {plugin.name: plugin.uses for plugin in list_plugins()}

# The rows of the core, from the bottom up: a row imports rows above it in this list, and itself.
ROWS: Final = (
    "model", "json", "schema", "check", "display", "rules", "lint", "contract", "explain", "repair",
    "envelope", "tool_errors", "decide", "library",
)  # fmt: skip

# Public class names that two rooms still share. This list only shrinks.
SHARED_CLASS_NAMES: Final[frozenset[str]] = frozenset()

# File names that three rooms still share. This list only shrinks.
SHARED_FILE_NAMES: Final[frozenset[str]] = frozenset()
# Names that many rooms may use.
EVERYWHERE: Final = frozenset(["__init__", "settings", "model", "plugin", "cli"])

# Words that say nothing to a stranger, and the files and classes that still use them. The second list only shrinks.
PRETTY: Final = frozenset(
    ["story", "case", "lane", "way", "gate", "noun", "telling", "twins", "door", "turn", "afterlife", "mender",
     "menders", "mending", "patience", "terms", "setback", "turnstile", "fleet", "trial"]
)  # fmt: skip
STILL_PRETTY: Final[frozenset[str]] = frozenset()
# Words that name what was done to a thing, and not the thing.
DIALECT: Final = frozenset(["told", "said", "asked", "heard", "meant", "hurt", "nobody", "stumble", "nowhere"])

# The fields of a `CallRecord` that stages write, and the one file that writes them. Its `line` is made of all of them
# at the end.
RECORDED: Final = frozenset(each.name for each in fields(CallRecord) if each.init)
# `sending.py` records a send while it is under way.
RECORD_WRITERS: Final = ("proxy/call/context.py", "proxy/upstream/sending.py")

# `cli` has a file per verb.
MAX_FILES_OF_FOLDER: Final = 13

IMPURE: Final = frozenset(["asyncio", "aiohttp", "logging", "structlog", "time", "random", "os", "redis", "yaml"])
PURE_ROOMS: Final = frozenset({"core", "adapters"})

# Each third-party module -> the places that may import it. A new library names its room here.
LIBRARIES: Final = {
    "aiohttp": ("proxy/server/", "proxy/extensions/mcp/server/", "proxy/upstream/outgoing_client.py"),
    "yarl": ("proxy/upstream/outgoing_client.py",),
    "jiter": ("proxy/core/json/strictreader.py",),
    "msgspec": ("proxy/core/model/value_class.py", "proxy/core/json/jsonspan.py", "proxy/core/check/fast_types.py"),
    "orjson": ("proxy/core/json/", "proxy/telemetry/logs.py"),
    "jsonschema": ("proxy/core/check/metaschema.py", "proxy/extensions/second_judge/core/reference.py"),
    "jsonschema_specifications": ("proxy/extensions/second_judge/core/reference.py",),
    "referencing": ("proxy/extensions/second_judge/core/reference.py",),
    "fastjsonschema": ("proxy/extensions/second_judge/core/judge.py",),
    "re2": ("proxy/core/schema/matching.py",),
    "regex": ("proxy/core/schema/matching.py", "proxy/core/display/graphemes.py"),
    "idna": ("proxy/core/schema/formats.py",),
    # Manifests are YAML 1.1, the config is 1.2.
    "yaml": (
        "proxy/config/",
        "proxy/extensions/kubernetes/manifest_text.py",
    ),
    "shtab": ("proxy/cli/completion.py",),
    "structlog": ("proxy/telemetry/logs.py",),
    "opentelemetry": ("proxy/extensions/recording/otlp.py",),
    "prometheus_client": ("proxy/telemetry/metrics_page.py", "proxy/extensions/workers/supervisor.py"),
    "httptools": ("proxy/upstream/http1/",),
    "redis": ("proxy/extensions/redis/",),
    "jwt": ("proxy/extensions/access/signed_tokens.py",),
    "uvloop": ("proxy/server/", "proxy/cli/serve.py"),
}

NO_ROOM: Final = frozenset(["utils", "util", "helpers", "helper", "common", "misc"])
# Lines of the longest function, which may be a table of contents, and of all but one in twenty.
MAX_FUNCTION: Final = 80
MAX_MOST_FUNCTIONS: Final = 30
MAX_PIPELINE: Final = 200
MAX_FILE: Final = 400
MAX_MEDIAN: Final = 200
# Package -> its lines today. The figures only shrink: a change that removes lines lowers them, and a feature that needs
# more says so in its commit. The aims are 15,500 lines of core, 19,000 of the rest of the main job, 36,000 of plugins.
MAX_LINES: Final = {"core": 19_205, "main job": 23_371, "plugins": 42_769}
MAX_FILES: Final = 469
# By how many lines a figure may be out of date.
SLACK: Final = 250
# Files that may be longer than MAX_FILE, each with its reason.
LONG_FILES: Final[dict[str, str]] = {
    "proxy/config/model.py": "every value of a config on one page",
    "proxy/core/model/values.py": "the nouns of the house in one place, most of it their docstrings",
    "proxy/server/request_cycle.py": "one request's stages in the order in which they run",
    "proxy/interfaces.py": "the seams of the story, all on one page",
    "proxy/core/schema/nodes.py": "one view over five drafts: what a node is and where a reference leads",
    "proxy/core/schema/patterns.py": "one pass over a pattern, and how two engines spell what it finds",
}


@dataclass(frozen=True)
class Source:
    """One file of the package: its path below the root, with forward slashes, its tree and its length in lines."""

    path: str
    tree: ast.Module
    lines: int

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        """The name under which FLOORS knows the file. A room of the same name in an extension has the same floor."""
        return room_of(PurePosixPath(self.path).with_suffix("").parts[1:])


def room_of(steps: Sequence[str]) -> str:
    """The room of a module, whose steps follow `proxy`."""
    if steps[0] != "extensions" or len(steps) == 1 or steps[1] not in USES:
        return steps[0].replace("__init__", "")
    if steps[2:] == ("plugin",):
        return "plugin file"
    return steps[2] if len(steps) > 2 and steps[2] in FLOORS else "extension"


def extension_of(steps: Sequence[str]) -> str:
    """The extension that a module, whose steps follow `proxy`, belongs to; '' for the main job."""
    return steps[1] if steps[0] == "extensions" and len(steps) > 1 and steps[1] in USES else ""


def source(path: str, text: str) -> Source:
    return Source(path, ast.parse(text, path), text.count("\n"))


@cache
def sources() -> tuple[Source, ...]:
    """Every file of the package, parsed once for all rules."""
    paths = sorted((ROOT / "proxy").rglob("*.py"))
    return tuple(source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths)


Rule = Callable[[Source], Iterator[str]]


def _names_types(file: Source) -> bool:
    return PurePosixPath(file.path).name in ("plugin.py", "plugins.py", "plugin_parts.py")


def imports(file: Source) -> Iterator[tuple[int, str]]:
    """Every module a file imports, with its line; `from a import b` counts as `a` and as `a.b`. The types that the
    interface of plugins names are no imports."""
    named = [node for node in file.nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    types = {id(inner) for node in named for inner in ast.walk(node)} if _names_types(file) else set[int]()
    for node in file.nodes:
        if id(node) in types:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "proxy.plugin" and "extensions" in file.path:
            yield from ((node.lineno, PARTS.get(name.name, node.module)) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def rooms_imported(file: Source) -> list[tuple[int, str]]:
    parts = [(line, module.split(".")) for line, module in imports(file)]
    found = {(line, tuple(part)) for line, part in parts if part[0] == "proxy" and len(part) > 1 and part[1] in FLOORS}
    packages = {(line, part[:end]) for line, part in found for end in range(2, len(part))}
    return sorted({(line, room_of(part[1:])) for line, part in found - packages})


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


def extensions_are_reached_by_their_row(file: Source) -> Iterator[str]:
    """Only a plugin itself names its modules, and another one that says that it uses it."""
    own = extension_of(PurePosixPath(file.path).with_suffix("").parts[1:])
    texts = [(node.lineno, node.value) for node in file.nodes
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
    named = [(line, text) for line, text in texts if re.fullmatch(r"proxy(\.\w+)+", text)]
    found = {(line, extension_of(module.split(".")[1:])) for line, module in (*imports(file), *named)
             if module.startswith("proxy.")}  # fmt: skip
    for line, name in sorted(found):
        if name and name != own and name not in USES.get(own, ()):
            yield f"{file.path}:{line} {own or 'the main job'} names a module of the plugin {name}: use a seam"


def imports_are_absolute(file: Source) -> Iterator[str]:
    for line, module in imports(file):
        if module.startswith("."):
            yield f"{file.path}:{line} relative import: write it from `proxy`"


def the_core_is_pure(file: Source) -> Iterator[str]:
    if file.room in PURE_ROOMS:
        for line, library in sorted({(line, module.split(".")[0]) for line, module in imports(file)}):
            if library in IMPURE:
                yield f"{file.path}:{line} {file.room}/ imports {library}: no I/O, clock, chance or logging here"
        for node in file.nodes:
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
    """Outside `decide.py` the name may be only in annotations, `isinstance` and `case`; so it is never called, renamed
    or handed to something that makes one."""
    if file.path in ("proxy/core/decide.py", "proxy/core/model/values.py"):
        return
    allowed = {id(inner) for outer in _naming_only(file.tree) for inner in ast.walk(outer)}
    checked = {
        argument.arg
        for argument in file.nodes
        if isinstance(argument, ast.arg) and argument.annotation and "CheckedCall" in ast.unparse(argument.annotation)
    }
    for node in file.nodes:
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
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                yield f"{file.path}:{node.lineno} {node.name} has {length} lines: at most {MAX_FUNCTION}"


def files_are_short(file: Source) -> Iterator[str]:
    limit = MAX_PIPELINE if file.path == "proxy/call/run.py" else MAX_FILE
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


def row_of(path: str) -> int | None:
    """The row of a file of the core; None for other files and for the package itself."""
    parts = PurePosixPath(path).parts
    if parts[:2] != ("proxy", "core") or parts[2:] == ("__init__.py",):
        return None
    name = parts[2].removesuffix(".py")
    return ROWS.index(name) if name in ROWS else len(ROWS)


def rows_import_upwards(file: Source) -> Iterator[str]:
    here = row_of(file.path)
    if here is None:
        return
    if here == len(ROWS):
        yield f"{file.path}:1 this part of the core is not in ROWS: give it a row"
        return
    rows = {f"proxy.core.{row}": number for number, row in enumerate(ROWS)}
    found = {(line, rows.get(".".join(module.split(".")[:3]), -1)) for line, module in imports(file)}
    for line, there in sorted(found):
        if there > here:
            yield f"{file.path}:{line} {ROWS[here]} imports {ROWS[there]}, which stands in a lower row"


def one_file_writes_the_record_of_a_call(file: Source) -> Iterator[str]:
    """Stages return their findings, or hand them to a function of `call/context.py`, which says what happened and
    writes all that belongs to it. So one place writes the contents of a record, extensions included."""
    for node in file.nodes if file.path not in RECORD_WRITERS else ():
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and node.attr in RECORDED
            and _last_name(node.value) in ("record", "_record")
        ):
            yield f"{file.path}:{node.lineno} writes record.{node.attr}: call/context.py does that"


def names_are_plain(file: Source) -> Iterator[str]:
    found = [(1, PurePosixPath(file.path).stem)]
    found += [(node.lineno, node.name) for node in file.tree.body if isinstance(node, ast.ClassDef)]
    for line, name in found:
        known = f"{file.path}:{name}" in STILL_PRETTY
        if not PRETTY.isdisjoint(words_of(name)) and not known:
            yield f"{file.path}:{line} {name} says nothing to a stranger: take the standard term"


def names_are_those_of_things(file: Source) -> Iterator[str]:
    """A value is called what it is: `message`, `question`, `capabilities`; not `told`, `asked`, `meant`."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.arg):
            name = node.arg if isinstance(node, ast.arg) else node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = _last_name(node)
        else:
            continue
        if not DIALECT.isdisjoint(words_of(name)):
            yield f"{file.path}:{node.lineno} {name} does not name a thing: take the standard term"


def functions_are_verbs(file: Source) -> Iterator[str]:
    """A function does something: `show_path`, not `shown`. Observers have `finished`."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            name = node.name.strip("_")
            if name != "finished" and _PARTICIPLE.fullmatch(name):
                yield f"{file.path}:{node.lineno} {node.name} is a participle: name what the function does"
            if not (PRETTY - {"case"}).isdisjoint(words_of(name)):  # letter case is meant there
                yield f"{file.path}:{node.lineno} {node.name} says nothing to a stranger: take the standard term"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_last_name(decorator) in ("property", "cached_property") for decorator in node.decorator_list)


def words_of(name: str) -> set[str]:
    """`RequestLane` -> {request, lane}; `case_duplicates` -> {case_duplicates}, since letter case is meant there."""
    return {"case_duplicates"} if name == "case_duplicates" else {word.lower() for word in _WORDS.findall(name)}


_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_PARTICIPLE: Final = re.compile(
    r"(?!need|feed|seed|speed|embed)[a-z]*[a-z]ed"
    r"|told|shown|found|made|kept|known|written|drawn|chosen|given|seen|said|taken|lost|sent|meant|spoken|broken|gone|done|begun"
)
_FIGURE: Final = re.compile(r"\d+ ?%|\d(\.\d+)? ?times|x ?\d")


def a_quick_way_says_what_it_is_worth(file: Source) -> Iterator[str]:
    if PurePosixPath(file.path).name.startswith("fast_"):
        said = ast.get_docstring(file.tree) or ""
        if not _FIGURE.search(said):
            yield f"{file.path}:1 a second way for a step says in its docstring what it is worth, as a figure"


# The proof of a check, and what hooks that mypy does not see are given: frozen at run time too.
FROZEN_AT_RUN_TIME: Final = frozenset(["proxy/core/model/values.py CheckedCall"])
HOOKS_READ: Final = "proxy/hooks/api.py"


def a_value_is_made_by_value_class(file: Source) -> Iterator[str]:
    """Only a dataclass with a `__dict__`, references to it, or its own identity is frozen in another way."""
    for node in file.nodes:
        decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
        if "dataclass(frozen=True, slots=True)" not in decorators or file.path == HOOKS_READ:
            continue
        if isinstance(node, ast.ClassDef) and f"{file.path} {node.name}" not in FROZEN_AT_RUN_TIME:
            yield f"{file.path}:{node.lineno} {node.name} compiles six functions at each start: @value_class"


# The one module that creates, replaces and appends to files. Any other might follow a link that somebody planted.
FILE_WRITER: Final = "proxy/file_writing.py"
WRITING: Final = frozenset(
    ["write_text", "write_bytes", "touch", "rename", "renames", "copy2", "copyfile", "copymode", "copytree", "move",
     "symlink", "symlink_to", "hardlink_to", "NamedTemporaryFile", "mkstemp", "chmod", "chown"]
)  # fmt: skip
_WRITE_MODE: Final = re.compile(r"[rbt]*[wax+][rwaxbt+]*")


def one_module_writes_files(file: Source) -> Iterator[str]:
    if file.path == FILE_WRITER:
        return
    for node in file.nodes:
        if isinstance(node, ast.Call) and _writes_file(node):
            yield f"{file.path}:{node.lineno} {ast.unparse(node.func)}: write files with the functions of {FILE_WRITER}"


def _writes_file(call: ast.Call) -> bool:
    name, whole = _last_name(call.func), ast.unparse(call)
    if name == "open":
        words = [each.value for each in (*call.args, *[word.value for word in call.keywords])
                 if isinstance(each, ast.Constant)]  # fmt: skip
        is_mode = any(isinstance(word, str) and _WRITE_MODE.fullmatch(word) for word in words)
        return is_mode or ("O_" in whole and whole != "os.open(os.devnull, os.O_WRONLY)")
    if name == "replace":  # `Path.replace` has one argument, `str.replace` two, `dataclasses.replace` a keyword
        is_path = isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords
        return is_path or whole.startswith("os.replace(")
    return name in WRITING


RULES: Final[tuple[Rule, ...]] = (
    every_room_has_a_floor,
    imports_go_down,
    rows_import_upwards,
    rooms_of_a_floor_keep_apart,
    extensions_are_reached_by_their_row,
    imports_are_absolute,
    the_core_is_pure,
    a_library_has_one_room,
    only_decide_makes_a_checked_call,
    rooms_have_real_names,
    functions_are_short,
    files_are_short,
    what_is_public_says_what_it_is,
    one_file_writes_the_record_of_a_call,
    names_are_plain,
    names_are_those_of_things,
    functions_are_verbs,
    a_quick_way_says_what_it_is_worth,
    a_value_is_made_by_value_class,
    one_module_writes_files,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Rule) -> None:
    assert [] == [breach for file in sources() for breach in rule(file)]


def test_a_file_is_about_as_long_as_a_page_can_be_read() -> None:
    lengths = [file.lines for file in sources() if file.lines > 3]
    assert statistics.median(lengths) <= MAX_MEDIAN


def test_a_package_has_no_more_lines_than_before() -> None:
    lines = dict.fromkeys(MAX_LINES, 0)
    for file in sources():
        package = PurePosixPath(file.path).parts[1]
        lines[{"core": "core", "extensions": "plugins"}.get(package, "main job")] += file.lines
    assert [] == [f"{name}: {lines[name]:,} lines, at most {most:,}" for name, most in MAX_LINES.items()
                  if lines[name] > most]  # fmt: skip
    assert [] == [f"{name}: lower MAX_LINES to {lines[name]:,}" for name, most in MAX_LINES.items()
                  if lines[name] < most - SLACK]  # fmt: skip
    assert len(sources()) <= MAX_FILES


def test_a_function_is_short_enough_to_be_read_at_once() -> None:
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for file in sources() for node in file.nodes
               if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]  # fmt: skip
    assert statistics.quantiles(lengths, n=20)[-1] <= MAX_MOST_FUNCTIONS


# --- rules over all files ---------------------------------------------------------------------------------------------
def modules_imported(files: tuple[Source, ...]) -> dict[str, set[str]]:
    """Path -> paths that it imports, wherever in the file: under `if TYPE_CHECKING` and in functions too."""
    paths = {file.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file.path for file in files}
    found = {file.path: {paths[module] for _, module in imports(file) if module in paths} for file in files}
    for file in files:  # `from package import module` reads the package only on its way to the module
        from_package = {node.module for node in file.nodes if isinstance(node, ast.ImportFrom)
                        and all(f"{node.module}.{name.name}" in paths for name in node.names)}  # fmt: skip
        plain = {name.name for node in file.nodes if isinstance(node, ast.Import) for name in node.names}
        found[file.path] -= {paths[module] for module in from_package - plain if module in paths}
        found[file.path].discard(file.path)
    return found


def circles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The groups of files that import each other, directly or around corners."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(edges.get(start, ()))
        while waiting:
            if (path := waiting.pop()) not in seen:
                seen.add(path)
                waiting += edges.get(path, ())
        return seen

    reach = {path: reached(path) for path in edges}
    return {frozenset(other for other in reach[path] if path in reach[other]) for path in edges if path in reach[path]}


def test_files_import_each_other_in_no_circle() -> None:
    assert [] == sorted(map(sorted, circles(modules_imported(sources()))))


@pytest.mark.parametrize(
    "back",
    [
        "from proxy.a import one",
        "if TYPE_CHECKING:\n    from proxy.a import one",
        "def f():\n    import proxy.a",
    ],
)
def test_finds_a_circle_at_any_place_of_the_import(back: str) -> None:
    files = (
        source("proxy/a.py", "from proxy import b"),
        source("proxy/b.py", "from proxy.c import two"),
        source("proxy/c.py", back),
        source("proxy/d.py", "import proxy.a"),
    )
    assert {frozenset({"proxy/a.py", "proxy/b.py", "proxy/c.py"})} == circles(modules_imported(files))


def shared(found: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns the places of each name."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in found:
        places[name].append(path)
    return places


def test_a_public_class_name_means_one_thing() -> None:
    names = shared(
        (node.name, file.path)
        for file in sources()
        for node in file.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [] == sorted({name for name, paths in names.items() if len(paths) > 1} - SHARED_CLASS_NAMES)


def test_a_file_name_is_in_at_most_two_rooms() -> None:
    names = shared((PurePosixPath(file.path).stem, file.path) for file in sources())
    many = {name for name, paths in names.items() if len(paths) > 2} - EVERYWHERE
    assert [] == sorted(many - SHARED_FILE_NAMES)


def test_a_folder_is_small_enough_to_be_looked_through() -> None:
    folders = shared(
        (str(PurePosixPath(file.path).parent), file.path)
        for file in sources()
        if not file.path.endswith(("__init__.py", "/plugin.py"))
    )
    large = {folder for folder, paths in folders.items() if len(paths) > MAX_FILES_OF_FOLDER} - {"proxy/cli"}
    assert [] == sorted(large)


def test_the_lists_of_what_is_known_hold_nothing_that_is_gone() -> None:
    files = {file.path for file in sources()}
    classes = [
        (node.name, file.path)
        for file in sources()
        for node in file.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    of_class = shared(iter(classes))
    of_file = shared((PurePosixPath(path).stem, path) for path in files)
    named = {f"{path}:{PurePosixPath(path).stem}" for path in files} | {f"{path}:{name}" for name, path in classes}
    gone = {
        "SHARED_CLASS_NAMES": sorted(name for name in SHARED_CLASS_NAMES if len(of_class.get(name, ())) < 2),
        "SHARED_FILE_NAMES": sorted(name for name in SHARED_FILE_NAMES if len(of_file.get(name, ())) < 3),
        "STILL_PRETTY": sorted(STILL_PRETTY - named),
    }
    assert {} == {name: entries for name, entries in gone.items() if entries}


BREACHES: Final = [
    (every_room_has_a_floor, "proxy/attic/x.py", ""),
    (imports_go_down, "proxy/core/x.py", "from proxy.config import load"),
    (imports_go_down, "proxy/routing.py", "import proxy.server"),
    (rows_import_upwards, "proxy/core/check/x.py", "from proxy.core.repair import engine"),
    (rows_import_upwards, "proxy/core/contract/x.py", "def f():\n    import proxy.core.decide"),
    (rows_import_upwards, "proxy/core/attic/x.py", ""),
    (one_file_writes_the_record_of_a_call, "proxy/call/run.py", "context.record.outcome = 'x'"),
    (one_file_writes_the_record_of_a_call, "proxy/call/optional.py", "record.status += 1"),
    (one_file_writes_the_record_of_a_call, "proxy/server/listener.py", "self._record.outcome = 'x'"),
    (one_file_writes_the_record_of_a_call, "proxy/extensions/chat/x.py", "listed.record.replaced = ()"),
    (names_are_plain, "proxy/core/turnstile.py", ""),
    (names_are_plain, "proxy/core/x.py", "class McpLane: ..."),
    (names_are_those_of_things, "proxy/extensions/chat/x.py", "told = 1"),
    (names_are_those_of_things, "proxy/extensions/chat/core/x.py", "def f(asked: str): ..."),
    (names_are_those_of_things, "proxy/state/x.py", "def is_hurt(): ..."),
    (names_are_those_of_things, "proxy/extensions/mcp/x.py", "self._heard = set()"),
    (functions_are_verbs, "proxy/core/x.py", "def _shown(path): ..."),
    (functions_are_verbs, "proxy/server/x.py", "class X:\n    async def settled(self): ..."),
    (functions_are_verbs, "proxy/call/x.py", "def run_trial(): ..."),
    (functions_are_verbs, "proxy/config/x.py", "def _loaded(): ..."),
    (a_quick_way_says_what_it_is_worth, "proxy/core/fast_x.py", '"""Much quicker."""'),
    (a_value_is_made_by_value_class, "proxy/core/x.py", "@dataclass(frozen=True, slots=True)\nclass X:\n    a: int"),
    (one_module_writes_files, "proxy/cli/x.py", "path.write_text('x')"),
    (one_module_writes_files, "proxy/cli/x.py", "path.open('ab')"),
    (one_module_writes_files, "proxy/cli/x.py", "open(path, mode='w+')"),
    (one_module_writes_files, "proxy/cli/x.py", "os.open(path, os.O_CREAT | os.O_EXCL)"),
    (one_module_writes_files, "proxy/cli/x.py", "Path(beside).replace(path)"),
    (one_module_writes_files, "proxy/cli/x.py", "os.replace(beside, path)"),
    (one_module_writes_files, "proxy/cli/x.py", "path.rename(other)"),
    (one_module_writes_files, "proxy/cli/x.py", "shutil.copy2(path, backup)"),
    (one_module_writes_files, "proxy/cli/x.py", "tempfile.NamedTemporaryFile(dir=folder)"),
    (rooms_of_a_floor_keep_apart, "proxy/config/x.py", "from proxy.telemetry.logs import line"),
    (rooms_of_a_floor_keep_apart, "proxy/call/run.py", "from proxy import routing"),
    (extensions_are_reached_by_their_row, "proxy/server/x.py", "def f():\n    import proxy.extensions.kubernetes"),
    (extensions_are_reached_by_their_row, "proxy/cli/x.py", "load('proxy.extensions.kubernetes.injection')"),
    (imports_go_down, "proxy/extensions/kubernetes/call/x.py", "import proxy.cli.options"),
    (the_core_is_pure, "proxy/extensions/kubernetes/core/x.py", "import time"),
    (imports_are_absolute, "proxy/core/x.py", "from . import model"),
    (the_core_is_pure, "proxy/core/x.py", "import os.path"),
    (the_core_is_pure, "proxy/adapters/x.py", "def f():\n    from time import monotonic"),
    (the_core_is_pure, "proxy/core/x.py", "async def f(): ..."),
    (a_library_has_one_room, "proxy/core/x.py", "import jiter"),
    (a_library_has_one_room, "proxy/call/x.py", "from aiohttp import web"),
    (a_library_has_one_room, "proxy/cli/x.py", "import requests"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "CheckedCall(call, b'{}', {})"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "model.CheckedCall(call, b'{}', {})"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "object.__new__(CheckedCall)"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "Sneaky = CheckedCall"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "from proxy.core.model.values import CheckedCall as C"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "replace(forward.checked, arguments=b'')"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "def f(it: CheckedCall): return replace(it, value=1)"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "forward.checked.arguments = b''"),
    (only_decide_makes_a_checked_call, "proxy/call/run.py", "def f(it: CheckedCall): del it.would"),
    (rooms_have_real_names, "proxy/core/utils.py", ""),
    (rooms_have_real_names, "proxy/helpers/x.py", ""),
    (functions_are_short, "proxy/core/x.py", "def f():\n" + "    pass\n" * 80),
    (files_are_short, "proxy/core/x.py", "\n" * 401),
    (files_are_short, "proxy/call/run.py", "\n" * 201),
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
    assert [] == list(only_decide_makes_a_checked_call(source("proxy/call/run.py", text)))


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


def test_no_python_is_outside_the_packages() -> None:
    assert [] == sorted(path.name for path in ROOT.glob("*.py"))


def test_no_file_names_a_package_registry() -> None:
    named = [
        f"{path.relative_to(ROOT)}: names {registry}"
        for path in tracked_files()
        if path.is_file() and not path.is_relative_to(ROOT / "tests" / "data")
        for registry in REGISTRIES
        if registry.encode() in path.read_bytes()
    ]
    assert [] == named


def test_repairs_know_no_words_but_the_protocol_vocabulary() -> None:
    """A list of words cannot be closed: a repair reads only what is stated (docs/repair.md)."""
    found = []
    for path in [*Path("proxy/core/rules").glob("*.py"), *Path("proxy/core/repair").glob("*.py")]:
        if path.name in ("vocabulary.py", "rules.py"):
            continue  # the vocabulary itself, and the table of rules with their names and texts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Set | ast.List | ast.Tuple | ast.Dict):
                members = node.keys if isinstance(node, ast.Dict) else node.elts
                words = [one.value for one in members if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                found += [f"{path}:{node.lineno}"] if sum(word.isalpha() for word in words) > 8 else []
    assert [] == found
    assert 10 == len(READING_VERBS)
