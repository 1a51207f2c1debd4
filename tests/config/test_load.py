"""The whole config: every kind of mistake at its exact place, all of them at once, and what a right one gives."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config.files.yaml12 import read_yaml
from proxy.config.load import Loaded, load
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import Address, AdminConfig
from proxy.core.json.jsontext import dumps, walk
from proxy.core.model.values import JsonValue
from proxy.core.schema.formats import NONE
from proxy.plugins import list_plugins
from proxy.routing import build_routes
from tests.generated import examples

ROOT = Path(__file__).parents[2]

HEAD = """\
version: 1
upstreams:
  tools: {url: http://127.0.0.1:9101}
tools:
  weather: {schema: {type: object}}
"""


def loaded(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> Loaded:
    (tmp_path / "c.yaml").write_text(text)
    return load(tmp_path / "c.yaml", environ or {})


def list_cases() -> list[Any]:
    """The collection of mistakes: the main job's, and those of each extension. A case may need another extension."""
    folder = Path(__file__).parent
    files = [folder / "mistakes.yaml", *sorted((folder.parent / "extensions").glob("*/mistakes.yaml"))]
    installed = {plugin.name for plugin in list_plugins()}
    cases = [case for path in files for case in read_yaml(path.read_bytes()).value]
    return [case for case in cases if case.get("needs", "") in ("", *installed)]


def mistakes(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, environ)
    return [str(mistake).removeprefix(f"{tmp_path}/") for mistake in caught.value.mistakes]


CASES = list_cases()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_kind_of_mistake_has_its_place_and_its_remedy(tmp_path: Path, case: dict[str, str]) -> None:
    found = mistakes(tmp_path, HEAD + case["below"] if "below" in case else case["whole"])
    assert 1 == len(found), found
    assert case["told"] == found[0][: len(case["told"])]


def test_a_config_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config: No such file or directory"):
        load(tmp_path / "no.yaml", {})


def test_orders_mistakes_at_one_place_as_the_config_does(tmp_path: Path) -> None:
    """Sets have another order in each process, which must not reach what is shown."""
    (tmp_path / "s.json").write_text('{"properties": {"a": {"type": "strin"}}}')
    names = ["f", "b", "d", "a", "e", "c"]
    tools = "".join(f"  {name}: {{schema: s.json}}\n" for name in names)
    found = mistakes(tmp_path, f"version: 1\ntools:\n{tools}routes: [{{path: '/{{tool}}', upstream: none}}]\n")
    assert [f"tool '{name}'" for name in names] == [each.split("  ")[1] for each in found]


def test_reports_all_mistakes_at_once(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """\
version: 1
listen: 8080
upstreams:
  tools: {url: "http://127.0.0.1:9101", timeouts: {conect: 2s}}
  empty: {}
defaults:
  repair: standart
  headers: {set: {X: "${NO_SUCH}"}}
tools:
  broken: {schema: {type: strng}}
  bare: {}
routes:
  - {path: /a, upstream: empty, tool: bare, retires: 3}
  - {path: /b, upstream: nobody, tool: other}
  - {path: /a, upstream: tools, tool: broken}
  - {tool: bare}
""",
    )
    expected = [
        "2:9  listen  `listen` expects",
        "4:52  upstream 'tools'  unknown key 'conect'",
        "5:3  upstream 'empty'  'url' is missing",
        "7:11  defaults  `repair` expects",
        "8:22  defaults  the environment variable NO_SUCH is not set",
        "10:27  tool 'broken'  the schema does not compile",
        "11:3  tool 'bare'  the tool 'bare' has no schema",
        "13:45  route '/a'  unknown key 'retires'",
        "14:26  route '/b'  unknown upstream 'nobody'",
        "14:40  route '/b'  the tool 'other' has no schema",
        "15:12  route '/a'  POST /a is served already",
        "16:5  route number 4  'path' is missing",
        "16:5  route number 4  'upstream' is missing",
    ]
    assert len(expected) == len(found)
    assert expected == [line.removeprefix("c.yaml:")[: len(start)] for line, start in zip(found, expected, strict=True)]


def test_a_wrong_key_does_not_make_its_absence_a_second_mistake(tmp_path: Path) -> None:
    text = HEAD + "routes: [{path: /a, upstream: 7, tool: x, schema: 3}]"
    assert ["c.yaml:6:31", "c.yaml:6:51"] == [line.split("  ")[0] for line in mistakes(tmp_path, text)]


def test_the_least_config_has_the_documented_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, "version: 1\nroutes: {/a: {upstream: none, tool: x, schema: {}}}").config
    assert (Address("127.0.0.1", 8080), AdminConfig(Address("127.0.0.1", 8081)), 25.0) == (
        config.listen.address, config.admin, config.drain,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("'[::1]:81'", Address("::1", 81)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("unix:/run/x.sock", Address(unix="/run/x.sock")),
        ("{port: 81}", Address("127.0.0.1", 81)),
        ("{unix: /x}", Address(unix="/x")),
    ],
)
def test_an_address_has_three_spellings(tmp_path: Path, written: str, address: Address) -> None:
    text = f"version: 1\nlisten: {written}\nroutes: {{/a: {{upstream: none, tool: x, schema: {{}}}}}}"
    config = loaded(tmp_path, text).config
    assert (address.host, address.unix) == (config.listen.host, config.listen.unix)
    assert address.port == config.listen.port or address.unix


