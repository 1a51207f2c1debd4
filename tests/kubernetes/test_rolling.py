"""Reload instead of roll: a pod's checksum changes when a running proxy cannot take over the change, and only then."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from proxy.config.load import load
from proxy.plugin import AddsKeys
from proxy.plugins import find_plugins
from proxy.server import reload
from proxy.server.reload import list_restart_sections
from tests.kubernetes.rendering import CHART, files_of, pod_of, render

pytestmark = pytest.mark.large


def pod(**values: Any) -> Any:
    """The whole pod template: any difference in it rolls the pods."""
    return pod_of(render("tool", **values))


def checksum(**values: Any) -> dict[str, str]:
    annotations: dict[str, str] = pod_of(render("tool", **values))["metadata"]["annotations"]
    return {key: value for key, value in annotations.items() if key.startswith("checksum/")}


LIVE: list[dict[str, Any]] = [
    {"config__defaults": {"repair": "off"}},
    {"config__upstreams": {"tool": {"timeouts": {"response": "9s"}}}},
    {"config__upstreams": {"tool": {"timeouts": {"response": "4m"}}}},
    {"config__defaults": {"timeout": "45s"}},
    {"config__upstreams": {"tool": {"timeouts": {"connect": "1s"}}, "other": {"url": "http://other"}}},
    {"config__correction": {"upstream": "tool", "model": "m"}},
    {"config__tools": {"other": {"schema": "schemas/weather.yaml"}}},
    {"config__telemetry": {"log": {"level": "debug"}}},
    {"schemas": {"weather.yaml": "type: object"}},
    {"schemas": {"other.yaml": "type: object"}, "config__tools": {"other": {"schema": "schemas/other.yaml"}}},
    {"reload__interval": "5s"},
]
STATIC: list[dict[str, Any]] = [
    {"config__state": {"max_keys": 5}},
    {"config__workers": 2},
    {"config__telemetry": {"log": {"format": "console"}}},
    {"config__listen": {"hosts": ["tools.example.com"]}},
    {"ports__calls": 8081},
]


@pytest.mark.parametrize("values", LIVE, ids=str)
def test_a_live_section_rolls_no_pod(values: dict[str, Any]) -> None:
    assert pod() == pod(**values)
    assert {"checksum/static"} == set(checksum())


@pytest.mark.parametrize("values", STATIC, ids=str)
def test_a_section_that_needs_a_restart_rolls_the_pods(values: dict[str, Any]) -> None:
    assert checksum()["checksum/static"] != checksum(**values)["checksum/static"]


@pytest.mark.parametrize("values", [LIVE[0], LIVE[4], STATIC[0]], ids=str)
def test_without_reload_every_change_rolls_the_pods(values: dict[str, Any]) -> None:
    off = {"reload__enabled": False}
    assert {"checksum/config"} == set(checksum(**off))
    assert checksum(**off)["checksum/config"] != checksum(**off, **values)["checksum/config"]


def test_the_config_says_how_it_is_reloaded() -> None:
    assert {"interval": "2s"} == yaml.safe_load(files_of(render("tool"))["config.yaml"])["reload"]
    assert "off" == yaml.safe_load(files_of(render("tool", reload__enabled=False))["config.yaml"])["reload"]


def test_the_chart_and_the_proxy_agree_on_what_needs_a_restart(tmp_path: Any) -> None:
    """Each change above, as the proxy itself sees it."""

    def loaded(**values: Any) -> Any:
        for path, text in files_of(render("tool", **values)).items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(text)
        return load(tmp_path / "config.yaml", {}).config

    plain = loaded()
    assert [()] * len(LIVE) == [list_restart_sections(plain, loaded(**values)) for values in LIVE]
    without_workers = [values for values in STATIC if "config__workers" not in values]  # refused with `memory` state
    assert [] == [values for values in without_workers if not list_restart_sections(plain, loaded(**values))]


def test_the_chart_knows_every_section_that_a_running_proxy_takes_over() -> None:
    text = (CHART / "templates" / "_config.tpl").read_text()
    (listed,) = re.findall(r'define "toolcall-proxy.live" -}}\n(.*)\n', text)
    policy = {"tools", "defaults", "documents", "schemas"}  # in the model, they are part of the routes
    made = {"finish", "stay_ready", "notes", "written", "sections"}  # in the model, and no sections of a file
    added = {section for plugin in find_plugins(AddsKeys) for section in plugin.sections}
    assert (reload._LIVE - made) | added | policy == set(listed.split())


def test_a_newer_version_of_the_chart_rolls_no_pod() -> None:
    assert not {"helm.sh/chart", "app.kubernetes.io/managed-by"} & set(pod_of(render("tool"))["metadata"]["labels"])


def test_a_prometheus_without_operator_finds_the_metrics() -> None:
    annotations = pod_of(render("tool", metrics__annotations=True))["metadata"]["annotations"]
    assert ("true", "9091", "/metrics") == tuple(
        annotations[f"prometheus.io/{key}"] for key in ("scrape", "port", "path")
    )
