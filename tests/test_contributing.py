"""The table of CONTRIBUTING.md, tried: each row is done in a copy of the code, and a program proves that it works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests import test_architecture

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


class Copy:
    """A copy of the code that a row changes. `touched` are the files it changed or made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        for name in ("proxy", "schemas", "helm/dashboards"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, path: str, text: str) -> None:
        """Makes a new file."""
        assert not (self.folder / path).exists()
        (self.folder / path).write_text(text, encoding="utf-8")
        self.touched.add(path)

    def insert(self, path: str, before: str, text: str) -> None:
        """Puts text in front of the only place that reads like `before`."""
        old = (self.folder / path).read_text(encoding="utf-8")
        assert old.count(before) == 1, f"{path} holds {before!r} {old.count(before)} times"
        (self.folder / path).write_text(old.replace(before, text + before), encoding="utf-8")
        self.touched.add(path)

    def config(self, route: str) -> None:
        """Writes a config whose one route has these keys more; what a row touches does not count it."""
        (self.folder / "config.yaml").write_text(
            "version: 1\nlisten: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nupstreams: {a: {url: 'http://127.0.0.1:9'}}\n"
            f"routes: [{{path: /x, {route}upstream: a, tool: x, schema: {{properties: {{n: {{type: integer}}}}}}}}]\n",
            encoding="utf-8",
        )

    def run(self, *words: str) -> str:
        """Returns what a program prints that runs on the copy."""
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, capture_output=True, text=True, check=False, timeout=600,
            env={"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


# Serves `config.yaml` in front of a tool that answers with what it got, and prints the status and text of each answer.
CALLS: Final = """
import asyncio, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import Request, urlopen
from urllib.error import HTTPError
from proxy.config.load import load
from proxy.server import start_serving
class Tool(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
def post(url, body):
    headers = {"Content-Type": "application/json", "X-Conversation-ID": "c"}
    try:
        with urlopen(Request(url, body, headers)) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.headers["Tool-Error"]
async def serve():
    tool = HTTPServer(("127.0.0.1", 0), Tool)
    threading.Thread(target=tool.serve_forever, daemon=True).start()
    config = Path("config.yaml")
    config.write_text(config.read_text().replace("127.0.0.1:9", f"127.0.0.1:{tool.server_port}"))
    serving = await start_serving(load(config, {}))
    print([await asyncio.to_thread(post, serving.url + "/x", body.encode()) for body in sys.argv[1:]])
    await serving.stop(0)
    tool.shutdown()
asyncio.run(serve())
"""


def add_an_adapter(copy: Copy) -> None:
    copy.write(
        "proxy/adapters/worded.py",
        '''"""The worded adapter: the word `call`, and then the arguments."""

from dataclasses import replace

from proxy.adapters.dispatch import PlainAdapter


class WordedAdapter(PlainAdapter):
    """As `plain`, behind a word that the tool does not see."""

    name = "worded"

    def decode(self, request, shape, fresh_id):
        """The call behind the word."""
        return super().decode(replace(request, body=request.body.removeprefix(b"call ")), shape, fresh_id)

    def rewrite(self, request, shape, checked):
        """The arguments alone."""
        return checked.arguments
''',
    )
    copy.insert(
        "proxy/adapters/__init__.py",
        "\nADAPTERS: Final",
        "from proxy.adapters.worded import WordedAdapter\n",
    )
    copy.insert("proxy/adapters/__init__.py", "PlainAdapter(), Disp", "WordedAdapter(), ")
    copy.insert("proxy/config/keys/route_keys.py", '"http"), "Plain', '"worded", ')
    copy.config("protocol: worded, ")
    answers = [(200, '{"n":1}'), (400, "INVALID_ARGUMENTS")]
    assert f"{answers}\n" == copy.run("-c", CALLS, 'call {"n":1}', 'call {"n":{}}')


def add_an_error_code(copy: Copy) -> None:
    copy.insert(
        "proxy/core/model/codes.py",
        "ERROR_CODES: dict",
        'OUT_OF_TEA = _service("OUT_OF_TEA", 503, "The tea is out.", "Wait for the kettle.")\n\n',
    )
    program = """
from proxy.core.model.codes import ERROR_CODES
code = ERROR_CODES["OUT_OF_TEA"]
print(code, code.status, code.category)
"""
    assert "OUT_OF_TEA 503 SERVICE_ERROR\n" == copy.run("-c", program)


def add_a_repair_rule(copy: Copy) -> None:
    copy.insert(
        "proxy/core/rules/proposals.py",
        "def zero_one(",
        '''def word_number(value: JsonValue, site: Site) -> Reading | None:
    """`one`, `two` -> number."""
    if not isinstance(value, str) or "integer" not in site.types:
        return None
    number = {"one": 1, "two": 2}.get(value)
    return None if number is None else (number, value)


''',
    )
    copy.insert(
        "proxy/core/rules/rules.py",
        '    Rule("yes_no"',
        '    Rule("word_number", "lenient", "value", "`two` -> `2`", "a spelt number", proposals.word_number),\n',
    )
    copy.config("repair: {rules: {word_number: on}}, ")
    program = """
from pathlib import Path
from proxy.config.load import load
from proxy.core.repair.engine import repair
from proxy.routing import build_routes
(route,) = build_routes(load(Path("config.yaml"), {}).config).routes
made = repair(route.tools["x"].check, {"n": "two"}, route.tools["x"].repair)
print(made.value, [one.rule for one in made.repairs])
"""
    assert "{'n': 2} ['word_number']\n" == copy.run("-c", program)


def add_an_answer_format(copy: Copy) -> None:
    copy.insert(
        "proxy/core/envelope/formats.py",
        "def write_anthropic(",
        '''def write_short(view: FailureView) -> JsonValue:
    """The feedback alone."""
    return {"said": render_feedback(view)}


''',
    )
    copy.insert("proxy/core/envelope/formats.py", '    "anthropic": Format', '    "short": Format(write_short),\n')
    copy.write("schemas/envelopes/short.schema.json", json.dumps({"type": "object", "required": ["said"]}))
    copy.config("envelope: short, ")
    program = """
from pathlib import Path
from proxy.config.load import load
from proxy.core.envelope import render_failure
from proxy.core.model import codes
from proxy.core.model.values import Conversation, Document, Failure, Rung, ToolCall, ToolResult
call = ToolCall("t", Document(b"{}", {}), "id", Conversation("c", Rung.HEADER))
(route,) = load(Path("config.yaml"), {}).config.routes
result = ToolResult(call, Failure(codes.INVALID_ARGUMENTS, "No."))
print(render_failure(result, route.policy.envelope, "category").body.decode()[:9])
"""
    assert '{"said":"\n' == copy.run("-c", program)


def add_a_state_backend(copy: Copy) -> None:
    copy.write(
        "proxy/state/small.py",
        '''"""State in this process, of ten keys."""

from proxy.interfaces import Clock
from proxy.plugin import KeepsState
from proxy.state.memory import MemoryStore


class KeptSmall(KeepsState):
    """Keeps ten keys in this process."""

    name, adds, backend = "small", "a small memory", "small"

    def make_store(self, clock, max_keys, settings, changed):
        return SmallStore(clock)


class SmallStore(MemoryStore):
    """A `MemoryStore` that keeps ten keys, and grants each conversation one call."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, 10)

    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        """One place at most."""
        return await super().reserve(key, 1, ttl)
''',
    )
    copy.insert("proxy/state/__init__.py", "\n__all__", "from proxy.state.small import KeptSmall\n")
    copy.insert(
        "proxy/state/__init__.py",
        "    KeptInMemory(),",
        "    KeptSmall(),\n",
    )
    copy.config("caps: {default: 5}, ")
    config = copy.folder / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8") + "state: {backend: small}\n", encoding="utf-8")
    answers = [(200, '{"n":1}'), (400, "CALL_CAP_EXCEEDED")]
    assert f"{answers}\n" == copy.run("-c", CALLS, '{"n":1}', '{"n":1}')


def add_a_tool_error_dialect(copy: Copy) -> None:
    copy.insert(
        "proxy/core/tool_errors/dialects.py",
        '    Dialect("fastapi",',
        '    Dialect("teapot", make_items_reader(needs=("spout", "brew"), place=("spout",), words=("brew",))),\n',
    )
    program = """
from proxy.core.check.validation import compile_check
from proxy.core.tool_errors.complaints import read_complaints
check = compile_check({"properties": {"n": {"type": "integer"}}})
found = read_complaints(400, "application/json", b'[{"spout": "n", "brew": "is too hot"}]', check, {"n": 1})
print(found.dialect, [violation.path for violation in found.violations])
"""
    assert "teapot [('n',)]\n" == copy.run("-c", program)


def add_a_verb(copy: Copy) -> None:
    copy.write(
        "proxy/cli/hello.py",
        '''"""`hello`: says hello."""

import argparse


def register(subparsers: argparse._SubParsersAction) -> None:
    """Describes the verb."""
    subparsers.add_parser("hello", help="says hello")


def run(args: argparse.Namespace) -> int:
    """Says hello."""
    print("hello")
    return 0
''',
    )
    copy.insert("proxy/__main__.py", '"check"', '"hello", ')
    assert "hello\n" == copy.run("-m", "proxy", "hello")


def add_a_console_page(copy: Copy) -> None:
    copy.write(
        "proxy/extensions/console/ui/hello.js",
        """// Says hello.
import { html } from "./parts.js";

export function Hello() {
  return html`<h2>Hello</h2>`;
}
""",
    )
    main = "proxy/extensions/console/ui/main.js"
    copy.insert(main, "\nconst PAGES = {", 'import { Hello } from "./hello.js";\n')
    copy.insert(main, "config: [", 'hello: ["Hello", Hello], ')
    program = """
import asyncio, re
from proxy.extensions.console.pages import show_file
from proxy.server.admin.page import PageRequest
def served(path):
    page = asyncio.run(show_file(PageRequest("GET", "/ui/" + path, path, "", {})))
    return page.status, page.content_type, page.body.decode()
imports = re.findall(r'import {([^}]+)} from "[.]/([^"]+)"', served("main.js")[2])
pages = re.findall(r'(\\w+): \\["[^"]+", (\\w+)\\]', served("main.js")[2])
for name, component in pages:
    (file,) = [file for names, file in imports if component in names.replace(",", " ").split()]
    status, kind, text = served(file)
    assert (200, True) == (status, f"export function {component}(" in text), (name, file)
    print(name, end=" ")
"""
    assert "hello" in copy.run("-c", program).split()


def add_a_config_key(copy: Copy) -> None:
    copy.insert("proxy/config/model.py", "    keep_calls: int = 2000", "    greeting: str = ''\n")
    copy.insert(
        "proxy/config/keys/section_keys.py",
        '    ConfigKey(\n        "console"',
        '    ConfigKey("greeting", text(), "Whom to greet."),\n',
    )
    (copy.folder / "config.yaml").write_text(
        "version: 1\nlisten: 127.0.0.1:0\nadmin: {greeting: hello}\nupstreams: {a: {url: 'http://127.0.0.1:9'}}\n"
        "routes: [{path: /x, upstream: a, tool: x, validation: off}]\n"
    )
    program = """
from pathlib import Path
from proxy.config.load import load
print(load(Path("config.yaml"), {}).config.admin.greeting)
"""
    assert "hello\n" == copy.run("-c", program)


def add_a_policy_key(copy: Copy) -> None:
    copy.insert("proxy/core/contract/policy.py", "    wrap_success: bool = False", "    most_keys: int | None = None\n")
    copy.insert(
        "proxy/config/keys/policy_keys.py",
        '    PolicyKey(\n        "leaked_markup"',
        '    PolicyKey("most_keys", number(minimum=0), "The most keys of a call."),\n',
    )
    copy.insert(
        "proxy/core/decide.py",
        "    repaired = _repair_document(document, policy, check, is_accepted)",
        "    if policy.most_keys is not None and len(document.value) > policy.most_keys:\n"
        "        return Reject(_failure(call, (_TOO_LONG,)))\n",
    )
    copy.config("most_keys: 1, ")
    answers = [(200, '{"n":1}'), (400, "INVALID_ARGUMENTS")]
    assert f"{answers}\n" == copy.run("-c", CALLS, '{"n":1}', '{"n":1,"m":2}')
    program = """
from pathlib import Path
from proxy.call.jobs import describe_policy, read_shared_policy
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.routing import build_routes
(route,) = build_routes(load(Path("config.yaml"), {}).config).routes
print(read_shared_policy(describe_policy(route.tools["x"])).most_keys)
relayed = "{path: /y, upstream: a, passthrough: true, most_keys: 1}"
config = Path("config.yaml").read_text()
Path("relayed.yaml").write_text(config.replace("routes: [", f"routes: [{relayed}, "))
try:
    load(Path("relayed.yaml"), {})
except ConfigError as error:
    print(error.mistakes[0].message)
"""
    assert "1\n`most_keys` has no effect on a passthrough route\n" == copy.run("-c", program)
    assert 3 == len(copy.touched)


def add_a_metric(copy: Copy) -> None:
    copy.insert(
        "proxy/telemetry/metric_table.py",
        '    MetricRow("toolproxy_repeats_total"',
        '    MetricRow("toolproxy_long_calls_total", "counter", "Calls of at least a second.", _CALL),\n',
    )
    metrics = "proxy/telemetry/metrics.py"
    copy.insert(
        metrics,
        "        self._repeats =",
        '        self._long = self.add_counter(METRICS["toolproxy_long_calls_total"])\n',
    )
    copy.insert(
        metrics,
        "        if record.repeated:",
        "        if record.ended - record.started >= 1:\n            self._long.series[route, tool] += 1\n",
    )
    dashboard = "helm/dashboards/toolcall-proxy.json"
    panels = json.loads((copy.folder / dashboard).read_text(encoding="utf-8"))["panels"]
    (repeats,) = [panel for panel in panels if "toolproxy_repeats_total" in json.dumps(panel)]
    (target,) = [each for each in repeats["targets"] if "toolproxy_repeats_total" in each["expr"]]
    expression = target["expr"].replace("toolproxy_repeats_total", "toolproxy_long_calls_total")
    panel = {
        **repeats,
        "id": max(each["id"] for each in panels) + 1,
        "title": "Long calls",
        "description": "Calls of at least a second.",
        "gridPos": {"h": 8, "w": 8, "x": 0, "y": max(each["gridPos"]["y"] for each in panels) + 8},
        "targets": [{**target, "expr": expression}],
    }
    copy.insert(dashboard, "\n  ]\n}", f",\n{json.dumps(panel, indent=2)}")
    program = """
from proxy.call_record import CallRecord
from proxy.telemetry.metrics import Metrics, Served
metrics, record = Metrics([Served("r", "t")], ""), CallRecord("r", "id")
record.route, record.tool, record.call_id, record.started, record.ended = "r", "t", "c", 1.0, 3.0
metrics.finished(record)
print([dict(shown.series) for shown in metrics.list_shown() if shown.described.name == "toolproxy_long_calls_total"])
"""
    assert "[{('r', 't'): 1.0}]\n" == copy.run("-c", program)
    assert "toolproxy_long_calls_total" in json.dumps(
        json.loads((copy.folder / dashboard).read_text(encoding="utf-8"))["panels"]
    )


def add_a_plugin(copy: Copy) -> None:
    folder = "proxy/extensions/greeting"
    (copy.folder / folder).mkdir()
    copy.write(f"{folder}/__init__.py", '"""Greets: a verb, a page, and a section of the config."""\n')
    copy.write(
        f"{folder}/page.py",
        '''"""The page `/-/greeting`."""

from proxy.server.admin.page import make_json_page


async def make_page(serving, question):
    """The greeting."""
    return make_json_page({"hello": serving.config.sections["greeting"]})
''',
    )
    copy.write(
        f"{folder}/greet.py",
        '''"""The verb `greet`."""


def register(subparsers):
    """Describes the verb."""
    subparsers.add_parser("greet", help="greets")


def run(args):
    """Greets."""
    print("hello")
    return 0
''',
    )
    copy.write(
        f"{folder}/plugin.py",
        '''"""The plugin `greeting`."""

from proxy.plugin import AddedPage, AddsKeys, AddsPages, AddsVerbs


class GreetingPlugin(AddsVerbs, AddsKeys, AddsPages):
    """Greets."""

    name = "greeting"
    adds = "greets"
    verbs = ("greet",)
    sections = ("greeting",)
    pages = {"/-/greeting": AddedPage()}

    def load_verb(self, verb):
        from proxy.extensions.greeting import greet

        return greet

    def declare_keys(self):
        from proxy.config.keys.kinds import ConfigKey, mapping, text

        return {"": mapping(None, ConfigKey("greeting", text(), "Whom."))}

    async def answer_page(self, path, serving, question):
        from proxy.extensions.greeting.page import make_page

        return await make_page(serving, question)
''',
    )
    assert "hello\n" == copy.run("-m", "proxy", "greet")
    (copy.folder / "config.yaml").write_text(
        "version: 1\nlisten: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\ngreeting: you\n"
        "upstreams: {a: {url: 'http://127.0.0.1:9'}}\n"
        "routes: [{path: /x, upstream: a, tool: x, schema: {properties: {n: {type: integer}}}}]\n"
    )
    program = """
import asyncio
from urllib.request import Request, urlopen
from urllib.error import HTTPError
from proxy.config.load import load
from proxy.server import start_serving
def fetch(url, body=None):
    try:
        return urlopen(Request(url, body, {"Content-Type": "application/json"})).read().decode().strip()
    except HTTPError as refused:
        return refused.code
async def serve():
    serving = await start_serving(load("config.yaml", {}))
    print(await asyncio.to_thread(fetch, serving.url + "/x", b'{"n": {}}'))
    print(await asyncio.to_thread(fetch, serving.admin_url + "/-/greeting"))
    await serving.stop(0)
asyncio.run(serve())
"""
    assert '400\n{"hello":"you"}\n' == copy.run("-c", program)


@dataclass(frozen=True)
class Row:
    """One row of the table: its first cell, and what does it."""

    name: str
    add: Callable[[Copy], None]


ROWS: Final = (
    Row("a protocol adapter", add_an_adapter),
    Row("an error code", add_an_error_code),
    Row("a repair rule", add_a_repair_rule),
    Row("an answer format", add_an_answer_format),
    Row("a state backend", add_a_state_backend),
    Row("a tool-error dialect", add_a_tool_error_dialect),
    Row("a CLI verb", add_a_verb),
    Row("a console page", add_a_console_page),
    Row("a config key", add_a_config_key),
    Row("a policy key", add_a_policy_key),
    Row("a metric", add_a_metric),
    Row("a plugin", add_a_plugin),
)


def table() -> dict[str, str]:
    """The rows of what to add: first cell -> second cell."""
    added = PAGE.partition("## To add something")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (an? [^|]+) \| ([^|]+) \|$", added, re.MULTILINE))


def test_the_table_has_the_rows_that_are_tried() -> None:
    assert [row.name for row in ROWS] == list(table())


@pytest.mark.large
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_works_by_touching_the_files_it_names(row: Row, tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    row.add(copy)
    named = set(re.findall(r"`([^`]+)`", table()[row.name]))
    patterns = [re.sub(r"<\w+>", r"\\w+", name) + (".*" if name.endswith("/") else "") for name in named]
    unnamed = [path for path in copy.touched if not any(re.fullmatch(pattern, path) for pattern in patterns)]
    assert [] == unnamed


def test_the_map_names_the_rows_of_the_core_and_folders_that_exist() -> None:
    told = re.search(r"Inside `core/` a row imports rows above it: ([\w\s,]+)\.", PAGE)
    assert told is not None
    assert list(test_architecture.ROWS) == re.split(r",\s+", told[1])
    drawn = re.findall(r'\["(\w+/)', PAGE)
    assert drawn == [name for name in drawn if (ROOT / "proxy" / name).is_dir()]


def list_naming(*words: str) -> set[str]:
    """The files of the code and of the chart that hold each of the words."""
    files = [
        path for name in ("proxy", "helm") for path in (ROOT / name).rglob("*.*") if "__pycache__" not in path.parts
    ]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in files}
    return {path for path, text in texts.items() if all(re.search(rf"\b{word}\b", text) for word in words)}


def test_the_row_of_a_policy_key_names_each_file_that_names_such_keys() -> None:
    found = list_naming("unknown_keys", "leaked_markup") - {"helm/values.schema.json"}  # `make docs` writes it
    assert "proxy/core/contract/policy.py" in found
    assert set() == found - set(re.findall(r"`([^`]+)`", table()["a policy key"]))


def test_the_row_of_a_metric_names_each_file_that_names_one() -> None:
    named = re.findall(r"`((?:proxy/telemetry|helm)/[^`]+)`", table()["a metric"])
    assert set(named) == list_naming("toolproxy_repeats_total")


def test_each_file_and_name_of_the_list_of_additions_is_there() -> None:
    added = PAGE.partition("## To add something")[2].partition("\n## ")[0]
    files = re.findall(r"`((?:proxy|tests|docs|helm|schemas)/[\w./-]+)`", added)
    named = re.findall(r"`(\w+)` (?:in|of) `([\w./]+)`", added)
    assert [] == [file for file in files if not (ROOT / file).exists()]
    assert 10 <= len(named)
    assert [] == [
        name for name, file in named if not re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8"))
    ]


def test_each_file_and_name_of_the_list_of_changes_is_there() -> None:
    table = PAGE.partition("## To change something")[2].partition("\n## ")[0]
    files = re.findall(r"`(proxy/[\w./]+)`", table)
    named = re.findall(r"`(\w+)` (?:in|of) `(proxy/[\w./]+)`", table)
    assert [] == [file for file in files if not (ROOT / file).is_file()]
    assert 12 <= len(named)
    assert [] == [name for name, file in named if name not in (ROOT / file).read_text(encoding="utf-8")]
