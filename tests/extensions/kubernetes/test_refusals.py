"""`toolcall-proxy inject` refuses what would be unguarded or out of reach, with file, line and remedy, and takes back
what it put in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.__main__ import main
from proxy.extensions.kubernetes.pod_config import LIVE
from tests.kubernetes.rendering import ROOT, Manifest, must_be_valid

CONFIG = (ROOT / "helm" / "kustomize" / "example" / "config.yaml").read_text()
SCHEMA = (ROOT / "helm" / "kustomize" / "example" / "weather.yaml").read_text()
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: weather
spec:
  selector: {matchLabels: {app: weather}}
  template:
    metadata:
      labels: {app: weather}
    spec:
      containers:
        - name: weather
          image: registry.example.com/tools/weather:1.4
          ports:
            - {name: http, containerPort: 8000}
          lifecycle:
            postStart: {httpGet: {path: /warm, port: http}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: weather
spec:
  selector: {app: weather}
  ports:
    - {port: 80, targetPort: http}
"""
ANNOTATED = "    metadata:\n      annotations: {%s}\n"
MANY = "            - {name: metrics, containerPort: 9100}\n            - {name: http, containerPort: 8000}\n"
ONE = "            - {name: http, containerPort: 8000}\n"


@dataclass
class Folder:
    """A folder with the config and manifests, and what `inject` printed last."""

    path: Path
    capsys: pytest.CaptureFixture[str]
    said: str = ""

    def inject(self, *documents: str, words: tuple[str, ...] = (), code: int = 0, config: bool = True) -> str:
        """The result of `inject` for the documents of one file; `said` is its output for people."""
        file = self.path / "all.yaml"
        file.write_text("---\n".join(documents))
        given = ("-c", str(self.path / "config.yaml")) if config else ()
        assert code == main(["inject", "-f", str(file), *given, *words]), self.capsys.readouterr().err
        made, self.said = self.capsys.readouterr()
        return made

    def refuse(self, *documents: str, words: tuple[str, ...] = ()) -> list[str]:
        """The lines by which `inject` refuses the documents, each from its place in the file on."""
        assert "" == self.inject(*documents, words=words, code=2)
        return [line.removeprefix(f"{self.path}/all.yaml:") for line in self.said.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Folder:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "weather.yaml").write_text(SCHEMA)
    return Folder(tmp_path, capsys)


def load(text: str) -> list[Manifest]:
    return list(yaml.safe_load_all(text))


def spec_of(manifest: Manifest) -> Manifest:
    spec: Manifest = manifest["spec"]["template"]["spec"]
    return spec


# Of the Deployment: what is written instead of what, and the refusal with its line.
OBSTACLES: list[tuple[str, str, str]] = [
    (ONE, ONE.replace("8000", "9101"),
     "14: deployment/weather: container weather names port http 9101, and not 8000, where the upstream 'weather' of "
     "the config leads: correct the upstream's url, or name its port there"),
    (ONE, MANY,
     "14: deployment/weather: container weather names several ports (metrics 9100, http 8000): say which takes calls, "
     "with --port 8000 or the annotation toolcall-proxy/port of the pod's template"),
    ("containerPort: 8000}", "containerPort: 8000, hostPort: 80}",
     "15: deployment/weather: container weather has hostPort 80 on the port of calls: the node's port leads past the "
     "proxy  (take it out; a Service of type NodePort leads to the proxy)"),
    ("    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers",
     "11: deployment/weather has hostNetwork: its ports are the node's, and anybody gets past a sidecar there  (take "
     "it out)"),
    ("{name: http, ", "{name: toolproxy, ",
     "15: deployment/weather: container weather calls a port toolproxy, as the proxy does: call it otherwise"),
    ("    metadata:\n", ANNOTATED % "toolcall-proxy/container: nope",
     "9: deployment/weather: no container is called 'nope', as toolcall-proxy/container says"),
    ("    metadata:\n", ANNOTATED % "toolcall-proxy/cpu: some",
     "9: deployment/weather: toolcall-proxy/cpu is no amount: 'some'  (write one such as 100m)"),
    ("    metadata:\n", ANNOTATED % "toolcall-proxy/log-level: loud",
     "9: deployment/weather: toolcall-proxy/log-level is 'loud': it is one of debug, info, warning, error"),
    ("    metadata:\n", ANNOTATED % 'toolcall-proxy/port: "9100"',
     "15: deployment/weather: the port of calls is said to be 9100, and not 8000, where the upstream 'weather' of the "
     "config leads"),
    ("    metadata:\n", ANNOTATED % "toolcall-proxy/upstream: other",
     "9: deployment/weather: toolcall-proxy/upstream is 'other', and the config's tool is 'weather'  (say --upstream)"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "said"), OBSTACLES, ids=[row[2][:60] for row in OBSTACLES])
