"""The keys for limits on calls, and the reports of limits that cannot be kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.access.limiter import ConcurrentLimit, CountedBy, RateLimit

ROUTE = "{path: /t, upstream: tools, tool: t, schema: {type: object}"


def read(folder: Path, limits: str, more: str = "", tail: str = "") -> Mapping[str, object] | None:
    path = folder / "config.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{tools: {{url: 'http://127.0.0.1:9'}}}}\n{more}\n"
        f"routes:\n  - {ROUTE}, limits: {limits}{tail}}}\n"
    )
    return load(path, {}).config.routes[0].tools["t"].policy.limits


def test_a_limit_has_defaults(tmp_path: Path) -> None:
    rate = RateLimit(60, 60.0, 60, (CountedBy.CALLER,), "route /t", "caller")
    under_way = ConcurrentLimit(2, (CountedBy.CALLER,), "route /t")

    found = read(tmp_path, "{rate: {calls: 60}, concurrent: {calls: 2}}")
    assert {"rate": (rate,), "concurrent": (under_way,)} == found


def test_the_limits_nearest_to_the_request_take_the_place_of_the_others(tmp_path: Path) -> None:
    outer = "defaults: {limits: {rate: [{calls: 9}, {calls: 99, per: 1h}], concurrent: {calls: 3}, body: 2MiB}}"
    tool = RateLimit(5, 1.0, 2, (CountedBy.TOOL, CountedBy.ADDRESS), "route /t", "tool-address")
    default = ConcurrentLimit(3, (CountedBy.CALLER,), "defaults")

    found = read(tmp_path, "{rate: {calls: 5, per: 1s, burst: 2, by: [tool, address]}}", outer)
    assert {"rate": (tool,), "concurrent": (default,)} == found
    assert {"concurrent": (default,)} == read(tmp_path, "{rate: off}", outer)
    assert read(tmp_path, "{rate: off, concurrent: off}", outer) is None


@pytest.mark.parametrize(
    ("limits", "message", "hint"),
    [
        ("{rate: {calls: 0}}", "`calls` expects a whole number from 1 to 1000000", "leave the tool out"),
        ("{rate: {calls: 5, burst: 0}}", "`burst` expects a whole number from 1", "this is 0"),
        ("{rate: {per: 1m}}", "'calls' is missing", "How many calls are let through in each"),
        ("{rate: {calls: 5, per: 0}}", "`per` is a time from 1s to 744h", "`caps`"),
        ("{rate: {calls: 5, per: 100000h}}", "`per` is a time from 1s to 744h", "`caps`"),
        ("{rate: {calls: 1000000, per: 1s}}", "`calls` is at most 10,000 a second", "drop it"),
        ("{rate: {calls: 1, per: 24h, burst: 1000}}", "takes more than 31 days to come back", "lower `burst`"),
        ("{rate: {calls: 5, by: planet}}", "expects", "caller"),
        ("{rate: 5}", "`rate` expects `{calls: 60, per: 1m}`", "this is 5"),
        ("{concurrent: {calls: 0}}", "`calls` expects a whole number from 1", "leave the tool out"),
    ],
)
def test_rejects_an_unusable_limit_with_its_line_and_a_remedy(
    tmp_path: Path, limits: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, limits)

    (line,) = str(caught.value).splitlines()
    assert ":5:" in line
    assert message in line
    assert hint in line


def test_rejects_a_limit_without_effect_on_a_passthrough_route(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "version: 1\nupstreams: {tools: {url: 'http://127.0.0.1:9'}}\n"
        "routes:\n  - {path: /t, upstream: tools, passthrough: true, limits: {rate: {calls: 1}}}\n"
    )
    with pytest.raises(ConfigError, match=r":4:\d+ .*`limits.rate` has no effect on a passthrough route.*drop it"):
        load(path, {})


def test_several_workers_share_no_rates_in_memory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 workers do not share"):
        read(tmp_path, "{rate: {calls: 5}}", "workers: 2", ", mode: report")
