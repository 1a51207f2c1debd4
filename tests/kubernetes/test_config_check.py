"""A mistake in `config` or `schemas` is refused: by Helm itself, by the hook before a release, and by `helm test`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs import chart_values
from tests.kubernetes.rendering import (
    Manifest,
    mounted_files,
    must_be_valid,
    of_kind,
    pod_of,
    pods,
    proxy_of,
    render,
    service_of,
    template,
)

pytestmark = pytest.mark.large

WITH_CONFIG = ["gateway", "gateway-scaled", "tool", "tool-plain", "library"]


# --- Helm itself ------------------------------------------------------------------------------------------------------
TYPOS: list[tuple[str, Any, str]] = [
    ("upstreams.tool.timeout", "20s", "at '/config/upstreams/tool': additional properties 'timeout' not allowed"),
    ("upstreams.tool.timeouts.respnse", "3s", "additional properties 'respnse' not allowed"),
    ("defaults.repiar", "off", "at '/config/defaults': additional properties 'repiar' not allowed"),
    ("defaults.attempts.max", "three", "at '/config/defaults/attempts/max': got string, want integer"),
    ("telemetry.log.levle", "info", "at '/config/telemetry/log': additional properties 'levle' not allowed"),
    ("upstreams.tool.timeouts.response", "20seconds", "'20seconds' does not match pattern"),
    ("defaults.mode", "enforced", "value must be one of 'enforce', 'report'"),
    ("routes", [{"tool": "weather"}], "missing property 'path'"),
]


@pytest.mark.parametrize(("key", "value", "words"), TYPOS, ids=[row[0] for row in TYPOS])
def test_helm_refuses_a_typo_inside_the_config(key: str, value: Any, words: str) -> None:
    done = template("tool", **{f"config__{key.replace('.', '__')}": value})
    assert (1, True) == (done.returncode, words in done.stderr), done.stderr


def test_the_schema_of_the_values_holds_the_whole_published_one() -> None:
    values = yaml.safe_load(chart_values.SCHEMA.read_text())
    published = yaml.safe_load(chart_values.CONFIG_SCHEMA.read_text())
    assert published["properties"].keys() == values["properties"]["config"]["properties"].keys()
    assert published["$defs"].keys() == values["$defs"].keys()
    assert chart_values.config_schema()["$defs"] == values["$defs"]
    assert published["$defs"]["upstream"]["properties"].keys() == values["$defs"]["upstream"]["properties"].keys()


@pytest.mark.parametrize(
    "values",
    [
        {"config__defaults__repair": False},  # `off`, as YAML 1.1 reads it
        {"config__defaults": {"attempts": {"max": "${MAX}"}, "mode": "${MODE:-enforce}", "timeout": "${TIME}"}},
        {"config__upstreams__tool": {"timeouts": {"connect": "1s"}}},  # its url is the chart's
        {"config__upstreams__other": {"url": "${file:/run/secrets/toolcall-proxy/url}"}},
        {"config__state": {"max_keys": 1e6}},
        {"config__admin": {"token": "${TOOLCALL_PROXY_ADMIN_TOKEN}"}},
        {"config__correction": {"upstream": "tool", "model": "${M}"}},
    ],
    ids=str,
)
def test_helm_takes_what_the_chart_puts_right_and_references(values: dict[str, Any]) -> None:
    assert "" == template("tool", **values).stderr


# --- the hook before a release ----------------------------------------------------------------------------------------
def hook_of(manifests: list[Manifest]) -> tuple[Manifest, Manifest]:
    """The job of the check, and its container."""
    job = of_kind(manifests, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return job, container


def run_hook(manifests: list[Manifest], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs the hook's command on the files that its pod would have, in `folder`."""
    job, container = hook_of(manifests)
    maps = {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "ConfigMap"}
    for path, text in mounted_files(job["spec"]["template"]["spec"], maps).items():
        (folder / path).write_text(text)
    words = [word.replace("/etc/toolcall-proxy", str(folder)) for word in container["args"]]
    command = [sys.executable, *container["command"][1:], *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.defpath, **environ})