def test_rejects_unguarded_ways_with_line_and_remedy(before: str, after: str, said: str, folder: Folder) -> None:
    assert before in DEPLOYMENT
    assert [said] == folder.refuse(DEPLOYMENT.replace(before, after, 1), SERVICE)


def test_reports_all_obstacles_at_once(folder: Folder) -> None:
    both = DEPLOYMENT.replace(ONE, ONE.replace("8000", "9101"))
    both = both.replace("    spec:\n", "    spec:\n      hostNetwork: true\n", 1)
    assert ["11", "15"] == [line.partition(":")[0] for line in folder.refuse(both, SERVICE)]


@pytest.mark.parametrize("said", [("--port", "http"), ("--port", "8000"), ()], ids=str)
def test_the_port_of_calls_that_is_said_is_guarded_and_the_other_stays(said: tuple[str, ...], folder: Folder) -> None:
    deployment = DEPLOYMENT.replace(ONE, MANY)
    if not said:
        deployment = deployment.replace("    metadata:\n", ANNOTATED % "toolcall-proxy/port: http", 1)
    service = f"{SERVICE}    - {{name: metrics, port: 9100, targetPort: metrics}}\n"
    made, redirected, _ = load(folder.inject(deployment, service, words=said))
    (tool,) = spec_of(made)["containers"]
    assert [{"name": "metrics", "containerPort": 9100}, {"containerPort": 8000}] == tool["ports"]
    assert "http" == spec_of(made)["initContainers"][0]["ports"][0]["name"]
    assert [8080, "metrics"] == [port["targetPort"] for port in redirected["spec"]["ports"]]


def test_hooks_that_use_the_ports_name_get_its_number_like_probes(folder: Folder) -> None:
    hooked = DEPLOYMENT + "            preStop: {httpGet: {path: /bye, port: http}}\n"
    probed = hooked + "          livenessProbe: {tcpSocket: {port: http}}\n"
    made, *_ = load(folder.inject(probed, SERVICE))
    (tool,) = spec_of(made)["containers"]
    assert [{"path": "/warm", "port": 8000}, {"path": "/bye", "port": 8000}, {"port": 8000}] == [
        tool["lifecycle"]["postStart"]["httpGet"], tool["lifecycle"]["preStop"]["httpGet"],
        tool["livenessProbe"]["tcpSocket"],
    ]  # fmt: skip


# --- Services ---------------------------------------------------------------------------------------------------------
def test_rejects_a_service_that_leads_to_a_port_that_no_container_names(folder: Folder) -> None:
    assert [
        "26: service/weather leads to port 9101 of deployment/weather, past the proxy. If calls come there, the "
        "config's upstream 'weather' has to lead there (it leads to 8000). If not, name it in the container's `ports`"
    ] == folder.refuse(DEPLOYMENT, SERVICE.replace("targetPort: http", "targetPort: 9101"))


def test_a_service_that_selects_a_pod_without_a_proxy_too_is_refused(folder: Folder) -> None:
    second = DEPLOYMENT.replace(
        "name: weather\n", "name: second\n  annotations: {toolcall-proxy/inject: disabled}\n", 1
    )
    assert [
        "43: service/weather selects deployment/second too, which has no proxy: inject it as well, or narrow the "
        "selector"
    ] == folder.refuse(DEPLOYMENT, second, SERVICE)


def test_keeps_a_service_of_another_namespace(folder: Folder) -> None:
    here, there = (text.replace("name: weather\n", f"name: weather\n  namespace: {space}\n", 1)
                   for text, space in ((DEPLOYMENT, "a"), (SERVICE, "b")))  # fmt: skip
    made = folder.inject(here, there)
    assert there in made
    assert folder.said.startswith(
        "note: no Service here selects deployment/weather: one elsewhere that leads to port 8000"
    )


def test_asks_for_the_namespace_if_only_one_manifest_names_it(folder: Folder) -> None:
    here = DEPLOYMENT.replace("name: weather\n", "name: weather\n  namespace: a\n", 1)
    assert [
        "22: service/weather and deployment/weather: only one of them names its namespace: write it in both, or say "
        "with --namespace what the others mean"
    ] == folder.refuse(here, SERVICE)
    _, service, _ = load(folder.inject(here, SERVICE, words=("--namespace", "a")))
    assert 8080 == service["spec"]["ports"][0]["targetPort"]


