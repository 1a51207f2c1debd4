"""`equals` of a rule: an argument that has to be a claim of its caller, in every form of the call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.cli.check import summarize
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.core.model.values import ABSENT
from proxy.extensions.access.access_section import read_allow
from proxy.extensions.access.core.access_rules import Identity, fits_arguments, fits_caller
from tests.extensions.access.issuer import guarded
from tests.extensions.access.test_access_config import HASH, MAIN, write
from tests.generated import examples

ROUTE = """
  - path: /files/{tool}
    upstream: tools
    tools: [find, drop]
    jwt: {}
    allow:
      - {tools: [find], equals: {tenant: org.id}}
      - tools: [drop]
        equals: {/filter/tenant: org.id, by: sub}
        arguments: {properties: {path: {pattern: "^/data/"}}}
"""
TOOLS = "{find: {schema: {type: object}}, drop: {schema: {type: object}}}"
OWN: Final = "acme"


def allows(place: str, value: Any, claims: Any = None) -> bool:
    """Returns whether a rule with `equals` allows arguments."""
    found = read_allow([{"equals": {place: "org"}}])
    assert found is not None
    held = {"org": OWN} if claims is None else claims
    return fits_caller(found[0], Identity(issuer="main", claims=held)) and fits_arguments(found[0], value, held)


@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_sends_only_calls_for_the_tenant_of_the_token(mode: str) -> None:
    cases: list[tuple[str, Any, int]] = [
        ("find", {"tenant": OWN}, 200),
        ("find", {"tenant": OWN, "more": [1]}, 200),
        ("find", {"tenant": "other"}, 403),
        ("find", {"tenant": [OWN]}, 403),
        ("find", {}, 403),
        ("find", {"tenant": OWN, "Tenant": "other"}, 403),
        ("drop", {"filter": {"tenant": OWN}, "by": "ada", "path": "/data/x"}, 200),
        ("drop", {"filter": {"tenant": OWN}, "by": "eve", "path": "/data/x"}, 403),
        ("drop", {"filter": {"tenant": OWN}, "by": "ada", "path": "/data/../x"}, 403),
        ("drop", {"filter": [{"tenant": OWN}], "by": "ada", "path": "/data/x"}, 403),
        ("drop", {"/filter/tenant": OWN, "by": "ada", "path": "/data/x"}, 403),
    ]
    async with guarded(
        ROUTE.replace("jwt: {}", f"jwt: {{}}\n    mode: {'report' if mode else 'enforce'}"), tools=TOOLS
    ) as there:
        token = there.issuer.sign(org={"id": OWN})
        seen = [
            (name, sent, (await there.call(token, body=json.dumps(sent).encode(), path=f"/files/{name}")).status)
            for name, sent, _ in cases
        ]
        assert cases == seen
        assert 3 == len(there.server.seen)
        for body in (b'{"tenant": "other", "tenant": "acme"}', b'{"t\\u0065nant": "other"}', b"{", b"[]", b'"acme"'):
            assert 400 <= (await there.call(token, body=body, path="/files/find")).status < 500
        held: list[dict[str, Any]] = [{}, {"org": OWN}, {"org": {"id": ""}}, {"org.id": {}}]
        for claims in held:
            own = json.dumps({"tenant": claims.get("org", {})}).encode()
            assert 403 == (await there.call(there.issuer.sign(**claims), body=own, path="/files/find")).status
        assert 3 == len(there.server.seen)


# --- generated --------------------------------------------------------------------------------------------------------
PLACES: Final = {
    "tenant": ["tenant"],
    "/tenant": ["tenant"],
    "/a/b": ["a", "b"],
    "/a~1b/c~0d": ["a/b", "c~d"],
    "a/b": ["a/b"],
}


def put(steps: list[str], value: Any) -> Any:
    for step in reversed(steps):
        value = {step: value}
    return value


def _list_forms(value: Any) -> Iterator[Any]:
    """Other values that a service may take for one."""
    yield from ([value], [[value]], {"x": value}, {str(value): value}, None, [], {}, True, 0)
    if isinstance(value, str):
        yield from (
            f" {value}",
            f"{value} ",
            f"{value}\0",
            value.upper(),
            f"/{value}",
            f"%{ord(value[0]):x}{value[1:]}",
            "",
        )
        yield from (f"x/../{value}", "".join(chr(ord(character) + 0xFEE0) for character in value), f"{value}\n", "*")
    if isinstance(value, int):
        yield from (str(value), float(value), value + 1, [value, value], f"{value}.0")


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(list(PLACES)), st.sampled_from([OWN, "/data/acme", "a b", 17, 2**70]))
def test_rejects_every_form_of_another_tenant(place: str, own: Any) -> None:
    steps, claims = PLACES[place], {"org": own}
    assert allows(place, put(steps, own), claims)
    assert allows(place, {**put(steps, own), "other": "x"}, claims)
    assert allows(place, put(steps, own), {"org": ["first", own, None]})
    for value in _list_forms(own):
        assert not allows(place, put(steps, value), claims), value
        assert not allows(place, put(steps, own), {"org": value}) or value in ([own], [own, own]), value
    for at, step in enumerate(steps):
        for twin in (step.upper(), step.title(), step.replace("t", "T")):
            if twin != step:
                respelt = [*steps[:at], twin, *steps[at + 1 :]]
                assert not allows(place, put(respelt, own), claims)
                both = {twin: put(steps[at + 1 :], "other"), step: put(steps[at + 1 :], own)}
                assert not allows(place, put(steps[:at], both), claims)
        lists = put(steps[:at], [put(steps[at:], own)])
        assert not allows(place, lists, claims)
    for other in ({}, ABSENT, own, [put(steps, own)], {str(own): steps[-1]}, {"x": put(steps, own)}):
        assert not allows(place, other, claims), other


@pytest.mark.parametrize("claim", [None, "", [], [""], [None], {"id": OWN}, [[OWN]], 1.5])
def test_a_claim_without_a_usable_value_fits_no_call_and_hides_the_tool(claim: Any) -> None:
    (rule,) = read_allow([{"equals": {"tenant": "org"}}]) or ()
    caller = Identity(issuer="main", claims={"org": claim})
    assert not fits_caller(rule, caller)
    assert not fits_caller(rule, Identity(token="ci"))
    assert not any(allows("tenant", {"tenant": value}, {"org": claim}) for value in (claim, OWN, "", None, [OWN]))


# --- the config -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("allow: [{equals: {a: sub}}]", "`equals` never holds on route '/a', which takes no signed tokens  (add `jwt"),
        (
            "jwt: {}, allow: [{when: {token: ci}, equals: {a: sub}}]",
            "a token of `auth.bearer` has no claims for `equals`",
        ),
        (
            "jwt: {}, allow: [{equals: {'/a~2': sub}}]",
            "'/a~2' is no place of an argument  (write the name of an argument",
        ),
        ("jwt: {}, allow: [{equals: {'': sub}}]", "'' is no place of an argument"),
        ("jwt: {}, allow: [{equals: {a: ''}}]", "a"),
        ("jwt: {}, allow: [{equals: {}}]", "equals"),
        ("jwt: {}, allow: [{equals: sub}]", "equals"),
    ],
)
def test_reports_a_mistake_with_its_line_and_a_remedy(tmp_path: Path, rules: str, message: str) -> None:
    auth = f"auth: {{bearer: {{ci: 'sha256:{HASH}'}}}}, "
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, MAIN, auth + rules), {})
    lines = list(map(str, raised.value.mistakes))
    assert all(line.startswith(f"{tmp_path}/config.yaml:5:") for line in lines), lines
    assert any(message in line for line in lines), lines


def test_rejects_equals_on_a_passthrough_route(tmp_path: Path) -> None:
    path = write(tmp_path, MAIN, "jwt: {}, allow: [{equals: {a: sub}}]")
    path.write_text(path.read_text().replace("tool: a, schema: {type: object}", "passthrough: true"))
    with pytest.raises(ConfigError, match="`equals` means nothing on route '/a': no call is read there"):
        load(path, {})


def test_check_shows_the_claim_that_an_argument_equals(tmp_path: Path) -> None:
    rules = "jwt: {}, allow: [{equals: {a: sub, /b/c: org.id}}, {equals: {a: sub}, arguments: {properties: {p: {}}}}]"
    lines = summarize(load(write(tmp_path, MAIN, rules), {}), "config.yaml")
    at = lines.index("who may call what:")
    assert [
        "  /a     rule-1  signed by main  every tool  a = its claim sub, b/c = its claim org.id",
        "  /a     rule-2  signed by main  every tool  arguments that fit: p, a = its claim sub",
    ] == lines[at + 2 : at + 4]
