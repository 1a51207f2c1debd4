"""`toolcall-proxy inject`: existing manifests come out guarded, and are refused where they cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.rendering import ROOT, Manifest, must_be_valid, pod_of, program, render
from tests.serving.keys import authority, certificate

pytestmark = pytest.mark.large

CONFIG = (ROOT / "helm" / "kustomize" / "example" / "config.yaml").read_text()
SCHEMA = (ROOT / "helm" / "kustomize" / "example" / "weather.yaml").read_text()
DEPLOYMENT = """\
# The tool as it was.
apiVersion: apps/v1
kind: Deployment
metadata: {name: weather}
spec:
  selector: {matchLabels: {app: weather}}
  template:
    metadata: {labels: {app: weather}}
    spec:
      initContainers: [{name: first, image: first}]
      containers:
        - name: weather
          image: registry.example.com/tools/weather:1.4
          ports: [{name: http, containerPort: 8000}]
          env: [{name: A, value: "yes"}, {name: B, value: "0123"}, {name: C, value: 2026-11-22}]
          livenessProbe: {httpGet: {path: /, port: http}}
"""
OTHER = """\
# Nobody's business,   with its spaces.
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {selector: {app: other}, ports: [{port: 80, targetPort: 8000}]}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: weather}
spec:
  selector: {app: weather}
  ports:
    - {name: a, port: 80, targetPort: 8000}
    - {name: b, port: 81, targetPort: http}
    - {name: c, port: 8000}
    - {name: d, port: 9, targetPort: 9091}
"""
ARGS = ["serve", "/etc/toolcall-proxy/config.yaml", "--pod-ports", "8080,9091,8081", "--pod-upstream", "weather"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "weather.yaml").write_text(SCHEMA)
    return tmp_path


def inject(folder: Path, text: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxy", "inject", "--config", str(folder / "config.yaml"), *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert code == done.returncode, done.stderr
    return done


def injected(folder: Path, text: str, *words: str) -> list[Manifest]:
    return list(yaml.safe_load_all(inject(folder, text, *words).stdout))


def changed(text: str, **spec: Any) -> str:
    """A Deployment whose pod's spec has something else in it."""
    manifest = yaml.safe_load(text)
    manifest["spec"]["template"]["spec"] |= spec
    return yaml.safe_dump(manifest)


def test_an_existing_deployment_gets_what_the_chart_renders(folder: Path) -> None:
    deployment, config_map = injected(folder, DEPLOYMENT)
    must_be_valid(deployment)
    must_be_valid(config_map)
    spec, own = pod_of([deployment])["spec"], pod_of(render("tool"))["spec"]
    first, proxy = spec["initContainers"]
    assert "first" == first["name"]
    ports = [{**own["initContainers"][0]["ports"][0], "name": "http"}, own["initContainers"][0]["ports"][1]]
    assert {**own["initContainers"][0], "ports": ports, "args": ARGS} == proxy
    assert own["initContainers"][0]["args"] == ARGS[:4]
    assert own["terminationGracePeriodSeconds"] == spec["terminationGracePeriodSeconds"]
    tool = spec["containers"][0]
    assert own["containers"][0]["lifecycle"] == tool["lifecycle"]
    upstream = {"httpGet": {"path": "/readyz/upstream/weather", "port": 9091}}
    assert {**own["containers"][0]["readinessProbe"], **upstream} == tool["readinessProbe"]
    assert [{"containerPort": 8000}] == tool["ports"]
    assert {"httpGet": {"path": "/", "port": 8000}} == tool["livenessProbe"], "the name is the proxy's now"
    assert "weather-toolcall-proxy" == config_map["metadata"]["name"]
    assert [{"name": "weather-toolcall-proxy"}] == [spec["volumes"][0]["projected"]["sources"][0]["configMap"]]
    assert {"config.yaml": CONFIG, "weather.yaml": SCHEMA} == config_map["data"]


def test_text_stays_text(folder: Path) -> None:
    (deployment, _) = injected(folder, DEPLOYMENT)
    assert [{"name": "A", "value": "yes"}, {"name": "B", "value": "0123"}, {"name": "C", "value": "2026-11-22"}] == [
        {**each, "value": str(each["value"])} for each in pod_of([deployment])["spec"]["containers"][0]["env"]
    ]


def test_services_lead_to_the_proxy_and_others_keep_every_byte(folder: Path) -> None:
    done = inject(folder, f"{DEPLOYMENT}---\n{OTHER}---\n{SERVICE}")
    assert f"---\n{OTHER}---\n" in done.stdout
    service = list(yaml.safe_load_all(done.stdout))[2]
    assert [8080, 8080, 8080, 9091] == [port["targetPort"] for port in service["spec"]["ports"]]


