"""Layers of policy, and what they mean when they are compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from proxy.adapters.base import DEFAULT_LADDER, ConversationSource
from proxy.config.files.secrets import reveal
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.model import Caps, Policy
from proxy.config.policies import make_repair_policy, merge_layers, read_policy
from proxy.config.sections.units import read_seconds, read_size
from proxy.core.contract.policy import (
    AttemptsPolicy,
    Block,
    ByAddress,
    CallCap,
    Mode,
    NullOptional,
    ToolErrors,
    ToolPolicy,
    UnknownKeys,
)
from proxy.core.json.jsontext import LosslessFloat, TextLimits
from proxy.core.model.values import FeedbackLimits
from proxy.core.rules.rules import LEAVING_OUT, select_rules
from proxy.core.schema.formats import NONE, USUAL, Formats
from proxy.routing import Route, build_routes


def routes(tmp_path: Path, text: str) -> dict[str, Route]:
    (tmp_path / "c.yaml").write_text(text)
    return {route.path: route for route in build_routes(load(tmp_path / "c.yaml", {}).config).routes}


def test_nothing_written_means_the_defaults() -> None:
    assert Policy() == read_policy({})
    assert (ToolPolicy("x", None, "").mode, DEFAULT_LADDER) == (read_policy({}).mode, read_policy({}).ladder)


def test_the_nearer_layer_wins_key_by_key() -> None:
    merged = merge_layers(
        {"mode": "report", "attempts": {"max": 2, "ttl": "1m"}, "repair": "lenient"},
        {"attempts": {"max": 5}, "repair": {"rules": {"yes_no": False}}},
        {"repair": {"rules": {"wrap_pinned": False}}, "path": "/no/policy/key"},
    )
    assert {
        "mode": "report",
        "attempts": {"max": 5, "ttl": "1m"},
        "repair": {"level": "lenient", "rules": {"yes_no": False, "wrap_pinned": False}},
    } == merged


def test_lists_replace_and_header_names_have_one_case() -> None:
    merged = merge_layers(
        {"conversation": ["trace"], "headers": {"set": {"X-A": "1", "X-B": "1"}}},
        {"conversation": ["address"], "headers": {"set": {"x-a": "2"}}},
    )
    assert {"conversation": ["address"], "headers": {"set": {"x-a": "2", "x-b": "1"}}} == merged


def test_every_policy_key_is_compiled() -> None:
    policy = read_policy(
        {
            "mode": "report", "unknown_keys": "refuse", "envelope": "hpd", "error_status": "ok", "formats": "off",
            "attempts": {"max": 2, "ttl": "1m", "address_ttl": 9, "address": "count", "block": "hard",
                         "tool_errors": {"max": 9, "window": "2m"}}, "timeout": "500ms",
            "caps": {"default": 3, "overrides": {"a": 5}, "ttl": "2h", "by_address": True},
            "limits": {"body": "1kB", "depth": 5, "nodes": 7},
            "feedback": {"max_errors": 1, "max_chars": 300, "max_preview": 20, "path_roots": ["/srv"], "marks": True},
            "conversation": ["trace", {"header": "X-C"}, {"body": "/a/B"}, {"session": "X-S"}, "address"],
            "headers": {"set": {"X-A": "v"}, "remove": ["Cookie"]},
            "repair": {"level": "basic", "rules": {"enum_case": "on"}, "drop_keys": ["id"]},
            "null_optional": "drop", "aliases": {"latitude": "lat"},
        }
    )  # fmt: skip
    assert (Mode.REPORT, UnknownKeys.REFUSE, "hpd", "ok", NONE, 0.5, 1000, TextLimits(5, 7)) == (
        policy.mode, policy.unknown_keys, policy.envelope, policy.error_status, policy.formats, policy.timeout,
        policy.max_body, policy.text,
    )  # fmt: skip
    assert AttemptsPolicy(2, 60.0, 9.0, ByAddress.COUNT, Block.HARD, ToolErrors(9, 120.0)) == policy.attempts
    assert FeedbackLimits(1, 300, 20, ("/srv",), True) == policy.feedback
    assert [CallCap(5, 7200.0, True), CallCap(3, 7200.0, True)] == [policy.caps.of("a"), policy.caps.of("b")]
    assert (
        ConversationSource("trace"), ConversationSource("header", "x-c"), ConversationSource("body", "/a/B"),
        ConversationSource("session", "x-s"), ConversationSource("address"),
    ) == policy.ladder  # fmt: skip
    assert ((("x-a", "v"),), frozenset({"cookie"})) == (policy.headers.set, policy.headers.remove)
    repair = make_repair_policy(policy)
    assert (select_rules("basic", {"enum_case": True}), frozenset({"id"})) == (repair.rules, repair.drop_keys)
    assert (NullOptional.DROP, {"latitude": "lat"}) == (repair.null_optional, repair.aliases)


def test_no_key_is_dropped_unless_the_config_names_it() -> None:
    assert frozenset() == make_repair_policy(read_policy({"repair": {"level": "lenient"}})).drop_keys
    named = read_policy({"repair": {"level": "lenient", "drop_keys": ["toolCallId"]}})
    assert {"toolCallId"} == make_repair_policy(named).drop_keys


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1.5s", 1.5),
        (3, 3.0),
        (LosslessFloat(b"0.25"), 0.25),
    ],
)
def test_times_are_seconds(written: object, expected: float) -> None:
    assert expected == read_seconds(written)


@pytest.mark.parametrize(
    ("written", "expected"), [("64B", 64), ("1kB", 1000), ("1KiB", 1024), ("2MiB", 2097152), ("1GB", 10**9), (9, 9)]
)
def test_sizes_are_bytes(written: object, expected: int) -> None:
    assert expected == read_size(written)


def test_defaults_then_the_tool_then_the_route(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
upstreams: {u: {url: http://h, timeouts: {response: 7s}}}
defaults: {attempts: {max: 2}, caps: {default: 9}, envelope: hpd}
tools:
  a: {schema: {}, attempts: {max: 4}, timeout: 3s}
  b: {schema: {}}
routes:
  - {path: /a, upstream: u, tool: a}
  - {path: /a5, upstream: u, tool: a, attempts: {max: 5}, timeout: 1s, envelope: auto}
  - {path: '/{tool}', upstream: u}
""",
    )
    assert [4, 5, 4, 2] == [
        served[path].tools[name].attempts.max_attempts
        for path, name in (("/a", "a"), ("/a5", "a"), ("/{tool}", "a"), ("/{tool}", "b"))
    ]
    assert [3.0, 1.0, 3.0, 7.0] == [
        served[path].timeout_for(name) for path, name in (("/a", "a"), ("/a5", "a"), ("/{tool}", "a"), ("/{tool}", "b"))
    ]
    assert [9, 9] == [policy.cap.limit for policy in served["/{tool}"].tools.values()]
    assert ["hpd", "auto", "hpd"] == [route.envelope for route in served.values()]


