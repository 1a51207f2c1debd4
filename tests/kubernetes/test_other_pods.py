"""The sidecar in pods that are not this chart's: by Helm's library template, and by the Kustomize component."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.rendering import (
    CHART,
    ROOT,
    Manifest,
    helm,
    mounted_files,
    must_be_valid,
    of_kind,
    pod_of,
    program,
    proxy_of,
    render,
    template,
)

PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
# The template that the page shows, without its first lines, which are about two other files.
(APP,) = re.findall(r"^```yaml\n(?:#.*\n)+(apiVersion: apps/v1\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def foreign(folder: Path, *aliases: str, app: str = APP) -> Path:
    """A chart of somebody else that depends on ours by file://, with its dependencies fetched."""
    entry: dict[str, str] = {"name": "toolcall-proxy", "version": ">=0", "repository": f"file://{CHART}"}
    dependencies = [{**entry, "alias": alias} for alias in aliases] or [entry]
    chart = folder / "ours"
    (chart / "templates").mkdir(parents=True)
    about: dict[str, Any] = {"apiVersion": "v2", "name": "ours", "version": "1.0.0", "dependencies": dependencies}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    case = yaml.safe_load((CHART / "ci" / "library-values.yaml").read_text())
    (chart / "values.yaml").write_text(yaml.safe_dump(dict.fromkeys(aliases or ("toolcall-proxy",), case)))
    (chart / "templates" / "app.yaml").write_text(app)
    done = helm("dependency", "update", chart)
    assert done.returncode == 0, done.stderr
    return chart


def app_of(manifests: list[Manifest]) -> Manifest:
    """The spec of the foreign pod, after every manifest was held against the schemas."""
    for manifest in manifests:
        if not manifest["apiVersion"].startswith("monitoring."):
            must_be_valid(manifest)
    spec: Manifest = pod_of(manifests)["spec"]
    return spec


def test_a_pod_of_another_chart_has_the_sidecar_as_our_own_pods_have_it(tmp_path: Path) -> None:
    manifests = render(chart=foreign(tmp_path))
    spec, own = app_of(manifests), pod_of(render("tool"))["spec"]

    assert own["initContainers"] == spec["initContainers"]
    assert own["terminationGracePeriodSeconds"] == spec["terminationGracePeriodSeconds"]
    assert own["containers"][0]["lifecycle"] == spec["containers"][0]["lifecycle"]
    maps = {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "ConfigMap"}
    config = yaml.safe_load(mounted_files(spec, maps)["config.yaml"])
    assert ({"url": "http://127.0.0.1:3000"}, 8080) == (config["upstreams"]["app"], config["listen"]["port"])


def test_monitor_and_policy_find_the_pods_of_the_other_chart(tmp_path: Path) -> None:
    manifests = render(chart=foreign(tmp_path))
    labels = pod_of(manifests)["metadata"]["labels"]
    assert {"app": "ours", "toolcall-proxy": "tools-toolcall-proxy"} == labels
    assert {"checksum/static"} == set(pod_of(manifests)["metadata"]["annotations"])
    assert {"toolcall-proxy": labels["toolcall-proxy"]} == of_kind(manifests, "PodMonitor")["spec"]["selector"][
        "matchLabels"
    ]
    assert ["toolcall-proxy"] == of_kind(manifests, "PodMonitor")["spec"]["podTargetLabels"]
    assert {"toolcall-proxy": labels["toolcall-proxy"]} == of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"][
        "matchLabels"
    ]


def test_it_is_found_under_an_alias(tmp_path: Path) -> None:
    manifests = render(chart=foreign(tmp_path, "guard"), guard__ports={"calls": 7777})
    assert "tools-guard" == pod_of(manifests)["metadata"]["labels"]["toolcall-proxy"]
    assert 7777 == proxy_of(manifests)["ports"][0]["containerPort"]


def test_of_two_the_one_that_is_meant_is_named(tmp_path: Path) -> None:
    both = template(chart=foreign(tmp_path / "a", "one", "two"))
    assert (1, True) == (
        both.returncode,
        "depends on it under several names (one, two): name the one you mean" in both.stderr,
    )
    named = (
        APP.replace("(list . ", '(list (index .Subcharts "two") ')
        .replace('" . |', '" (index .Subcharts "two") |')
        .replace('" . }', '" (index .Subcharts "two") }')
    )
    manifests = render(chart=foreign(tmp_path / "b", "one", "two", app=named))
    assert "tools-two" == pod_of(manifests)["metadata"]["labels"]["toolcall-proxy"]


def test_rejects_a_chart_that_forgot_the_dependency(tmp_path: Path) -> None:
    chart = foreign(tmp_path)
    # The template is there all the same: by a copy, as some do.
    for part in CHART.glob("templates/_*.tpl"):
        (chart / "templates" / part.name).write_text(part.read_text())
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: ours\nversion: 1.0.0\n")
    (chart / "charts" / "toolcall-proxy-0.1.0.tgz").unlink()
    assert "no such chart among the dependencies of this one: add it to Chart.yaml" in template(chart=chart).stderr


def test_probes_the_tools_readiness_through_the_proxy_as_in_our_own_pods(tmp_path: Path) -> None:
    own = pod_of(render("tool"))["spec"]["containers"][0]["readinessProbe"]
    asked = {"path": "/readyz/upstream/app", "port": 9091}
    assert {**own, "httpGet": asked} == app_of(render(chart=foreign(tmp_path)))["containers"][0]["readinessProbe"]