def test_the_admin_port_can_be_off_and_says_when_it_is_exposed(tmp_path: Path) -> None:
    tail = "\nroutes: {/a: {upstream: none, tool: x, schema: {type: object}}}"
    assert loaded(tmp_path, "version: 1\nadmin: off" + tail).config.admin is None
    exposed = loaded(tmp_path, "version: 1\nadmin: {listen: '0.0.0.0:8081', console: off}" + tail).config
    assert (
        "admin: 0.0.0.0:8081 is not a loopback address; whoever reaches it can see and reset state",
    ) == exposed.notes
    assert mistakes(tmp_path, "version: 1\nadmin: {listen: '0.0.0.0:8081'}" + tail) == [
        "c.yaml:2:8  admin  the console at 0.0.0.0:8081 would be open to whoever reaches it  "
        "(add `token`, listen on 127.0.0.1, or say `console: off`)"
    ]


def test_numbers_and_switches_can_come_from_the_environment(tmp_path: Path) -> None:
    text = (
        HEAD + "routes: [{path: /a, upstream: tools, tool: weather, attempts: {max: '${MAX}'}, formats: '${F:-off}'}]"
    )
    tool = loaded(tmp_path, text, {"MAX": "5"}).config.routes[0].tools["weather"]
    assert (5, NONE) == (tool.policy.attempts.max_attempts, tool.policy.formats)
    assert mistakes(tmp_path, text, {"MAX": "many"}) == [
        "c.yaml:6:69  route '/a'  `max` expects a whole number of at least 1; this is \"${MAX}\""
    ]


SECRET = "s3cr3t-v4lue"


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    text = """\
version: 1
upstreams: {tools: {url: "http://127.0.0.1:1/${T}", headers: {set: {authorization: "Bearer ${file:token}"}}}}
defaults: {headers: {set: {x-a: "${T}"}}}
routes: [{path: /a, upstream: tools, tool: x, schema: {}, headers: {set: {x-b: "${T}", x-c: literal-value}}}]
"""
    result = loaded(tmp_path, text, {"T": SECRET})
    table = build_routes(result.config)
    shown = (
        repr(result)
        + repr(result.config)
        + repr(table.routes)
        + repr(result.config.written)
        + repr(result.config.upstreams)
    )
    assert SECRET not in shown
    assert "literal-value" not in shown
    assert {"x-b": "${T}", "x-c": "***"} == result.config.written["routes"][0]["headers"]["set"]
    headers = dict(table.routes[0].headers_set)
    assert {"authorization": f"Bearer {SECRET}", "x-a": SECRET, "x-b": SECRET, "x-c": "literal-value"} == headers
    assert [str] * 4 == [type(value) for value in headers.values()]
    assert f"http://127.0.0.1:1/{SECRET}" == result.config.upstreams["tools"].url


