"""A plugin of another package is loaded only for a config that names it. Then it adds a section, a key of a route, a
verb, an observer and a way to admit requests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from proxy.plugins import find_missing, list_plugins

SAMPLE: Final = Path(__file__).parent / "basic_auth"
ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = """\
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0, console: off}}
{more}
routes:
  - {{path: /sum, upstream: none, tool: sum, basic: [ann], schema: {{properties: {{a: {{type: integer}}}}}}}}
  - {{path: /open, upstream: none, tool: open, schema: {{properties: {{a: {{type: integer}}}}}}{limits}}}
"""
SERVE: Final = """
import asyncio, base64
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from proxy.config.load import load
from proxy.server import start_serving
def post(url, user):
    shown = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()} if user else {}
    try:
        with urlopen(Request(url, b'{"a": 1}', {"Content-Type": "application/json", **shown})) as answer:
            return answer.status
    except HTTPError as error:
        return error.code
def scrape(url):
    with urlopen(url + "/metrics") as page:
        return [line for line in page.read().decode().splitlines() if line.startswith("toolproxy_basic")]
async def serve():
    serving = await start_serving(load("config.yaml", {}))
    users = ("", "ann:wrong", "bob:secret", "ann:secret")
    print([await asyncio.to_thread(post, serving.url + "/sum", user) for user in users])
    print([await asyncio.to_thread(post, serving.url + "/open", "") for _ in range(4)])
    print(await asyncio.to_thread(scrape, serving.admin_url))
    await serving.stop(0)