def test_other_workloads_and_services_are_left_with_a_note(folder: Folder) -> None:
    rollout = DEPLOYMENT.replace("apps/v1", "argoproj.io/v1alpha1").replace("Deployment", "Rollout")
    knative = DEPLOYMENT.replace("apps/v1", "serving.knative.dev/v1").replace("Deployment", "Service")
    made = folder.inject(rollout.replace("{app: weather}", "{app: r}"), knative.replace("{app: weather}", "{app: k}"))
    assert 2 == made.count("hostNetwork") + len(load(made))
    notes = folder.said.splitlines()
    assert "note: rollout/weather (argoproj.io/v1alpha1) is left as it is: inject knows Deployment, " in notes[0]
    assert "guards its pods by the annotation toolcall-proxy/inject in its pod template" in notes[0]
    assert (
        "note: service/weather (serving.knative.dev/v1) is left as it is: Knative brings calls to its pods" in notes[1]
    )


# --- configs ----------------------------------------------------------------------------------------------------------
def test_each_workload_has_its_own_config_and_a_second_run_changes_nothing_of_the_first(folder: Folder) -> None:
    second = DEPLOYMENT.replace("weather", "second").replace("Deployment", "StatefulSet")
    names = [
        each["metadata"]["name"] for each in load(folder.inject(DEPLOYMENT, second)) if each["kind"] == "ConfigMap"
    ]
    assert ["weather-toolcall-proxy", "second-statefulset-toolcall-proxy"] == names
    shared = load(folder.inject(DEPLOYMENT, second, words=("--name", "both")))
    assert ["both"] == [each["metadata"]["name"] for each in shared if each["kind"] == "ConfigMap"]


def test_keeps_the_injection_of_another_run_with_another_config(folder: Folder) -> None:
    first = folder.inject(DEPLOYMENT, SERVICE)
    (folder.path / "config.yaml").write_text(CONFIG.replace(":8000", ":7000"))
    second = [text.replace("weather", "second").replace("8000", "7000") for text in (DEPLOYMENT, SERVICE)]
    both = folder.inject(first, *second, words=("--only", "deployment/second"))
    assert both.startswith(first)
    assert 8080 == load(both)[4]["spec"]["ports"][0]["targetPort"]


def test_a_change_that_needs_a_restart_changes_the_pods_and_another_does_not(folder: Folder) -> None:
    def template(config: str) -> Manifest:
        (folder.path / "config.yaml").write_text(config)
        made: Manifest = load(folder.inject(DEPLOYMENT, SERVICE))[0]["spec"]["template"]
        return made

    first = template(CONFIG)
    assert first == template(CONFIG + "defaults: {repair: off}\n")
    assert first == template(CONFIG + "telemetry: {log: {level: debug}}\n")
    changed = template(CONFIG + "state: {max_keys: 5}\n")
    assert (spec_of({"spec": {"template": first}}), True) == (
        spec_of({"spec": {"template": changed}}),
        first["metadata"]["annotations"] != changed["metadata"]["annotations"],
    )


def test_the_chart_and_inject_agree_on_what_needs_no_restart() -> None:
    text = (ROOT / "helm" / "templates" / "_config.tpl").read_text()
    (listed,) = re.findall(r'define "toolcall-proxy.live" -}}\n(.*)\n', text)
    assert set(listed.split()) == set(LIVE)


def test_undo_takes_everything_back_services_first(folder: Folder) -> None:
    own = DEPLOYMENT + "            preStop: {sleep: {seconds: 3}}\n"
    once = folder.inject(own, SERVICE)
    assert once == folder.inject(once)
    undone = folder.inject(once, words=("--undo",), config=False)
    assert load(f"{SERVICE}---\n{own}") == load(undone)
    assert "note: once the pods are new: kubectl delete configmap weather-toolcall-proxy\n" == folder.said


def test_undo_of_what_is_not_injected_is_refused(folder: Folder) -> None:
    assert "" == folder.inject(DEPLOYMENT, words=("--undo",), config=False, code=2)
    assert folder.said == (
        "inject: nothing here has the annotation toolcall-proxy/before, by which inject knows what it put in\n"
    )
    assert "" == folder.inject(DEPLOYMENT, config=False, code=2)
    assert "inject: use --config FILE, or only --undo\n" == folder.said


def test_a_sidecar_that_inject_did_not_put_in_is_not_replaced(folder: Folder) -> None:
    once = folder.inject(DEPLOYMENT, SERVICE)
    deployment, *rest = load(once)
    del deployment["metadata"]["annotations"]
    line, *_ = folder.refuse(yaml.safe_dump_all([deployment, *rest]))
    assert "deployment/weather has the sidecar toolcall-proxy already, and inject did not put it in" in line


# --- secrets ----------------------------------------------------------------------------------------------------------
PLAIN: list[tuple[str, str]] = [
    ("admin: {", "admin: { token: 0123456789abcdef0123456789abcdef, "),
    ('"http://127.0.0.1:8000" }', '"http://127.0.0.1:8000", headers: { set: { authorization: Bearer sk-abc } } }'),
    ("version: 1\n", 'version: 1\nstate: { backend: redis, url: "redis://:pw@redis:6379/0" }\n'),
]


