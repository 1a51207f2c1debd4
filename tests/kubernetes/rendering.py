"""The chart as real Helm renders it. `.ci/helm` builds the programs; a test that lacks one says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # no stubs exist
import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm"
CASES: Final = tuple(sorted((CHART / "ci").glob("*-values.yaml")))
# Versions of Kubernetes that the chart is held against: the first with native sidecars and the preStop sleep on by
# default, and the newest that the validator knows.
VERSIONS: Final = ("1.30.0", "1.37.0")

Manifest = dict[str, Any]

# The C reader where PyYAML was built with it: ten times as fast, and a dashboard is long.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# Helm's home: empty, and gone with the tests.
_HOME: Final = tempfile.TemporaryDirectory(prefix="helm")


@cache
def program(name: str) -> str:
    """The path of a program that `.ci/helm` builds. Skips the test without it; on CI, which has to have it, it
    fails."""
    built = ROOT / ".tools" / name
    found = str(built) if built.is_file() else shutil.which(name)
    if found is None:
        how = f"no {name} here: run .ci/helm (it needs Go)"
        if os.environ.get("CI") == "true":
            pytest.fail(how)
        pytest.skip(how)
    return found


def helm(*words: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Helm, without any setting or cache of the user's. `values` go in last, with `__` for the dots of a key."""
    environ = {"PATH": os.defpath, "HOME": _HOME.name}
    command = [program("helm"), *map(str, words)]
    told = json.dumps(_nested(values)) if values else None
    return subprocess.run(
        [*command, "--values", "-"] if told else command,
        input=told, capture_output=True, text=True, check=False, env=environ,
    )  # fmt: skip


def _nested(values: Mapping[str, Any]) -> Manifest:
    whole: Manifest = {}
    for key, value in values.items():
        *outer, last = key.split("__")
        inner = whole
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return whole


def render(case: str = "", *, chart: Path = CHART, version: str = VERSIONS[-1], **values: Any) -> list[Manifest]:
    """Returns what `helm template` makes of a case of helm/ci (by its name without `-values.yaml`) and further values.
    Fails the test where Helm fails."""
    return list(_rendered(case, chart, version, json.dumps(values)))


@cache
def _rendered(case: str, chart: Path, version: str, values: str) -> tuple[Manifest, ...]:
    done = template(case, chart=chart, version=version, **json.loads(values))
    assert done.returncode == 0, done.stderr
    return tuple(manifest for manifest in yaml.load_all(done.stdout, Loader=_LOADER) if manifest)


def template(
    case: str = "", *, chart: Path = CHART, version: str = VERSIONS[-1], **values: Any
) -> subprocess.CompletedProcess[str]:
    """`helm template`, as it went."""
    files = case_file(case) if case else []
    words: list[str | Path] = ["template", "tools", chart, "--namespace", "agents", "--kube-version", version]
    return helm(*words, *files, values=values)


def case_file(case: str) -> list[str | Path]:
    """The words that give Helm a case of helm/ci."""
    return ["--values", CHART / "ci" / f"{case}-values.yaml"]


def refusal(case: str, **values: Any) -> str:
    """Returns why the chart refuses values: its own words, in one line."""
    done = template(case, **values)
    assert done.returncode != 0, done.stdout
    lines = [line for line in done.stderr.splitlines() if "toolcall-proxy: " in line]
    return lines[-1].rpartition("toolcall-proxy: ")[2] if lines else done.stderr


def must_be_valid(manifest: Manifest, version: str = VERSIONS[-1]) -> None:
    """Holds a manifest against the schema of its kind; a key that Kubernetes does not know is a mistake."""
    kubernetes_validate.validate(manifest, version, strict=True)


def of_kind(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of a kind."""
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def service_of(manifests: list[Manifest], suffix: str = "toolcall-proxy") -> Manifest:
    """The Service for calls, or the one whose name ends otherwise."""
    (found,) = [each for each in manifests if each["kind"] == "Service" and each["metadata"]["name"].endswith(suffix)]
    return found


def pod_of(manifests: list[Manifest]) -> Manifest:
    """The pod template of the Deployment."""
    template: Manifest = of_kind(manifests, "Deployment")["spec"]["template"]
    return template


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """The spec of every pod, those of the hooks too."""
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            yield manifest["spec"]["template"]["spec"]
        elif manifest["kind"] == "Pod":
            yield manifest["spec"]


def containers(spec: Manifest) -> list[Manifest]:
    """All containers of a pod."""
    return [*spec.get("initContainers", ()), *spec["containers"]]


def proxy_of(manifests: list[Manifest]) -> Manifest:
    """The proxy's container."""
    (found,) = [each for each in containers(pod_of(manifests)["spec"]) if each["name"] == "toolcall-proxy"]
    return found


def mounted_files(spec: Manifest, config_maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The files of the config's volume as kubelet would mount it: path -> text. `config_maps`: the data by name."""
    (volume,) = [each for each in spec["volumes"] if each["name"] == "toolcall-proxy-config"]
    files: dict[str, str] = {}
    for source in volume["projected"]["sources"]:
        data = config_maps[source["configMap"]["name"]]
        items = source["configMap"].get("items") or [{"key": key, "path": key} for key in data]
        files |= {item["path"]: data[item["key"]] for item in items}
    return files


def files_of(manifests: list[Manifest]) -> dict[str, str]:
    """The files in the proxy's config folder, out of the ConfigMaps among the manifests."""
    maps = {each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "ConfigMap"}
    return mounted_files(pod_of(manifests)["spec"], maps)