def test_a_parent_chart_switches_it_on_and_off_by_the_usual_condition(tmp_path: Path) -> None:
    about: dict[str, Any] = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [
        {"name": "toolcall-proxy", "version": ">=0", "repository": f"file://{CHART}",
         "condition": "toolcall-proxy.enabled"},
    ]}  # fmt: skip
    own = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n"
    case = yaml.safe_load((CHART / "ci" / "tool-values.yaml").read_text())
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "own.yaml").write_text(own)
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(about))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"toolcall-proxy": case}))
    assert 0 == helm("dependency", "update", tmp_path).returncode

    def switch(state: bool) -> dict[str, Any]:
        return {"toolcall-proxy__enabled": state}

    on = render(chart=tmp_path, **switch(True))
    by_name = lambda manifest: (manifest["kind"], manifest["metadata"]["name"])  # noqa: E731
    assert sorted([*render("tool"), yaml.safe_load(own)], key=by_name) == sorted(on, key=by_name)
    assert [yaml.safe_load(own)] == render(chart=tmp_path, **switch(False))


@pytest.mark.parametrize(
    ("key", "value"), [("podDisruptionBudget", {"enabled": True}), ("drain", {"seconds": 60, "toolSleepSeconds": 3})]
)
def test_reports_mistakes_in_its_values_through_the_other_chart(key: str, value: Any, tmp_path: Path) -> None:
    done = template(chart=foreign(tmp_path), **{f"toolcall-proxy__{key}": value})
    assert (1, True) == (done.returncode, f"toolcall-proxy: {key}" in done.stderr)


# --- Kustomize --------------------------------------------------------------------------------------------------------
@cache
def kustomized() -> list[Manifest]:
    return build(CHART / "kustomize" / "example")


def build(folder: Path) -> list[Manifest]:
    """Returns what Kustomize makes of a folder."""
    done = subprocess.run([program("kustomize"), "build", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_the_component_puts_in_what_the_chart_renders() -> None:
    spec, own = app_of(kustomized()), pod_of(render("tool"))["spec"]
    image = {"image": "registry.example.com/tools/toolcall-proxy:0.1.0"}
    assert [own["initContainers"][0] | image] == spec["initContainers"]
    assert own["terminationGracePeriodSeconds"] == spec["terminationGracePeriodSeconds"]
    assert own["containers"][0]["lifecycle"] == spec["containers"][0]["lifecycle"]


def test_the_component_keeps_a_period_of_grace_if_a_label_says_so_and_takes_every_kind_that_serves(
    tmp_path: Path,
) -> None:
    def workload(kind: str, name: str, labels: dict[str, str]) -> Manifest:
        pod = {"terminationGracePeriodSeconds": 900, "containers": [{"name": "app", "image": "app"}]}
        metadata = {"name": name, "labels": labels}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": pod}}}

    ours, own = {"toolcall-proxy": "sidecar"}, {"toolcall-proxy/grace": "own"}
    given = [workload("Deployment", "a", ours), workload("StatefulSet", "b", ours | own),
             workload("DaemonSet", "c", ours), workload("Deployment", "d", own)]  # fmt: skip
    shutil.copytree(CHART / "kustomize" / "component", tmp_path / "component")
    (tmp_path / "given.yaml").write_text(yaml.safe_dump_all(given))
    (tmp_path / "kustomization.yaml").write_text("resources: [given.yaml]\ncomponents: [component]\n")

    pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in build(tmp_path)}
    assert {"a": 300, "b": 900, "c": 300, "d": 900} == {
        name: spec["terminationGracePeriodSeconds"] for name, spec in pods.items()
    }
    assert {"a", "b", "c"} == {name for name, spec in pods.items() if "initContainers" in spec}


def test_the_config_of_the_component_is_one_that_the_proxy_serves(tmp_path: Path) -> None:
    manifests = kustomized()
    config_map = of_kind(manifests, "ConfigMap")
    files = mounted_files(pod_of(manifests)["spec"], {config_map["metadata"]["name"]: config_map["data"]})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = [sys.executable, "-m", "proxy", "check", str(tmp_path / "config.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    chart = yaml.safe_load(next(each for each in render("tool") if each["kind"] == "ConfigMap")["data"]["config.yaml"])
    assert chart["drain"] == yaml.safe_load(files["config.yaml"])["drain"]


def test_the_job_that_checks_a_config_runs_the_verb_that_the_charts_hook_runs(tmp_path: Path) -> None:
    job = yaml.safe_load((CHART / "kustomize" / "example" / "check-job.yaml").read_text())
    must_be_valid(job)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    for name in ("config.yaml", "weather.yaml"):
        shutil.copy(CHART / "kustomize" / "example" / name, tmp_path)
    args = [word.replace("/etc/toolcall-proxy", str(tmp_path)) for word in container["args"]]
    words = [sys.executable, *container["command"][1:], *args]
    right = subprocess.run(words, capture_output=True, text=True, check=False)
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("upstream: weather", "upstream: wether"))
    wrong = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (0, 2, True) == (right.returncode, wrong.returncode, "did you mean 'weather'?" in wrong.stderr)