def test_routes_that_are_written_alike_share_a_policy(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "version: 1\ntools: {a: {schema: {type: object}, attempts: {max: 2}}, b: {schema: {type: array}}}\n"
        "routes:\n"
        "  - {path: /1, upstream: none, tool: a}\n"
        "  - {path: /2, upstream: none, tool: b, attempts: {max: 2}}\n"
        "  - {path: /3, upstream: none, tool: b, headers: {set: {x-key: '${ONE}'}}}\n"
        "  - {path: /4, upstream: none, tool: b, headers: {set: {x-key: '${TWO}'}}}\n"
    )
    one, two, three, four = load(tmp_path / "c.yaml", {"ONE": "1", "TWO": "2"}).config.routes
    assert one.policy is two.policy
    assert one.policy is one.tools["a"].policy
    assert ["1", "2"] == [reveal(route.policy.headers.set[0][1]) for route in (three, four)]


def test_text_is_repaired_only_as_far_as_every_tool_allows(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
tools: {a: {schema: {}, repair: lenient}, b: {schema: {}}, c: {schema: {}, repair: off}}
routes:
  - {path: /a, upstream: none, tool: a}
  - {path: '/ab/{tool}', upstream: none, tools: [a, b]}
  - {path: '/abc/{tool}', upstream: none}
""",
    )
    assert "trailing_commas" in served["/a"].shape.text_repairs
    assert {"code_fence", "control_characters", "repeated_body", "call_markup"} == set(
        served["/ab/{tool}"].shape.text_repairs
    )
    assert frozenset() == served["/abc/{tool}"].shape.text_repairs


def test_takes_null_as_not_sent_on_the_word_that_the_config_names(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
tools:
  get_issue: {schema: {}}
  update_issue: {schema: {}}
  edit_issue: {schema: {}, repair: {rules: {drop_null_optional: on}}}
  put_issue: {schema: {}, null_optional: drop}
  read_issue: {schema: {}, null_optional: refuse}
routes:
  - {path: '/{tool}', upstream: none}
  - {path: /patch, methods: [PATCH], upstream: tools, tool: get_issue}
  - {path: /patch/drop, methods: [PATCH], upstream: tools, tool: get_issue, null_optional: drop}
  - {path: /stated, upstream: tools, tool: get_issue, null_optional: stated}
upstreams: {tools: {url: "http://127.0.0.1:9"}}
""",
    )
    leaving_out = {
        f"{path} {name}": (policy.repair_in_force.rules >= LEAVING_OUT, policy.repair_in_force.keeps_defaults)
        for path, route in served.items()
        for name, policy in route.tools.items()
    }
    assert {
        "/{tool} get_issue": (True, False),
        "/{tool} update_issue": (True, True),  # the final output of a model is new
        "/{tool} edit_issue": (True, True),
        "/{tool} put_issue": (True, False),
        "/{tool} read_issue": (False, False),
        "/patch get_issue": (False, False),
        "/patch/drop get_issue": (True, False),
        "/stated get_issue": (False, False),
    } == leaving_out
    fingerprints = {served[path].tools["get_issue"].fingerprint for path in ("/patch", "/patch/drop", "/stated")}
    assert 3 == len(fingerprints)


