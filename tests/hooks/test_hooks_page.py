"""docs/hooks.md: its example is loaded unchanged and does what the page says; its tables are the code's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.model import HookEntry, find_default
from proxy.hooks import Call, Ending, Outgoing, Verdict
from proxy.hooks.api import POINTS
from proxy.server import check_hooks
from proxy.telemetry.metric_table import HOOK_POINTS, HOOK_REASONS
from tests.serving.proxied import code, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hooks.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TOKENS = {"desk": "desk-token-0123456789", "reports": "reports-token-0123456"}
BEARER = json.dumps({name: f"sha256:{hashlib.sha256(token.encode()).hexdigest()}" for name, token in TOKENS.items()})
ROUTES = f"""
  - {{path: "/tools/{{tool}}", upstream: tools, auth: {{bearer: {BEARER}}}}}
"""
CATALOGUE = "{search: {schema: {type: object}}, pay: {schema: {type: object, required: [amount]}}}"


@pytest.fixture
def rbac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the page, where the proxy can import it."""
    (tmp_path / "rbac.py").write_text(BLOCKS["python"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rbac", raising=False)


@pytest.mark.usefixtures("rbac")
async def test_the_example_lets_each_token_use_the_tools_of_its_role() -> None:
    ok = answer("200 OK", b"{}", JSON_TYPE)
    hooks = "\n" + BLOCKS["yaml"].removeprefix("hooks:\n")
    async with (
        tool(replies(ok)) as server,
        proxied(ROUTES, server.url, tools=CATALOGUE, hooks=hooks) as proxy,
    ):
        desk, reports = [f"Authorization: Bearer {token}" for token in TOKENS.values()]
        statuses = [
            (await proxy.post(f"/tools/{name}", b'{"amount": 1}', token)).status
            for token in (desk, reports)
            for name in ("search", "pay")
        ]
        refused = await proxy.post("/tools/pay", b'{"amount": 1}', reports)
        wrong = await proxy.post("/tools/pay", b"{}", desk)

    assert [200, 200, 200, 403] == statuses
    assert (403, "CALL_NOT_ALLOWED") == code(refused)
    assert "You may not use 'pay'." in told(refused)["content"]
    assert "You may use: search." in told(refused)["content"]
    assert (400, "INVALID_ARGUMENTS") == code(wrong)
    assert 3 == len(server.seen)


@pytest.mark.usefixtures("rbac")
def test_the_example_passes_the_check_and_a_slip_is_reported_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("version: 1\nroutes: {/a: {upstream: none, tool: x, schema: {}}}\n" + BLOCKS["yaml"])
    assert [] == check_hooks(load(config, {}).config.hooks, str(config))
    config.write_text(config.read_text().replace("rbac:Roles", "rbac:Rules"))
    (mistake,) = check_hooks(load(config, {}).config.hooks, str(config))
    assert str(mistake).startswith(f"{config}:4:5  hooks  'rbac:Rules' cannot be loaded")


def test_the_check_on_the_command_line_says_the_same(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "version: 1\nroutes: {/a: {upstream: none, tool: x, schema: {}}}\nhooks: [{use: 'no_such_module:X'}]\n"
    )
    for words in (["check", str(config)], ["serve", str(config), "--listen", "127.0.0.1:0"]):
        done = subprocess.run(
            [sys.executable, "-m", "proxy", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
        assert (2, f"{config}:3:9  hooks  'no_such_module:X' cannot be loaded") == (
            done.returncode,
            done.stderr.split(" (", 1)[0],
        )


def test_the_check_names_routes_without_hooks(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "version: 1\nupstreams: {m: {url: 'http://127.0.0.1:9'}}\n"
        "routes:\n  /a: {upstream: none, tool: x, schema: {}}\n"
        "  /v1/chat/completions: {upstream: m, model: {}}\n"
        "hooks: [{use: 'tests.hooks.samples:Witness'}]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "check", str(config)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ("", 0) == (done.stderr, done.returncode)
    assert "note: hooks do not run on '/v1/chat/completions': no tool is called there" in done.stdout


def test_several_workers_are_not_started_with_a_hook_that_cannot_be_found(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "version: 1\nworkers: 2\nadmin: off\nupstreams: {u: {url: 'http://127.0.0.1:9'}}\n"
        "routes: {/a: {upstream: u, tool: x, validation: off}}\nhooks: [{use: 'no_such_module:X'}]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "serve", str(config), "--listen", "127.0.0.1:0"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (2, 1) == (done.returncode, done.stderr.count("'no_such_module:X' cannot be loaded"))


def test_the_page_names_every_point_reason_and_field() -> None:
    assert POINTS == tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert POINTS == HOOK_POINTS
    fields = {field.name for value in (Call, Ending, Outgoing, Verdict) for field in dataclasses.fields(value)}
    words = set(re.findall(r"`([a-z_]+)[`(]", PAGE)) | set(re.findall(r"[a-z_]+", PAGE))
    assert set() == {*fields, *HOOK_REASONS} - words
    assert "50 ms" in PAGE
    assert (0.05, "refuse") == (find_default(HookEntry, "timeout"), find_default(HookEntry, "on_failure"))


def test_settings_are_shown_nowhere(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "version: 1\nroutes: {/a: {upstream: none, tool: x, schema: {}}}\n"
        "hooks: [{use: 'a:B', settings: {key: tulip, deep: ['${KEY}']}}]\n"
    )
    loaded = load(config, {"KEY": "rose"}).config
    assert {"key": "tulip", "deep": ["rose"]} == loaded.hooks[0].settings
    assert "tulip" not in json.dumps(loaded.written) + repr(loaded)
    assert "rose" not in json.dumps(loaded.written) + repr(loaded)
