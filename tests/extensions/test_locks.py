"""Each plugin is taken away from a copy of the code, with those that use it: the rest still is a whole.

The rest imports, type-checks, serves a plain config, passes its own tests, and rejects a verb or a key of the config
that it does not know any more. Takes minutes: `make locks`, and CI.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from proxy.plugin import AddsVerbs, HostsProcess, KeepsState, ObservesCalls, Plugin
from proxy.plugins import list_keys, list_plugins

pytestmark = pytest.mark.locks

ROOT: Final = Path(__file__).parents[2]
# The parts of the repository that the rest's own tests need.
COPIED: Final = (
    "proxy", "schemas", "tests", "docs", "helm", "benchmarks", ".ci", "Makefile", "README.md", "CHANGELOG.md",
    "CONTRIBUTING.md", "Dockerfile", "LICENSE", "config.example.yaml", "pyproject.toml", "requirements.lock",
    "requirements-dev.lock", ".gitignore", ".dockerignore", "mkdocs.yml",
)  # fmt: skip
# The tests that run on the rest: they decide, read the config, list the verbs, and serve calls end to end. The rules of
# the architecture look only at one file or at imports, so that no part of a tree that keeps them breaks one.
TRIED: Final = (
    "tests/core/test_decide.py", "tests/core/test_envelope.py", "tests/config",
    "tests/cli", "tests/scenarios", "tests/serving/test_calls.py", "tests/serving/test_operator.py",
    "tests/serving/test_reload.py",
    "--ignore=tests/config/test_published_schema.py",  # the published schema and its page describe all plugins
    "--ignore=tests/config/test_example.py",  # the example shows plugins too
    "--deselect=tests/config/test_load.py::test_the_example_runs_as_it_is",
    # Other systems' names mean keys of plugins too.
    "--deselect=tests/config/test_other_names.py::test_a_key_of_the_page_is_a_valid_config",
    "--deselect=tests/config/test_other_names.py::test_a_name_that_is_a_key_of_its_place_is_no_mistake",
    "--deselect=tests/cli/test_main.py::test_check_takes_the_config_either_way",
    # The hint at a key of MCP.
    "--deselect=tests/config/test_newcomers_mistakes.py::test_the_first_finding_names_the_remedy[mcpnoproto]",
    "--deselect=tests/cli/test_formats.py::test_a_source_that_cannot_be_asked_is_in_every_format",  # `operations` asks
)  # fmt: skip
PLAIN: Final = """\
version: 1
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0, console: off}
upstreams: {tools: {url: http://127.0.0.1:9}}
routes:
  - {path: /tools/weather, upstream: tools, tool: weather, schema: {properties: {lat: {type: number}}}}
"""
# A call that is refused, and one that is sent to an upstream which nobody listens at.
SERVE: Final = """
import asyncio, json, random, sys
from urllib.request import Request, urlopen
from urllib.error import HTTPError
from proxy.config.load import load
from proxy.server import start_serving
def post(url, body):
    try:
        with urlopen(Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})) as answer:
            return answer.status
    except HTTPError as error:
        return error.code
async def serve():
    serving = await start_serving(load("config.yaml", {}))
    calls = [{"lat": {}}, {"lat": 1}]
    print([await asyncio.to_thread(post, serving.url + "/tools/weather", call) for call in calls])
    await serving.stop(0)
random.seed(1)  # by chance the call does not go to the second judge
asyncio.run(serve())
loaded = (name.split(".") for name in sys.modules if name.startswith("proxy.extensions."))
print(sorted(".".join(parts) for parts in loaded if parts[3:] not in ([], ["plugin"])))
"""
IMPORT_ALL: Final = """
import importlib, pkgutil, proxy
for found in pkgutil.walk_packages(proxy.__path__, "proxy."):
    if found.name != "proxy.__main__":
        try:
            importlib.import_module(found.name)
        except ImportError as error:  # an extra of the package may be missing, a part of it may not
            if (error.name or "").startswith("proxy"):
                raise
"""


def list_taken(plugin: Plugin) -> list[Plugin]:
    """A plugin and those that use it, directly or through others."""
    taken = [plugin]
    for each in taken:
        taken += [user for user in list_plugins() if each.name in user.uses and user not in taken]
    return taken


def copy_without(plugin: Plugin, folder: Path) -> Path:
    """The code without a plugin and those that use it, and without their tests."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(source, folder / name, ignore=skip, symlinks=True)
        elif source.is_file():
            shutil.copy2(source, folder / name)
    for each in list_taken(plugin):
        shutil.rmtree(folder / "proxy" / "extensions" / each.name)
        shutil.rmtree(folder / "tests" / "extensions" / each.name, ignore_errors=True)
    (folder / "config.yaml").write_text(PLAIN, encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.xdist_group(each.name)) for each in list_plugins()],
    ids=lambda plugin: plugin.name,
)
def taken(request: pytest.FixtureRequest) -> Plugin:
    """The plugin that is taken away."""
    plugin: Plugin = request.param
    return plugin


@pytest.fixture(scope="module")
def rest(taken: Plugin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the code without it."""
    return copy_without(taken, tmp_path_factory.mktemp(f"without-{taken.name}"))


def test_every_module_of_the_rest_can_be_imported(rest: Path) -> None:
    done = run(rest, "-c", IMPORT_ALL)
    assert (0, "") == (done.returncode, done.stderr)


def test_the_rest_type_checks(rest: Path) -> None:
    if (ROOT / ".mypy_cache").is_dir():  # what is known of libraries need not be found out again
        shutil.copytree(ROOT / ".mypy_cache", rest / ".mypy_cache", dirs_exist_ok=True)
    done = run(rest, "-m", "mypy", "proxy")
    assert 0 == done.returncode, done.stdout


def test_the_rest_serves_a_plain_config_and_loads_no_plugin_for_it(rest: Path) -> None:
    done = run(rest, "-c", SERVE)
    assert 0 == done.returncode, done.stderr
    assert ["[400, 502]", "[]"] == done.stdout.splitlines()


def test_rejects_a_verb_or_key_of_what_is_gone(rest: Path, taken: Plugin) -> None:
    for verb in taken.verbs if isinstance(taken, AddsVerbs) else ():
        done = run(rest, "-m", "proxy", verb)
        assert (2, True) == (done.returncode, f"there is no verb {verb!r}" in done.stderr), done.stderr
    lines = [f"{key}: {{}}" for key in list_keys(taken) if key != "state"]
    lines += ["workers: 2"] if isinstance(taken, HostsProcess) and taken.runs_workers else []
    lines += ["telemetry: {traces: otlp}"] if isinstance(taken, ObservesCalls) and taken.traces else []
    if isinstance(taken, KeepsState):
        written = (f"backend: {taken.backend}", *(f"{key}: {{}}" for key in taken.state_keys))
        lines += [f"state: {{{each}}}" for each in written]
    for line in lines:
        (rest / "with_key.yaml").write_text(f"{PLAIN}{line}\n", encoding="utf-8")
        done = run(rest, "-m", "proxy", "check", "with_key.yaml")
        assert (2, True) == (done.returncode, "nothing would be served" in done.stderr), (line, done.stderr)


def test_the_rest_passes_its_own_tests(rest: Path) -> None:
    done = run(rest, "-m", "pytest", "-m", "not large and not locks", "-p", "no:cacheprovider", *TRIED)
    assert 0 == done.returncode, done.stdout[-5000:]