def test_twice_is_once(folder: Path) -> None:
    once = inject(folder, f"{DEPLOYMENT}---\n{SERVICE}").stdout
    assert once == inject(folder, once).stdout
    assert ("", 0) == (inject(folder, once, "--diff").stdout, inject(folder, once, "--diff").returncode)
    (folder / "config.yaml").write_text(CONFIG.replace("serve: 15s", "serve: 40s"))
    deployment, _, config_map = injected(folder, once)
    assert {"sleep": {"seconds": 45}} == pod_of([deployment])["spec"]["containers"][0]["lifecycle"]["preStop"]
    assert "serve: 40s" in config_map["data"]["config.yaml"]


def test_a_diff_shows_what_would_change_and_changes_nothing(folder: Path) -> None:
    done = inject(folder, DEPLOYMENT, "--diff", code=1)
    assert "+      - name: toolcall-proxy\n" in done.stdout
    assert done.stdout.startswith("--- before\n+++ injected\n")


def test_drops_the_resource_version_of_injected_manifests(folder: Path) -> None:
    """`kubectl apply` refuses a version that is no longer the newest, and a rollout's state makes new ones."""
    given = [yaml.safe_load(text) for text in (DEPLOYMENT, SERVICE, OTHER)]
    for each in given:
        each["metadata"] |= {"resourceVersion": "7", "uid": "u"}
    made = injected(folder, yaml.safe_dump_all(given))
    versions = {each["metadata"]["name"]: each["metadata"].get("resourceVersion") for each in made[:3]}
    assert {"weather": None, "other": "7"} == versions
    assert ["u"] * 3 == [each["metadata"]["uid"] for each in made if each["kind"] != "ConfigMap"]


def test_keeps_the_probes_and_hooks_of_the_tool(folder: Path) -> None:
    manifest = yaml.safe_load(DEPLOYMENT)
    spec = manifest["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 900
    spec["containers"][0] |= {
        "readinessProbe": {"exec": {"command": ["ready"]}}, "lifecycle": {"preStop": {"exec": {"command": ["stop"]}}},
    }  # fmt: skip
    done = inject(folder, yaml.safe_dump(manifest))
    made = pod_of([next(yaml.safe_load_all(done.stdout))])["spec"]
    kept = spec["containers"][0]
    assert 900 == made["terminationGracePeriodSeconds"]
    assert (kept["readinessProbe"], kept["lifecycle"]) == (
        made["containers"][0]["readinessProbe"],
        made["containers"][0]["lifecycle"],
    )
    assert (
        "note: deployment/weather: the preStop of container weather is kept: see that it takes at least 20 s"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("StatefulSet", ("spec", "template")),
        ("DaemonSet", ("spec", "template")),
        ("Job", ("spec", "template")),
        ("CronJob", ("spec", "jobTemplate", "spec", "template")),
        ("Pod", ()),
    ],
)
def test_every_kind_of_workload_is_injected(kind: str, path: tuple[str, ...], folder: Path) -> None:
    pod: Any = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "w", "image": "w"}]}}
    for key in reversed(path):
        pod = {key: pod}
    manifest = {"apiVersion": "v1", "kind": kind, **pod}
    manifest["metadata"] = {**manifest.get("metadata", {}), "name": "w", "namespace": "tools"}
    made, config_map = injected(folder, yaml.safe_dump(manifest))
    for key in path:
        made = made[key]
    (proxy,) = made["spec"]["initContainers"]
    ending = ["--seconds", "0"] if kind in ("Job", "CronJob") else ["--with-tools"]
    assert ["drain", *ending, "--admin", "127.0.0.1:8081"] == proxy["lifecycle"]["preStop"]["exec"]["command"][3:]
    assert "tools" == config_map["metadata"]["namespace"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "deployment/weather has hostNetwork: its ports are the node's"),
    ({"os": {"name": "windows"}}, "deployment/weather runs on windows"),
    ({"nodeSelector": {"kubernetes.io/os": "windows"}}, "deployment/weather runs on windows"),
    ({"containers": [{"name": "a", "ports": [{"containerPort": 9091}]}]}, "container a has port 9091"),
    ({"containers": [{"name": "a"}, {"name": "b"}]}, "none of its containers (a, b) names port 8000"),
    ({"containers": [{"name": "toolcall-proxy"}]}, "has an ordinary container toolcall-proxy already"),
    ({"containers": []}, "deployment/weather has no containers"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED, ids=[row[1][:50] for row in REFUSED])
def test_rejects_obstacles_with_a_sentence(spec: dict[str, Any], words: str, folder: Path) -> None:
    done = inject(folder, changed(DEPLOYMENT, **spec), code=2)
    assert ("", True) == (done.stdout, words in done.stderr), done.stderr