asyncio.run(serve())
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the sample is installed."""
    folder = tmp_path_factory.mktemp("packages")
    # pip's result for a wheel without dependencies: the package, and its entry points in a dist-info.
    words = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target")
    subprocess.run([sys.executable, *words, str(folder), str(SAMPLE)], check=True, capture_output=True)
    return folder


def run(folder: Path, packages: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{packages}:{ROOT}"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, input=text, capture_output=True, text=True, check=False
    )


def hash_password(folder: Path, packages: Path, password: str) -> str:
    done = run(folder, packages, "-m", "proxy", "basic-hash", text=f"{password}\n")
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.strip()


def test_serves_what_the_plugin_adds(tmp_path: Path, packages: Path) -> None:
    hashed = hash_password(tmp_path, packages, "secret")
    more = f"plugins: [basic_auth]\nbasic_users: {{ann: '{hashed}'}}"
    (tmp_path / "config.yaml").write_text(CONFIG.format(more=more, limits=""), encoding="utf-8")

    done = run(tmp_path, packages, "-c", SERVE)

    assert 0 == done.returncode, done.stderr
    assert ["[401, 401, 401, 200]", "[200, 200, 200, 200]"] == done.stdout.splitlines()[:2]
    assert """['toolproxy_basic_requests_total{route="/sum"} 4.0']""" == done.stdout.splitlines()[2]


@pytest.mark.parametrize(
    ("limits", "statuses"),
    [
        ("{total: 2}", [200, 200, 429, 429]),
        ("{rate: {calls: 3, per: 1h}, total: 4}", [200, 200, 200, 429]),
        ("{rate: {calls: 4, per: 1h}, total: 3}", [200, 200, 200, 429]),
    ],
    ids=["its own limit", "the limit of another plugin first", "its own limit first"],
)
def test_limits_calls_by_a_key_of_the_plugin(tmp_path: Path, packages: Path, limits: str, statuses: list[int]) -> None:
    more = f"plugins: [basic_auth]\nbasic_users: {{ann: '{'0' * 32}:{'0' * 64}'}}"
    (tmp_path / "config.yaml").write_text(CONFIG.format(more=more, limits=f", limits: {limits}"), encoding="utf-8")

    done = run(tmp_path, packages, "-c", SERVE)

    assert 0 == done.returncode, done.stderr
    assert str(statuses) == done.stdout.splitlines()[1]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("basic_users: {ann: x}", "config.yaml:4:1  basic_users  unknown key 'basic_users'"),
        ("plugins: [basic_auth]", "config.yaml:6:52  route '/sum'  'ann' is not in `basic_users`"),
        ("plugins: [basic_auth]\nbasic_users: {ann: x}", "config.yaml:5:"),
        ("plugins: [other]", "config.yaml:4:11  plugins  no installed package has a plugin 'other'"),
    ],
    ids=["not named", "a check across keys", "its own schema", "not installed"],
)
def test_rejects_a_config_at_its_place(tmp_path: Path, packages: Path, more: str, expected: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.format(more=more, limits=""), encoding="utf-8")
    done = run(tmp_path, packages, "-m", "proxy", "check", "config.yaml")
    assert 2 == done.returncode
    assert expected in done.stderr


def test_rejects_a_route_that_two_plugins_would_admit(tmp_path: Path, packages: Path) -> None:
    hashed = f"{'0' * 32}:{'0' * 64}"
    more = f"plugins: [basic_auth]\nbasic_users: {{ann: '{hashed}'}}\ndefaults: {{deny: [{{tools: [sum]}}]}}"
    (tmp_path / "config.yaml").write_text(CONFIG.format(more=more, limits=""), encoding="utf-8")
    done = run(tmp_path, packages, "-m", "proxy", "check", "config.yaml")
    assert 2 == done.returncode
    assert "route '/sum': the plugins access and basic_auth both admit its requests" in done.stderr
    assert "'/open'" not in done.stderr


def test_names_a_plugin_that_does_not_load(tmp_path: Path, packages: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "broken-1.dist-info").mkdir(parents=True)
    (broken / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    points = "[toolcall_proxy.plugins]\nbroken = nowhere.plugin:Plugin\n"
    (broken / "broken-1.dist-info" / "entry_points.txt").write_text(points)
    (tmp_path / "config.yaml").write_text(CONFIG.format(more="plugins: [broken]", limits=""), encoding="utf-8")

    done = run(tmp_path, broken, "-m", "proxy", "check", "config.yaml")
    other = run(tmp_path, broken, "-m", "proxy", "chek")

    assert 2 == done.returncode
    assert "plugin 'broken' does not load: ModuleNotFoundError: No module named 'nowhere'" in done.stderr
    assert "there is no verb 'chek'  (did you mean 'check'?)" in other.stderr, "a word of the user loads no package"


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("class P(AddsVerbs):\n    name = 'p'; adds = ''", "AddsVerbs.verbs, AddsVerbs.load_verb"),
        ("class P(AddsKeys):\n    name = 'p'; adds = ''; sections = ('s',)", "Plugin.declare_keys"),
        (
            "class P(AddsKeys):\n    name = 'p'; adds = ''; limit_keys = ('m',)\n    def declare_keys(self): return {}",
            "ExtendsCalls.make_limiter",
        ),
    ],
    ids=["a seam", "a method that a key needs", "a limit that nothing keeps"],
)
def test_names_what_a_plugin_lacks(tmp_path: Path, body: str, missing: str) -> None:
    (tmp_path / "p-1.dist-info").mkdir()
    (tmp_path / "p-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: p\nVersion: 1\n")
    (tmp_path / "p-1.dist-info" / "entry_points.txt").write_text("[toolcall_proxy.plugins]\np = p:P\n")
    (tmp_path / "p.py").write_text(f"from proxy.plugin import AddsKeys, AddsVerbs\n{body}\n")
    (tmp_path / "config.yaml").write_text(CONFIG.format(more="plugins: [p]", limits=""), encoding="utf-8")

    done = run(tmp_path, tmp_path, "-m", "proxy", "check", "config.yaml")

    assert 2 == done.returncode
    assert f"config.yaml:4:11  plugins  plugin 'p' does not load: p:P lacks {missing}  (" in done.stderr


def test_the_built_in_plugins_are_complete() -> None:
    assert {} == {plugin.name: lacks for plugin in list_plugins() if (lacks := find_missing(type(plugin)))}
