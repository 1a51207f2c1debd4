"""Routes that speak MCP: their defaults, and how they are put together from the layers of the config."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.adapters.base import ConversationSource
from proxy.config.load import Loaded, load
from proxy.config.mistakes import ConfigError
from proxy.core.contract.policy import CallCap, Mode, UpstreamErrors
from proxy.extensions.mcp.config.model import Command, find_mcp
from proxy.extensions.mcp.core.listed_tools import read_rules
from proxy.routing import Route, build_routes

HEAD = """\
version: 1
upstreams: {tools: {url: "http://127.0.0.1:9", timeouts: {response: 1s}}}
"""


def loaded(tmp_path: Path, below: str) -> Loaded:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + below)
    return load(path, {"LIMIT": "5"})


MCP_LADDER = (
    ConversationSource("header", "x-conversation-id"),
    ConversationSource("meta", "vscode.conversationId"),
    ConversationSource("meta", "openai/session"),
    ConversationSource("meta", "ai.opencode/sessionID"),
    ConversationSource("meta", "antigravity.google/conversation_id"),
    ConversationSource("meta", "threadId"),
    ConversationSource("trace"),
    ConversationSource("session", "mcp-session-id"),
    ConversationSource("address"),
)


def route(tmp_path: Path, keys: str, below: str = "") -> Route:
    text = f"routes: [{{path: /mcp, upstream: tools, protocol: mcp{keys}}}]\n{below}"
    made, *_ = build_routes(loaded(tmp_path, text).config).routes  # the others relay OAuth metadata
    return made


def test_an_mcp_route_has_its_own_defaults(tmp_path: Path) -> None:
    made = route(tmp_path, "")
    learn = read_rules(made.learn)

    assert ("mcp", "call", frozenset({"POST", "GET", "DELETE"}), 300.0, 4 * 1024 * 1024, MCP_LADDER) == (
        made.adapter,
        made.kind,
        made.methods,
        made.timeout,
        made.max_body,
        made.shape.ladder,
    )
    assert (UpstreamErrors.OUTAGES, "refuse", "refuse", 300.0, 5.0) == (
        learn.template.upstream_errors,
        learn.unknown_schema,
        learn.on_bad_schema,
        learn.ttl,
        learn.wait,
    )


def test_keys_of_the_config_override_these_defaults(tmp_path: Path) -> None:
    below = "defaults: {timeout: 7s, limits: {depth: 9}, conversation: [address], upstream_errors: passthrough}"
    made = route(tmp_path, "", below)
    learn = read_rules(made.learn)

    assert (7.0, 9, 4 * 1024 * 1024, ["address"], UpstreamErrors.PASSTHROUGH) == (
        made.timeout,
        made.shape.text.depth,
        made.max_body,
        [source.kind for source in made.shape.ladder],
        learn.template.upstream_errors,
    )


def test_a_tools_own_keys_lie_over_the_routes(tmp_path: Path) -> None:
    keys = """, mode: report, attempts: {max: 5}, caps: {default: 9, overrides: {other: 2}},
      mcp: {tools: {add: {mode: enforce, attempts: {ttl: 1m}, timeout: 3s,
        overlay: {properties: {a: {pattern: "^${x}"}}}}}}"""
    made = route(tmp_path, keys)
    learn = read_rules(made.learn)

    add = learn.overlays["add"]
    assert (Mode.REPORT, Mode.ENFORCE, 5, 60.0) == (
        learn.template.mode,
        add.policy.mode,
        add.policy.attempts.max_attempts,
        add.policy.attempts.ttl,
    )
    assert ({"properties": {"a": {"pattern": "^${x}"}}}, True) == (add.patch, add.judged)
    assert (3.0, 300.0) == (made.timeout_for("add"), made.timeout_for("other"))
    assert {"other": CallCap(2)} == learn.caps


def test_every_key_of_mcp_is_read(tmp_path: Path) -> None:
    keys = """, mcp: {unknown_schema: forward, on_bad_schema: forward, ttl: 1m, wait: 1s, credentials: [X-Tenant],
      trust_annotations: on, output_check: on,
      collapse: {name: all, description: everything, auto_expand: expand, require_expansion: on}}"""
    learn = read_rules(route(tmp_path, keys).learn)

    assert learn.collapse is not None
    assert ("forward", "forward", 60.0, 1.0, frozenset({"x-tenant"}), True, True) == (
        learn.unknown_schema,
        learn.on_bad_schema,
        learn.ttl,
        learn.wait,
        learn.credentials,
        learn.trust_annotations,
        learn.output_check,
    )
    assert ("all", "mcp", "proxy", "expand", True, "everything") == (
        learn.collapse.name,
        learn.collapse.source,
        learn.collapse.expand,
        learn.collapse.auto_expand,
        learn.collapse.require_expansion,
        learn.collapse_description,
    )


def test_notes_settings_that_let_calls_through(tmp_path: Path) -> None:
    text = (
        "routes: [{path: /mcp, upstream: tools, protocol: mcp, mode: report, "
        "mcp: {unknown_schema: forward, on_bad_schema: forward}}]"
    )

    assert (
        "route '/mcp': calls go on unjudged while the server's list of tools cannot be had",
        "route '/mcp': calls of tools whose listed schema cannot be used are not judged",
        "route '/mcp': report only, invalid calls of its tools go through",
    ) == loaded(tmp_path, text).config.notes


def test_several_workers_need_a_state_that_they_share(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="route '/mcp' counts attempts or calls"):
        loaded(tmp_path, "workers: 2\nroutes: [{path: /mcp, upstream: tools, protocol: mcp}]")


def test_the_summary_says_who_lists_the_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "routes: [{path: /mcp, upstream: tools, protocol: mcp}]")

    assert 0 == main(["check", str(path)])
    assert "what its server lists -> http://127.0.0.1:9/mcp" in capsys.readouterr().out


def test_a_dry_run_sends_the_operator_to_the_running_proxy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "routes: [{path: /mcp, upstream: tools, protocol: mcp}]")

    assert 2 == main(["validate", "-c", str(path), "-r", "/mcp", "{}"])
    assert "learns its tools while it serves" in capsys.readouterr().err


COMMAND_MISTAKES = [
    ("{command: [x], url: 'http://127.0.0.1:9'}", "`url` and `command` both name the service"),
    ("{}", "'url' is missing"),
    ("{command: [x], pool: {idle: 1s}}", "`pool` has no effect beside `command`"),
    ("{url: 'http://127.0.0.1:9', max_children: 3}", "`max_children` has no effect beside `url`"),
    ("{command: [x], cwd: nowhere}", "there is no folder 'nowhere'"),
    ("{command: npx}", "expects a list of the program and its arguments"),
    ("{command: []}", "expects a list of the program and its arguments"),
]


@pytest.mark.parametrize(("upstream", "message"), COMMAND_MISTAKES)
def test_an_upstream_that_is_a_command_says_what_it_cannot_have(upstream: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{tools: {upstream}}}\nroutes: [{{path: /mcp, upstream: tools, protocol: mcp}}]\n"
    )
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("more", "route", "message"),
    [
        ("", "tool: a, validation: off", "upstream 'tools' is a command, which speaks only MCP"),
        ("", "protocol: mcp, upstream_path: /x", "`upstream_path` has no effect: a command has no paths"),
        ("workers: 2\n", "protocol: mcp, mode: report", "2 workers do not share the sessions of upstream 'tools'"),
    ],
)
def test_a_command_needs_an_mcp_route_and_a_single_process(more: str, route: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"version: 1\n{more}upstreams: {{tools: {{command: [x]}}}}\nroutes: [{{path: /a, upstream: tools, {route}}}]\n"
    )
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert message in str(raised.value)


COMMAND = "{command: [npx, -y, x]"


@pytest.mark.parametrize(
    ("upstreams", "keys", "expected"),
    [
        (f"{{a: {COMMAND}}}}}", "upstream: a", math.inf),
        (f"{{a: {COMMAND}, shared: on}}}}", "upstream: a", 300.0),
        (f"{{a: {COMMAND}}}}}", "upstream: a, timeout: 10m", 600.0),
        ("{a: {url: 'http://127.0.0.1:9'}}", "upstream: a, timeout: off", math.inf),
        (f"{{a: {COMMAND}}}, b: {COMMAND}}}}}", "servers: {a: a, b: b}", math.inf),
        (f"{{a: {COMMAND}}}, b: {{url: 'http://127.0.0.1:9'}}}}", "servers: {a: a, b: b}", 300.0),
    ],
)
def test_calls_of_a_session_with_its_own_process_have_no_time_limit(
    tmp_path: Path, upstreams: str, keys: str, expected: float
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"version: 1\nupstreams: {upstreams}\nroutes: [{{path: /mcp, protocol: mcp, {keys}}}]\n")
    made, *_ = build_routes(load(path, {}).config).routes
    assert expected == made.timeout


@pytest.mark.parametrize(
    ("keys", "expected"), [("", 2.0), (", mcp: {servers_wait: 3s}", 3.0), (", mcp: {wait: 1s}", 0.8)]
)
def test_a_list_waits_for_late_servers_as_long_as_the_config_says(tmp_path: Path, keys: str, expected: float) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{a: {COMMAND}}}}}\nroutes: [{{path: /mcp, protocol: mcp, servers: {{a: a}}{keys}}}]\n"
    )
    (route,) = load(path, {}).config.routes
    mcp = find_mcp(route)
    assert mcp is not None
    assert mcp.joined is not None
    assert expected == pytest.approx(mcp.joined.wait)


@pytest.mark.parametrize(("keys", "expected"), [("", False), (", pass_env: usual", False), (", pass_env: all", True)])
def test_a_command_inherits_the_usual_variables_or_all(tmp_path: Path, keys: str, expected: bool) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{a: {COMMAND}{keys}}}}}\nroutes: [{{path: /mcp, protocol: mcp, upstream: a}}]\n"
    )
    command = load(path, {}).config.upstreams["a"].added
    assert isinstance(command, Command)
    assert expected is command.pass_all
