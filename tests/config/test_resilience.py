"""Breaker, bound, budget and resends: from the config's keys to the rules that decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.model import Config
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.contract.policy import ResendPolicy, ToolPolicy, UpstreamErrors
from proxy.core.tool_errors.backoff import BudgetPolicy
from proxy.core.tool_errors.circuit_breaker import BreakerPolicy, ConcurrencyPolicy, GuardPolicy
from proxy.routing import build_routes
from tests.docs.config_page import list_all_keys


def config(folder: Path, upstream: str = "", route: str = "", defaults: str = "", tool: str = "") -> Config:
    (folder / "c.yaml").write_text(
        f"""
version: 1
upstreams: {{u: {{url: "http://h"{upstream}}}}}
defaults: {{{defaults}}}
tools: {{t: {{schema: {{}}{tool}}}}}
routes: {{/t: {{upstream: u, tool: t{route}}}}}
"""
    )
    return load(folder / "c.yaml", {}).config


def guard(folder: Path, text: str) -> GuardPolicy:
    return config(folder, upstream=f", {text}").upstreams["u"].guard


def policy(folder: Path, **places: str) -> ToolPolicy:
    written = {place: text if place == "defaults" else f", {text}" for place, text in places.items()}
    return build_routes(config(folder, **written)).routes[0].tools["t"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("timeouts: {}", GuardPolicy()),
        ("breaker: off", GuardPolicy()),
        ("breaker: on", GuardPolicy(BreakerPolicy())),
        ("breaker: {}", GuardPolicy(BreakerPolicy())),
        (
            "breaker: {failures: 3, percent: 50, window: 1m, calls: 7, open: 500ms, probes: 2}",
            GuardPolicy(BreakerPolicy(3, 0.5, 60.0, 7, 0.5, 2)),
        ),
        ("concurrency: 5", GuardPolicy(concurrency=ConcurrencyPolicy(5))),
        ("concurrency: {limit: 5, wait: 0, queue: 0}", GuardPolicy(concurrency=ConcurrencyPolicy(5, 0.0, 0))),
        ("resend_budget: {percent: 12.5, per_second: 0}", GuardPolicy(budget=BudgetPolicy(0.125, 0.0))),
    ],
)
def test_reads_the_guard_of_an_upstream(tmp_path: Path, text: str, expected: GuardPolicy) -> None:
    assert expected == guard(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("description: ''", ResendPolicy()),
        ("idempotent: on", ResendPolicy(idempotent=True)),
        ("idempotency: {mint: on}", ResendPolicy(key_header="idempotency-key", mint_key=True)),
        ("idempotency: {header: X-Key}", ResendPolicy(key_header="x-key")),
        ("idempotency: {mint: off}", ResendPolicy()),
        (
            "resend: {max: 0, backoff: 1ms, max_backoff: 2s, deadline: 1m, on_retry_after: on}",
            ResendPolicy(0, 0.001, 2.0, 60.0, True),
        ),
        ("resend: {deadline: 0.5s}", ResendPolicy(deadline=0.5)),
        ("resend: {deadline: 0.25}", ResendPolicy(deadline=0.25)),
    ],
)
def test_when_a_tools_calls_may_be_sent_again(tmp_path: Path, text: str, expected: ResendPolicy) -> None:
    assert expected == policy(tmp_path, tool=text).resend


def test_a_routes_keys_are_laid_over_those_of_tool_and_defaults(tmp_path: Path) -> None:
    made = policy(
        tmp_path,
        defaults="resend: {max: 5, backoff: 1s}, upstream_errors: passthrough, wrap_success: on",
        tool="idempotent: on, resend: {max: 4}",
        route="resend: {on_retry_after: on}, upstream_errors: explain",
    )

    assert ResendPolicy(4, 1.0, on_retry_after=True, idempotent=True) == made.resend
    assert (UpstreamErrors.EXPLAIN, True) == (made.upstream_errors, made.wrap_success)


@pytest.mark.parametrize(
    ("upstream", "route", "said"),
    [
        (", breaker: often", "", "`breaker` expects on, off, or a mapping of failures"),
        (", breaker: {failures: 0}", "", "`failures` expects a whole number of at least 1"),
        (", breaker: {percent: 101}", "", "`percent` expects a percentage above 0 and at most 100"),
        (", concurrency: {wait: 1s}", "", "'limit' is missing"),
        (", concurrency: 0", "", "`concurrency` expects a whole number of at least 1"),
        ("", ", resend: {max: 11}", "`max` expects a whole number"),
        ("", ", resend: {tries: 2}", "unknown key 'tries'"),
        ("", ", resend: {deadline: 0}", "`deadline` expects a time above 0 such as 30s"),
        ("", ", resend: {deadline: 0.0s}", "`deadline` expects a time above 0 such as 30s"),
        ("", ", upstream_errors: hide", "`upstream_errors` expects 'explain', 'passthrough' or 'outages'"),
    ],
)
def test_a_mistake_says_what_is_expected(tmp_path: Path, upstream: str, route: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(tmp_path, upstream, route)

    assert said in str(error.value)


def test_they_have_no_effect_on_a_passthrough_route(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "version: 1\nupstreams: {u: {url: 'http://h'}}\n"
        "routes: {/t: {upstream: u, passthrough: true, idempotent: on, wrap_success: on}}"
    )
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "c.yaml", {})

    assert [
        "`idempotent` has no effect on a passthrough route",
        "`wrap_success` has no effect on a passthrough route",
    ] == [mistake.message for mistake in error.value.mistakes]


def test_the_documented_defaults_are_those_of_the_rules() -> None:
    documented = {key: schema["default"] for key, schema in list_all_keys().items() if "default" in schema}
    breaker, budget, resend = BreakerPolicy(), BudgetPolicy(), ResendPolicy()
    at = "upstreams.NAME."

    assert {
        at + "breaker.failures": breaker.failures,
        at + "breaker.calls": breaker.calls,
        at + "breaker.probes": breaker.probes,
        at + "resend_budget.percent": budget.ratio * 100,
        at + "resend_budget.per_second": budget.per_second,
        "resend.max": resend.max_resends,
    }.items() <= documented.items()
    assert [breaker.window, breaker.open_for, ConcurrencyPolicy(1).wait, resend.backoff, resend.max_backoff] == [
        read_seconds(documented[key])
        for key in (at + "breaker.window", at + "breaker.open", at + "concurrency.wait", "resend.backoff",
                    "resend.max_backoff")
    ]  # fmt: skip
    assert [resend.on_retry_after, resend.idempotent, resend.mint_key] == [
        read_switch(documented[key]) for key in ("resend.on_retry_after", "idempotent", "idempotency.mint")
    ]