@pytest.mark.parametrize(("before", "after"), PLAIN, ids=["token", "header", "url"])
def test_a_secret_in_plain_text_is_refused_as_by_the_chart(before: str, after: str, folder: Folder) -> None:
    (folder.path / "config.yaml").write_text(CONFIG.replace(before, after))
    assert "" == folder.inject(DEPLOYMENT, SERVICE, code=2)
    assert (
        "is a secret, and a ConfigMap would show it  (write ${file:/run/secrets/toolcall-proxy/KEY} and name"
        in folder.said
    )
    assert [] == [secret for secret in ("0123456789abcdef", "sk-abc", ":pw@") if secret in folder.said]


def test_rejects_references_that_nothing_in_the_pod_provides_with_their_line(folder: Folder) -> None:
    (folder.path / "config.yaml").write_text(
        CONFIG.replace('8000" }', '8000", headers: { set: { x-key: "${KEY}", x-other: "${file:/etc/key}" } } }')
    )
    assert "" == folder.inject(DEPLOYMENT, SERVICE, code=2)
    place, said = f"{folder.path}/config.yaml:6:", "the environment variable KEY is set by nothing in the pod"
    assert re.search(rf"{place}\d+  upstream 'weather'  {said}  \(give it with --env", folder.said)
    assert (
        "the file /etc/key cannot be read: nothing in the pod brings it there  (write ${file:/run/secrets/"
        in folder.said
    )
    (folder.path / "config.yaml").write_text(CONFIG.replace("admin: {", 'admin: { token: "${OTHER}", '))
    folder.inject(DEPLOYMENT, SERVICE, words=("--env", "OTHER=0123456789abcdef"), code=2)
    assert "the preStop hook needs the token too  (write ${file:/run/secrets/toolcall-proxy/KEY} or" in folder.said


def test_mounts_a_secret_and_passes_it_to_the_hook(folder: Folder) -> None:
    token = "${file:/run/secrets/toolcall-proxy/token}"
    config = CONFIG.replace("admin: {", f'admin: {{ token: "{token}", ')
    config = config.replace('8000" }', '8000", headers: { set: { x-key: "${KEY}" } } }')
    (folder.path / "config.yaml").write_text(config)
    (line,) = {line.partition(" ")[2] for line in folder.refuse(DEPLOYMENT, SERVICE, words=("--env", "KEY=v"))}
    assert line == (
        f"deployment/weather mounts no Secret, and {folder.path}/config.yaml:3 reads {token}  (say --secret NAME, or "
        "annotate the pod's template with toolcall-proxy/secret)"
    )
    by_word = folder.inject(DEPLOYMENT, SERVICE, words=("--env", "KEY", "--secret", "mine"))
    annotated = DEPLOYMENT.replace("    metadata:\n", ANNOTATED % "toolcall-proxy/secret: mine", 1)
    by_annotation = folder.inject(annotated, SERVICE, words=("--env", "KEY"))
    for made in (by_word, by_annotation):
        deployment = load(made)[0]
        must_be_valid(deployment)
        (proxy,) = spec_of(deployment)["initContainers"]
        assert ["--token-file", "/run/secrets/toolcall-proxy/token"] == proxy["lifecycle"]["preStop"]["exec"][
            "command"
        ][-2:]
        assert [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "KEY"}}}] == proxy["env"]
        assert {"name": "toolcall-proxy-secret", "secret": {"secretName": "mine", "defaultMode": 0o444}} in spec_of(
            deployment
        )["volumes"]
        assert "/run/secrets/toolcall-proxy" in [mount["mountPath"] for mount in proxy["volumeMounts"]]


def test_resources_level_and_events_are_given_to_the_sidecar(folder: Folder) -> None:
    said: dict[str, Any] = {
        "toolcall-proxy/cpu": "70m",
        "toolcall-proxy/memory": "99Mi",
        "toolcall-proxy/log-level": "debug",
    }
    annotated = DEPLOYMENT.replace("    metadata:\n", ANNOTATED % json.dumps(said)[1:-1], 1)
    deployment = load(folder.inject(annotated, SERVICE, words=("--events", "--cpu", "1")))[0]
    must_be_valid(deployment)
    (proxy,) = spec_of(deployment)["initContainers"]
    assert {"requests": {"cpu": "70m", "memory": "99Mi"}, "limits": {"memory": "99Mi"}} == proxy["resources"]
    assert ["--log-level", "debug", "--pod-events"] == proxy["args"][-3:]
    assert ["POD_NAME", "POD_UID"] == [each["name"] for each in proxy["env"]]
    assert "toolcall-proxy-account" in [each["name"] for each in spec_of(deployment)["volumes"]]