def test_a_config_that_no_pod_could_serve_is_refused_with_all_that_is_wrong(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "version: 1\nupstreams: {weather: {url: http://weather.example.com}}\n"
        "routes: [{path: /tools/weather, upstream: weather, tool: weather, schema: weather.yaml}]\n"
    )
    lines = inject(folder, DEPLOYMENT, code=2).stderr.splitlines()
    assert [
        "`listen` is reached only from inside of the pod  (write `listen: 0.0.0.0:8080`)",
        'kubelet reaches no probes  (write `admin: {listen: "127.0.0.1:8081", probes: "0.0.0.0:9091"}`)',
        "an ending pod gives up its last calls  (write `drain: {serve: 15s, finish: 30s, stay_ready: on}`)",
        "no upstreams are at http://127.0.0.1:PORT, the address of the tool in a pod  (write `url: http://127.0.0.1:PORT`)",
    ] == [line.strip() for line in lines[1:]]
    (folder / "config.yaml").write_text(CONFIG.replace("upstream: weather", "upstream: wether"))
    assert "unknown upstream 'wether'  (did you mean 'weather'?)" in inject(folder, DEPLOYMENT, code=2).stderr


def test_a_secret_next_to_the_config_reaches_no_config_map(folder: Path) -> None:
    authority(folder)
    certificate(folder, "proxy", "DNS:localhost")
    (folder / "both.pem").write_text((folder / "proxy.key").read_text() + (folder / "proxy.pem").read_text())
    (folder / "token.txt").write_text("t0p-s3cret-of-this-machine")
    (folder / "config.yaml").write_text(
        CONFIG.replace("admin: {", "admin: { token: '${file:token.txt}',").replace(
            "listen: 0.0.0.0:8080", "listen: { host: 0.0.0.0, port: 8080, tls: { cert: proxy.pem, key: proxy.key } }"
        )
        + "state: { backend: redis, url: 'rediss://r.example.com', tls: { ca: ca.pem, cert: both.pem } }\n"
    )
    done = inject(folder, DEPLOYMENT, code=2)
    remedy = "(mount it from a Secret, and write its absolute path there, such as /run/secrets/toolcall-proxy/NAME)"
    assert [
        f"{name} holds a secret, which a ConfigMap would show  {remedy}"
        for name in ("both.pem", "proxy.key", "token.txt")
    ] == [line.strip() for line in done.stderr.splitlines()[1:]]
    assert "" == done.stdout


def test_one_workload_of_many_and_one_that_wants_none(folder: Path) -> None:
    second = DEPLOYMENT.replace("name: weather}", "name: second}", 1)
    alone = injected(folder, f"{DEPLOYMENT}---\n{second}", "--only", "Deployment/second")
    assert [1, 2] == [len(pod_of([each])["spec"]["initContainers"]) for each in alone[:2]]
    off = second.replace("{name: second}", "{name: second, annotations: {toolcall-proxy/inject: disabled}}")
    done = inject(folder, f"{DEPLOYMENT}---\n{off}")
    assert "note: deployment/second is left as it is: toolcall-proxy/inject: disabled\n" in done.stderr
    assert (
        "nothing here is called deployment/third" in inject(folder, second, "--only", "deployment/third", code=2).stderr
    )


def test_it_is_a_kustomize_function(folder: Path) -> None:
    """By real Kustomize, as an exec function: it hands a ResourceList to standard input."""
    (folder / "deployment.yaml").write_text(DEPLOYMENT)
    script = folder / "inject.sh"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy inject --config "{folder}/config.yaml"\n')
    script.chmod(0o755)
    (folder / "injector.yaml").write_text(
        "apiVersion: toolcall-proxy/v1\nkind: Inject\nmetadata:\n  name: inject\n  annotations:\n"
        "    config.kubernetes.io/function: |\n      exec: {path: ./inject.sh}\n"
    )
    (folder / "kustomization.yaml").write_text("resources: [deployment.yaml]\ntransformers: [injector.yaml]\n")
    command = [program("kustomize"), "build", "--enable-alpha-plugins", "--enable-exec", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert 0 == done.returncode, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    assert ["ConfigMap", "Deployment"] == sorted(each["kind"] for each in made)
    assert ["first", "toolcall-proxy"] == [each["name"] for each in pod_of(made)["spec"]["initContainers"]]


def test_it_is_a_post_renderer_of_helm(folder: Path) -> None:
    """By the plug-in of the repository: Helm 4 takes no script."""
    (folder / "bin").mkdir()
    verb = folder / "bin" / "toolcall-proxy"
    verb.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy "$@"\n')
    verb.chmod(0o755)
    chart = folder / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: theirs, version: 1.0.0}")
    (chart / "templates" / "all.yaml").write_text(DEPLOYMENT)
    environ = {"PATH": f"{folder / 'bin'}:{os.defpath}", "HOME": str(folder)}

    def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program("helm"), *words], capture_output=True, text=True, check=False, env=environ)

    assert 0 == helm("plugin", "install", ROOT / "helm" / "post-renderer").returncode
    options = ["--post-renderer", "toolcall-proxy", "--post-renderer-args", f"--config={folder / 'config.yaml'}"]
    done = helm("template", "theirs", chart, *options)
    assert 0 == done.returncode, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    assert ["ConfigMap", "Deployment"] == sorted(each["kind"] for each in made)
    assert ["first", "toolcall-proxy"] == [each["name"] for each in pod_of(made)["spec"]["initContainers"]]