def test_markup_of_a_call_is_guarded_against_and_repaired_bodies_keep_the_limit(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
defaults: {limits: {body: 2kB}}
tools: {a: {schema: {}}, b: {schema: {}, leaked_markup: off}, c: {schema: {}, leaked_markup: warn}}
routes: [{path: '/{tool}', upstream: none}]
""",
    )["/{tool}"].tools
    assert {"a": "refuse", "b": "off", "c": "warn"} == {name: tool.leaked_markup.value for name, tool in served.items()}
    assert {2000} == {tool.max_body for tool in served.values()}


def test_headers_are_laid_over_one_another(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
upstreams: {u: {url: http://h, headers: {set: {X-A: upstream, X-B: upstream, X-C: upstream}, remove: [Cookie]}}}
defaults: {headers: {set: {X-B: defaults, X-C: defaults}, remove: [Referer]}}
routes: [{path: /a, upstream: u, tool: x, schema: {}, headers: {set: {X-C: route}}}]
""",
    )
    assert {"x-a": "upstream", "x-b": "defaults", "x-c": "route"} == dict(served["/a"].headers_set)
    assert {"cookie", "referer"} == served["/a"].headers_remove


def test_the_fingerprint_follows_what_decides_a_call_and_nothing_else(tmp_path: Path) -> None:
    def fingerprint(**keys: object) -> str:
        route = {"path": "/a", "upstream": "none", "tool": "x", "schema": {}, **keys}
        text = yaml.safe_dump({"version": 1, "routes": [route]})
        return routes(tmp_path, text)["/a"].tools["x"].fingerprint

    plain = fingerprint()
    assert 64 == len(plain)
    assert plain == fingerprint(name="other", headers={"set": {"a": "b"}}, envelope="hpd")
    different = [fingerprint(schema={"type": "object"}), fingerprint(repair="off"), fingerprint(attempts={"max": 2})]
    assert 4 == len({plain, *different})