@pytest.mark.parametrize("case", WITH_CONFIG)
def test_the_hook_passes_every_example_without_a_secret_or_a_variable(case: str, tmp_path: Path) -> None:
    done = run_hook(render(case), tmp_path)
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"config__routes": [{"path": "/a", "upstream": "toool", "tool": "a", "schema": {}}]}, "did you mean 'tool'?"),
        ({"config__routes": [{"path": "weather", "upstream": "tool", "tool": "a", "schema": {}}]}, "path"),
        ({"schemas": {"weather.yaml": "type: objekt"}}, "weather.yaml:1:"),
        ({"schemas": {"weather.yaml": "type: [object"}}, "weather.yaml:"),
        ({"config__upstreams__tool": {"headers": {"set": {"x": "${file:/run/secrets/x"}}}}, "'${' without '}'"),
    ],
    ids=str,
)
def test_the_hook_fails_with_the_mistake_that_helm_cannot_see(
    values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    rendered = template("tool", **values)
    if rendered.returncode:  # Helm saw it after all
        assert words in rendered.stderr
        return
    done = run_hook(render("tool", **values), tmp_path)
    assert (2, True) == (done.returncode, words in done.stderr), done.stderr


def test_the_hook_runs_the_releases_own_image_before_anything_changes_and_needs_no_secret() -> None:
    manifests = render("gateway-scaled")
    job, container = hook_of(manifests)
    must_be_valid(job)
    assert {
        "helm.sh/hook": "pre-install,pre-upgrade",
        "helm.sh/hook-weight": "-5",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        "helm.sh/hook-output-log-policy": "hook-failed",
        "example.com/owner": "tools",
    } == job["metadata"]["annotations"]
    assert proxy_of(manifests)["image"] == container["image"]
    spec = job["spec"]["template"]["spec"]
    assert ["toolcall-proxy-config"] == [volume["name"] for volume in spec["volumes"]]
    assert "default" == spec["serviceAccountName"]  # the chart's own is not there yet
    own = spec["volumes"][0]["projected"]["sources"][0]["configMap"]["name"]
    (config,) = [each for each in manifests if each["kind"] == "ConfigMap" and each["metadata"]["name"] == own]
    (served,) = [
        each for each in manifests if each["kind"] == "ConfigMap" and f"{each['metadata']['name']}-check" == own
    ]
    assert served["data"] == config["data"]
    weight = config["metadata"]["annotations"]["helm.sh/hook-weight"]
    assert int(weight) < int(job["metadata"]["annotations"]["helm.sh/hook-weight"])


def test_the_hook_can_be_left_out() -> None:
    assert "Job" not in {each["kind"] for each in render("tool", configCheck__enabled=False)}


# --- after it ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", ["tool", "gateway", "tool-own-config"])
def test_every_pod_says_why_it_ended(case: str) -> None:
    ours = [
        container
        for spec in pods(render(case))
        for container in [*spec.get("initContainers", ()), *spec["containers"]]
        if container["name"] != "tool"
    ]
    assert {"FallbackToLogsOnError"} == {container["terminationMessagePolicy"] for container in ours}


def test_a_rollout_stops_at_the_first_pod() -> None:
    strategy = of_kind(render("gateway"), "Deployment")["spec"]["strategy"]
    assert {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}} == strategy


def test_helm_test_reads_the_released_config_and_asks_every_pod() -> None:
    manifests = render("tool")
    pod = of_kind(manifests, "Pod")["spec"]
    environ = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    headless = service_of(manifests, "-metrics")
    assert "None" == headless["spec"]["clusterIP"]
    assert f"{headless['metadata']['name']}.agents:9091" == environ["PODS"]
    assert ("/etc/toolcall-proxy/config.yaml", "120") == (environ["CONFIG"], environ["WAIT"])
    maps = {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "ConfigMap"}
    assert mounted_files(pod_of(manifests)["spec"], maps) == mounted_files(pod, maps)
    assert "PODS" not in str(of_kind(render("tool", service__metrics=False), "Pod")["spec"]["containers"][0]["env"])


def test_the_page_names_the_command_of_the_hook() -> None:
    page = (chart_values.ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    _, container = hook_of(render("tool"))
    assert f"toolcall-proxy {shlex.join(container['args'][:2])}" in page
