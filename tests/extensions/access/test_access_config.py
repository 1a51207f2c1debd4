"""The keys of access: mistakes are reported with their places, and `check` shows who may call what."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from proxy.cli.check import summarize
from proxy.config.load import load
from proxy.config.mistakes import ConfigError

HASH = hashlib.sha256(b"x").hexdigest()
MAIN = "access: {issuers: {main: {issuer: 'https://login.example', audience: tools}}}"


def write(folder: Path, top: str, route: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{tools: {{url: http://127.0.0.1:9}}}}\n{top}\n"
        f"routes:\n  - {{path: /a, upstream: tools, tool: a, schema: {{type: object}}, {route}}}\n"
    )
    return path


@pytest.mark.parametrize(
    ("top", "route", "told"),
    [
        (MAIN, "jwt: {issuers: [mian]}", "unknown issuer 'mian'  (did you mean 'main'?)"),
        ("", "jwt: {}", "takes signed tokens, and no issuer is known  (add `access: {issuers:"),
        (MAIN, "allow: [{when: {scope: x}}]", "`scope` never holds on route '/a', which takes no signed tokens"),
        (MAIN, "allow: [{when: {claims: {a: b}}}]", "`claims` never holds"),
        (MAIN, "allow: [{when: {token: ci}}]", "route '/a' knows no token 'ci'  (add it to `auth.bearer`)"),
        (MAIN, "jwt: {}, allow: [{when: {token: ci, scope: x}}]", "a token of `auth.bearer` has no `scope`"),
        (MAIN, "allow: [{when: {certificate: 'CN:a'}}]", "no client needs a certificate"),
        (MAIN, "allow: [{arguments: {properties: {a: {type: strng}}}}]", "no usable schema"),
        (MAIN, "allow: [{arguments: {pattern: '('}}]", "no usable schema"),
        (MAIN, "allow: [{arguments: {properties: {a: {patern: x}}}}]", "unknown keyword 'patern'"),
        (MAIN, "allow: [{arguments: {properties: {a: {not: {anyOf: [{const: 1}]}}}}}]", "get past `anyOf` in `not`"),
        (MAIN, "allow: [{arguments: {if: {$ref: '#/$defs/a'}, $defs: {a: {}}}}]", "get past `$ref` in `if`"),
        (MAIN, "allow: [{arguments: {patternProperties: {^a: {}}}}]", "keys that fit none of the patterns"),
        (MAIN, "allow: [{arguments: {$ref: '#/not', not: {}}}]", "a rule cannot follow this `$ref`"),
        (MAIN, "allow: [{when: {}}]", "when"),
        (MAIN, "allow: []", "allow"),
        (MAIN, "allow: [{deny: x}]", "unknown key 'deny'"),
        (MAIN, f"jwt: {{}}, auth: {{bearer: ['sha256:{HASH}'], forward: on}}", "`auth` and `jwt` disagree"),
        (MAIN.replace("https", "http"), "jwt: {}", "keys are fetched without TLS  (use https"),
        (re.sub("'?https://[^ ,']*'?", "'https://['", MAIN, count=1), "jwt: {}", "no http or https URL  (such as"),
        (MAIN.replace("tools}", "tools, algorithms: [HS256]}"), "jwt: {}", "expects 'RS256'"),
        (MAIN.replace("tools}", "tools, algorithms: [none]}"), "jwt: {}", "expects 'RS256'"),
        (MAIN.replace(", audience: tools", ""), "jwt: {}", "'audience' is missing"),
        (MAIN.replace("tools}", "tools, max_age: 1m}"), "jwt: {}", "keys would expire before"),
        ("access: {url: 'https://a.example/path'}", "jwt: {}", "a URL without a path"),
    ],
)
def test_reports_a_mistake_with_its_line_and_the_fix(tmp_path: Path, top: str, route: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, top, route), {})
    lines = list(map(str, raised.value.mistakes))
    assert all(re.match(rf"{tmp_path}/config.yaml:[35]:\d+  ", line) for line in lines), lines
    assert any(told in line for line in lines), lines


def test_an_issuer_that_is_no_url_is_one_mistake(tmp_path: Path) -> None:
    top = "access: {issuers: {a: {issuer: 'urn:a', audience: tools}, b: {issuer: 'urn:b', audience: tools}}}"
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, top, "jwt: {}"), {})
    assert [f'`issuer` expects a URL; this is "urn:{name}"' for name in "ab"] == [
        mistake.message for mistake in raised.value.mistakes
    ]


def test_rejects_rules_about_tools_on_a_passthrough_route(tmp_path: Path) -> None:
    path = write(tmp_path, MAIN, "allow: [{tools: [a]}]")
    path.write_text(path.read_text().replace("tool: a, schema: {type: object}", "passthrough: true"))
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert ["`tools` means nothing on route '/a': no call is read there"] == [
        mistake.message for mistake in raised.value.mistakes
    ]


def test_an_mcp_route_says_where_clients_reach_it(tmp_path: Path) -> None:
    path = write(tmp_path, MAIN, "jwt: {}")
    path.write_text(path.read_text().replace("tool: a, schema: {type: object}", "protocol: mcp"))
    with pytest.raises(ConfigError) as raised:
        load(path, {})
    assert ["clients of an MCP route cannot find the issuer of its tokens"] == [
        mistake.message for mistake in raised.value.mistakes
    ]


def test_a_pattern_with_a_dollar_is_no_reference(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, "", "allow: [{arguments: {properties: {a: {pattern: '^${x}$'}}}}]"), {})
    (rule,) = loaded.config.routes[0].policy.added["allow"]
    schema = {"type": "object", "properties": {"a": {"pattern": "^${x}$", "type": ["string"]}}, "required": ["a"]}
    assert schema == rule.arguments[0].root.raw


def test_check_shows_in_one_table_who_may_call_what(tmp_path: Path) -> None:
    rules = (
        "allow: [{when: {scope: [a, b], claims: {groups: [x, 1]}}, tools: [a], arguments: {properties: {p: {}}}}, "
        "{name: own, when: {token: ci}}]"
    )
    path = write(tmp_path, MAIN, f"jwt: {{}}, auth: {{bearer: {{ci: 'sha256:{HASH}'}}}}, {rules}")
    path.write_text(path.read_text() + "  - {path: /b, upstream: tools, tool: b, schema: {type: object}, jwt: {}}\n"
                    "  - {path: /c, upstream: tools, passthrough: true}\n")  # fmt: skip
    lines = summarize(load(path, {}), "config.yaml")
    at = lines.index("who may call what:")
    assert (
        """\
  route  rule    who                                 may call           with
  /a     rule-1  scope a and b, claim groups=x or 1  a                  arguments that fit: p
  /a     own     token ci                            every tool         any arguments
  /b     -       signed by main                      every tool         any arguments
  /c     -       anybody                             whatever it sends  -
""".splitlines()
        == lines[at + 1 : at + 6]
    )