def test_a_container_knows_its_functions_from_the_catalogue(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
tools:
  Add: {schema: {type: object, required: [a]}, description: Adds.}
  Math: {container: {source: mcp, functions: [Add, {name: Sub, description: Subtracts.}], require_expansion: on}}
routes: [{path: '/{tool}', upstream: none}]
""",
    )
    policies = served["/{tool}"].tools
    container = policies["Math"].container
    assert container is not None
    assert ("Math", "mcp", True, None) == (
        container.name,
        container.source,
        container.require_expansion,
        policies["Math"].check,
    )
    assert [("Add", "Adds.", {"type": "object", "required": ["a"]}), ("Sub", "Subtracts.", None)] == [
        (function.name, function.description, function.schema) for function in container.functions
    ]
    assert (container, None) == (policies["Add"].member_of, policies["Math"].member_of)


def test_a_function_of_a_container_may_bring_its_own_schema(tmp_path: Path) -> None:
    (tmp_path / "part.yaml").write_text("type: number")
    served = routes(
        tmp_path,
        """\
version: 1
tools:
  Math:
    container:
      functions:
        - {name: Sub, schema: {type: object, properties: {a: {$ref: part.yaml}, pattern: {pattern: '^x\\${2}$'}}}}
        - {name: Neg, schema: part.yaml}
routes: [{path: '/{tool}', upstream: none}]
""",
    )
    container = served["/{tool}"].tools["Math"].container
    assert container is not None
    assert [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/root"}, "pattern": {"pattern": r"^x\${2}$"}},
         "$defs": {"root": {"type": "number"}}},
        {"type": "number"},
    ] == [function.schema for function in container.functions]  # fmt: skip


def test_a_wrong_schema_of_a_function_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        routes(
            tmp_path,
            """\
version: 1
tools:
  Math: {container: {functions: [{name: Sub, schema: {type: strin}}]}}
routes: [{path: '/{tool}', upstream: none}]
""",
        )
    assert "3:61" in str(raised.value)
    assert "did you mean 'string'?" in str(raised.value)


def test_each_kind_of_route_finds_the_call_in_its_place(tmp_path: Path) -> None:
    served = routes(
        tmp_path,
        """\
version: 1
tools: {a: {schema: {}}}
routes:
  - {path: /a, upstream: none, tool: a}
  - {path: '/t/{tool}', upstream: none}
  - path: /d
    upstream: none
    dispatch: {tool: /f/name, arguments: /f/arguments, call_id: /id, arguments_encoding: json_string}
""",
    )
    shapes = [(route.adapter, route.shape) for route in served.values()]
    assert [("plain", "a", None), ("plain", None, "tool"), ("dispatch", None, None)] == [
        (adapter, shape.tool, shape.tool_param) for adapter, shape in shapes
    ]
    dispatch = served["/d"].shape
    assert (("f", "name"), ("f", "arguments"), ("id",), "json_string") == (
        dispatch.tool_pointer, dispatch.arguments_pointer, dispatch.call_id_pointer, dispatch.arguments_encoding,
    )  # fmt: skip


def test_a_cap_of_the_tools_own_goes_before_the_default_and_without_either_there_is_none() -> None:
    assert CallCap(5) == Caps(3, {"web_search": 5}).of("web_search")
    assert CallCap(3) == Caps(3, {"web_search": 5}).of("read_file")
    assert CallCap(None) == Caps(None, {"web_search": 5}).of("read_file")


def test_reads_how_strictly_dates_and_times_are_validated() -> None:
    assert (
        Formats(True, (("date-time", "rfc3339"), ("time", "iso8601")))
        == read_policy({"formats": {"date-time": "rfc3339"}}).formats
    )
    assert (
        Formats(True, (("date-time", "iso8601"), ("time", "off"))) == read_policy({"formats": {"time": False}}).formats
    )
    assert USUAL == read_policy({"formats": "on"}).formats == read_policy({"formats": {}}).formats
    assert NONE == read_policy({"formats": "off"}).formats