def test_no_secret_is_shown_by_a_mistake(tmp_path: Path) -> None:
    text = (
        HEAD.replace("http://127.0.0.1:9101", "'${T}'")
        + "routes: [{path: '${T}', upstream: '${T}', tool: '${T}', mode: '${T}'}, "
        + "{path: /a, upstream: '${T}', tool: '${T}'}]"
    )
    assert [] == [line for line in mistakes(tmp_path, text, {"T": SECRET}) if SECRET in line]


def test_every_file_read_is_listed_and_the_digest_follows_their_contents(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("$ref: sub/t.json")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/t.json").write_text('{"type": "object"}')
    (tmp_path / "token").write_text("x")
    text = (
        'version: 1\nupstreams: {u: {url: "http://h", headers: {set: {a: "${file:token}"}}}}\n'
        "routes: {/a: {upstream: u, tool: x, schema: s.yaml}}"
    )
    first = loaded(tmp_path, text)
    assert {"c.yaml", "token", "s.yaml", "sub/t.json"} == {str(path.relative_to(tmp_path)) for path in first.files}
    assert first.digest == loaded(tmp_path, text).digest
    (tmp_path / "sub/t.json").write_text('{"type": "string"}')
    assert first.digest != loaded(tmp_path, text).digest


def test_notes_unused_and_unguarded_parts(tmp_path: Path) -> None:
    text = """\
version: 1
upstreams: {tools: {url: http://h}, idle: {url: http://h}}
tools:
  a: {schema: {properties: {n: {type: float}, p: {pattern: "(?=x)"}}}, repair: off}
  lost: {schema: {}}
routes:
  - {path: /a, upstream: tools, tool: a, repair: lenient, mode: report}
  - {path: /b, upstream: tools, tool: b, validation: off}
"""
    assert {
        "upstream 'idle' is used by no route",
        "tool 'lost' can be called by no route",
        "route '/a': its `repair` overrides that of tool 'a'",
        "tool 'a': /properties/n: type 'float' read as 'number'",
        "tool 'a': a pattern needs backtracking: it is matched with a bounded number of steps",
        "route '/a': report only, invalid calls of tool 'a' go through",
        "route '/b': calls of tool 'b' are not judged (validation: off)",
    } == set(loaded(tmp_path, text).config.notes)


@pytest.mark.parametrize(
    ("policy", "notes"),
    [
        (
            "attempts: {block: hard}, caps: {default: 2}",
            {
                "route '/b': without a conversation id, `block: hard` of tool 'b' refuses nothing "
                "(attempts.address: count changes that)",
                "route '/b': without a conversation id, the cap of tool 'b' does nothing "
                "(caps.by_address: on changes that)",
            },
        ),
        ("attempts: {block: hard, address: count}, caps: {default: 2, by_address: on}", set()),
        ("attempts: {block: soft}", set()),
    ],
)
def test_notes_policies_without_effect_when_there_is_no_conversation_id(
    tmp_path: Path, policy: str, notes: set[str]
) -> None:
    text = f"""\
version: 1
upstreams: {{tools: {{url: http://h}}}}
defaults: {{conversation: [{{header: X-C}}, address], {policy}}}
routes:
  - {{path: /b, upstream: tools, tool: b, schema: {{}}}}
"""
    assert notes == {note for note in loaded(tmp_path, text).config.notes if "without a conversation id" in note}


def test_routes_can_be_a_mapping_from_path(tmp_path: Path) -> None:
    routes = "routes:\n  /a: {upstream: tools, tool: weather}\n  /b: {upstream: none, tool: weather}"
    config = loaded(tmp_path, HEAD + routes)
    assert [("/a", "call"), ("/b", "validate")] == [(route.path, route.kind) for route in config.config.routes]


def test_a_json_file_is_a_config_too(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(
        '{"version": 1,\n "routes": {"/a": {"upstream": "none", "tool": "x", "schema": {}, "mod": 1}}}'
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.json", {})
    assert [(2, 67, "unknown key 'mod'")] == [(one.line, one.column, one.message) for one in caught.value.mistakes]


BROKEN_VALUES: st.SearchStrategy[JsonValue] = st.sampled_from(
    [
        None,
        True,
        7,
        -1,
        "",
        "x",
        "off",
        "${T}",
        "${NO_SUCH}",
        [],
        [{}],
        {},
        {"a": {}},
        {"openapi": "x"},
        [None],
        "{tool}",
    ]
)


@pytest.mark.large
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_reports_any_broken_config_with_a_place_and_raises_nothing_else(tmp_path: Path, data: st.DataObject) -> None:
    value = read_yaml((ROOT / "config.example.yaml").read_bytes()).value
    for _ in range(data.draw(st.integers(1, 4))):
        _break(value, data)
    (tmp_path / "c.json").write_bytes(dumps(value))
    (tmp_path / "schemas").symlink_to(ROOT / "schemas") if not (tmp_path / "schemas").exists() else None
    told = _told(tmp_path / "c.json")
    assert [] == [mistake for mistake in told if mistake.line < 1 or mistake.column < 1 or not mistake.message]


def _told(path: Path) -> tuple[Mistake, ...]:
    """The mistakes of a config; none where it can be served."""
    try:
        build_routes(load(path, {"T": "text"}).config)
    except ConfigError as error:
        return error.mistakes or (Mistake("", 0, 0, "", ""),)
    return ()


def _break(value: JsonValue, data: st.DataObject) -> None:
    """Replaces, removes or adds one thing somewhere in the value."""
    places: list[tuple[Any, Any]] = [
        (holder, key) for holder in walk(value) if isinstance(holder, dict | list) for key in _steps(holder)
    ]
    holder, key = data.draw(st.sampled_from(places))
    what = data.draw(st.sampled_from(["replace", "remove", "add"]))
    if what == "remove":
        del holder[key]
    elif what == "add" and isinstance(holder, dict):
        holder[
            data.draw(
                st.sampled_from(["x", "tool", "dispatch", "schema", "container", "passthrough", "tools", "repair"])
            )
        ] = deepcopy(data.draw(BROKEN_VALUES))
    else:
        holder[key] = deepcopy(data.draw(BROKEN_VALUES))


def _steps(holder: JsonValue) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def test_the_example_runs_as_it_is() -> None:
    result = load(ROOT / "config.example.yaml", {})
    assert ((), 14) == (result.config.notes, len(build_routes(result.config).routes))
    assert "http://127.0.0.1:9101" == result.config.upstreams["samples"].url


def test_reports_all_errors_of_a_route_without_a_path(tmp_path: Path) -> None:
    text = """version: 1
upstreams: {tools: {url: http://h}}
routes:
  - {upstream: tols, tool: a, schema: {type: objekt}, timeout: soon}
  - {path: b, upstream: tools, tool: b}
  - {upstream: tools, tool: c, validation: off}
"""
    found = mistakes(tmp_path, text)
    assert 7 == len(found), found
    for line, words in [
        (4, "'path' is missing"), (4, "unknown upstream 'tols'"), (4, "the schema does not compile"),
        (4, "`timeout` expects a time"), (5, "`path` expects a path"), (5, "the tool 'b' has no schema"),
        (6, "'path' is missing"),
    ]:  # fmt: skip
        assert any(each.startswith(f"c.yaml:{line}:") and words in each for each in found), words
