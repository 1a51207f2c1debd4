"""Every case of helm/ci is linted, rendered and held against the schemas of Kubernetes; its config serves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy import __version__
from proxy.core.json.jsontext import walk
from tests.docs import chart_values
from tests.kubernetes.rendering import (
    CASES,
    CHART,
    ROOT,
    VERSIONS,
    case_file,
    containers,
    files_of,
    helm,
    mounted_files,
    must_be_valid,
    of_kind,
    pod_of,
    pods,
    proxy_of,
    refusal,
    render,
    service_of,
    template,
)

NAMES = [path.name.removesuffix("-values.yaml") for path in CASES]
# Kinds of the Prometheus operator: Kubernetes itself knows no schema of them.
FOREIGN = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
WITH_POD = [name for name in NAMES if name != "library"]


def test_there_is_a_case_for_every_shape() -> None:
    shapes = {yaml.safe_load(path.read_text())["shape"] for path in CASES}
    assert set(yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["shape"]["enum"]) == shapes


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_helm_finds_nothing_to_say_about_a_case(case: Path) -> None:
    done = helm("lint", CHART, "--strict", "--values", case)
    assert (0, []) == (
        done.returncode,
        [line for line in done.stdout.splitlines() if "[ERROR]" in line or "[WARN" in line],
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_every_manifest_is_what_kubernetes_takes(name: str, version: str) -> None:
    for manifest in render(name, version=version):
        if manifest["kind"] not in FOREIGN:
            must_be_valid(manifest, version)


def test_the_version_is_that_of_the_proxy() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (__version__, __version__) == (chart["appVersion"], chart["version"])


def test_renders_every_manifest_that_an_operator_can_switch_on() -> None:
    kinds = sorted(manifest["kind"] for manifest in render("gateway-scaled"))
    expected = [
        "ConfigMap", "ConfigMap", "ConfigMap", "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Job",
        "NetworkPolicy", "Pod", "PodDisruptionBudget", "PrometheusRule", "Service", "Service", "ServiceAccount",
        "ServiceMonitor",
    ]  # fmt: skip
    assert expected == kinds


def test_the_library_makes_no_pod_and_no_service() -> None:
    kinds = sorted(manifest["kind"] for manifest in render("library"))
    assert ["ConfigMap", "ConfigMap", "ConfigMap", "Job", "NetworkPolicy", "PodMonitor", "PrometheusRule"] == kinds


def test_the_packaged_chart_has_what_it_renders_and_no_more(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as packed:
        names = {name.removeprefix("toolcall-proxy/") for name in packed.getnames()}
    tops = {name.partition("/")[0] for name in names}
    expected = {
        "Chart.yaml",
        "README.md",
        "values.yaml",
        "values.schema.json",
        "templates",
        "files",
        "alerts",
        "dashboards",
    }
    assert expected | {".helmignore"} == tops


def test_the_page_shows_an_extra_object_that_renders() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(extraObjects:.*?)^```$", page, re.MULTILINE | re.DOTALL)
    scaled = of_kind(render("gateway", **yaml.safe_load(shown)), "ScaledObject")
    named = {"name": "tools-toolcall-proxy"}
    assert (named, named) == (scaled["metadata"], scaled["spec"]["scaleTargetRef"])


# --- the values -------------------------------------------------------------------------------------------------------
def test_the_schema_of_the_values_is_up_to_date() -> None:
    assert chart_values.schema_text() == chart_values.SCHEMA.read_text(), "run `make docs`"


def test_every_value_is_described() -> None:
    assert [] == [value.key for value in chart_values.flat(chart_values.values()) if not value.text]


@pytest.mark.parametrize("path", ["shpae", "drain.secnds", "metrics.podMonitor.enabeld", "config.ruotes", "tool.prot"])
def test_a_typo_is_refused(path: str) -> None:
    typo: dict[str, Any] = {path.replace(".", "__"): 1}
    done = template("tool", **typo)
    assert (1, True) == (
        done.returncode,
        f"additional properties '{path.rpartition('.')[2]}' not allowed" in done.stderr,
    )


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"config__drain": "3s"}, "config.drain is written by the chart: set drain.seconds and"),
    ({"config__version": 1}, "config.version is written by the chart: set nothing: it is that of the chart instead"),
    ({"config__listen": {"port": 1}}, "config.listen.port is written by the chart: set `ports`"),
    ({"config__admin": "off"}, "config.admin: where it listens is decided by `ports`"),
    ({"config__admin": {"token": "0123456789abcdef"}}, "config.admin.token is a secret, and the config becomes"),
    ({"config__admin": {"token": "${SOME_TOKEN}"}}, "config.admin.token: the preStop hook needs it too"),
    ({"config__state": {"url": "redis://user:pass@host"}}, "config.state.password is a secret, and the config"),
    ({"config__defaults__headers": {"set": {"X-Api-Key": "abc"}}}, "config.defaults.headers.set.X-Api-Key is a secret"),
    ({"config__correction": {"upstream": "t", "model": "m", "body": {"api_key": "abc"}}}, "correction.body.api_key is"),
    ({"config__routes": [{"path": "/", "headers": {"set": {"cookie": "a"}}}]}, "0.headers.set.cookie is a secret"),
    ({"tool__image__repository": ""}, "tool.image.repository is empty: name the image"),
    ({"tool__port": 8080}, "tool.port and ports.calls are both 8080, and the containers of a pod share its ports"),
    ({"schemas": {"a.yaml": "x" * 1_000_001}}, "a ConfigMap holds 1 MiB: put schemas into ConfigMaps of their own"),
    ({"metrics__prometheusRule": {"enabled": True, "disabled": ["Nope"]}}, 'prometheusRule.disabled names "Nope"'),
    ({"tool__readinessProbe": {"httpGet": {"path": "/", "port": 9101}}}, "tool.readinessProbe asks port 9101, which"),
    ({"tool__startupProbe": {"tcpSocket": {"port": 9101}}}, "leave readinessProbe out (the proxy asks the tool), set"),
    ({"tool__livenessProbe": {"grpc": {"port": 9101}}}, "tool.livenessProbe asks port 9101, which is on the pod's"),
    ({"httpRoute__enabled": True}, "httpRoute.parentRefs is empty: name the Gateway that takes the calls, such as"),
    ({"autoscaling": {"enabled": True, "minReplicas": 11}}, "autoscaling.minReplicas is 11, more than"),
]  # fmt: skip


def test_a_chart_without_a_config_asks_for_one() -> None:
    assert refusal("").startswith("nothing says what is served: set `config` with its routes")


@pytest.mark.parametrize(("values", "words"), REFUSALS, ids=[words[:40] for _, words in REFUSALS])
def test_rejects_meaningless_values_with_a_remedy(values: dict[str, Any], words: str) -> None:
    assert words in refusal("tool", **values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"podDisruptionBudget__enabled": True}, "podDisruptionBudget is for the shapes gateway and tool"),
        ({"autoscaling__enabled": True}, "autoscaling is for the shapes gateway and tool"),
        ({"ingress__enabled": True}, "ingress is for the shapes gateway and tool"),
        ({"httpRoute__enabled": True}, "httpRoute is for the shapes gateway and tool"),
        ({"metrics__serviceMonitor__enabled": True}, "take metrics.podMonitor instead"),
    ],
)
def test_the_library_refuses_what_needs_a_pod(values: dict[str, Any], words: str) -> None:
    assert words in refusal("library", **values)


# --- the pods ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", WITH_POD)
def test_every_pod_fits_the_pod_security_level_restricted(name: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, "Restricted"."""
    for spec in pods(render(name)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert {"configMap", "projected", "secret", "emptyDir"} >= {
            kind for volume in spec.get("volumes", ()) for kind in volume if kind != "name"
        }
        for container in containers(spec):
            context = container["securityContext"]
            assert (True, False, {"drop": ["ALL"]}, {"type": "RuntimeDefault"}) == (
                context["runAsNonRoot"],
                context["allowPrivilegeEscalation"],
                context["capabilities"],
                context["seccompProfile"],
            )
            assert 0 != context.get("runAsUser")
            assert not any("hostPort" in port for port in container.get("ports", ()))


@pytest.mark.parametrize("name", WITH_POD)
def test_no_pod_has_a_token_and_the_proxy_writes_nothing(name: str) -> None:
    manifests = render(name)
    assert [False] * len(list(pods(manifests))) == [spec["automountServiceAccountToken"] for spec in pods(manifests)]
    assert [False] == [
        each["automountServiceAccountToken"] for each in manifests if each["kind"] == "ServiceAccount"
    ] or (name == "tool-plain")
    assert True is proxy_of(manifests)["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.parametrize("name", WITH_POD)
def test_nothing_is_mounted_by_subpath(name: str) -> None:
    mounts = [
        mount for spec in pods(render(name)) for each in containers(spec) for mount in each.get("volumeMounts", ())
    ]
    assert [] == [mount for mount in mounts if "subPath" in mount or "subPathExpr" in mount]


def test_a_digest_goes_before_the_tag() -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    assert f"registry.example.com/tools/toolcall-proxy@{digest}" == proxy_of(render("gateway-scaled"))["image"]
    assert f"toolcall-proxy:{__version__}" == proxy_of(render("gateway"))["image"]


def test_no_service_leads_past_the_proxy() -> None:
    manifests = render("tool", networkPolicy__from=[{"podSelector": {"matchLabels": {"app": "agent"}}}])
    service, policy = service_of(manifests)["spec"], of_kind(manifests, "NetworkPolicy")["spec"]
    metrics = service_of(manifests, "-metrics")["spec"]["ports"]
    assert [("http", 8080)] == [(port["name"], port["targetPort"]) for port in service["ports"]]
    assert [("metrics", 9091)] == [(port["name"], port["targetPort"]) for port in metrics]
    assert [8080, 9091] == [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    agent, ours = policy["ingress"][0]["from"]
    assert {"podSelector": {"matchLabels": {"app": "agent"}}} == agent
    test = of_kind(manifests, "Pod")["metadata"]["labels"]
    assert ours["podSelector"]["matchLabels"].items() <= test.items()
    assert not service["selector"].items() <= test.items()


@pytest.mark.parametrize("name", WITH_POD)
def test_every_selector_finds_the_pods(name: str) -> None:
    manifests = render(name)
    labels = pod_of(manifests)["metadata"]["labels"].items()
    selecting = {"PodDisruptionBudget", "PodMonitor"}
    selectors = [
        of_kind(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in manifests if each["kind"] == "Service"),
        *(each["spec"]["podSelector"]["matchLabels"] for each in manifests if each["kind"] == "NetworkPolicy"),
        *(each["spec"]["selector"]["matchLabels"] for each in manifests if each["kind"] in selecting),
    ]  # fmt: skip
    assert [] == [selector for selector in selectors if not selector.items() <= labels]
    for monitor in (each for each in manifests if each["kind"] == "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert wanted <= service_of(manifests, "-metrics")["metadata"]["labels"].items()
        assert not wanted <= service_of(manifests)["metadata"]["labels"].items()
        ports = [port["name"] for port in service_of(manifests, "-metrics")["spec"]["ports"]]
        assert {"metrics"} == {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} & set(ports)


def test_probes_ask_the_port_that_never_depends_on_the_tool() -> None:
    proxy = proxy_of(render("tool"))
    asked = {name: proxy[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {
        "startup": {"path": "/startupz", "port": "toolproxy-probe"},
        "readiness": {"path": "/readyz", "port": "toolproxy-probe"},
        "liveness": {"path": "/livez", "port": "toolproxy-probe"},
    } == asked
    assert {"toolproxy": 8080, "toolproxy-probe": 9091} == {
        port["name"]: port["containerPort"] for port in proxy["ports"]
    }


CONFIG_SCHEMA = json.loads((ROOT / "schemas" / "config.schema.json").read_text())


# --- the config -------------------------------------------------------------------------------------------------------
ENVIRONMENT = {"REDIS_URL": "redis://redis:6379"}


@pytest.mark.parametrize("name", ["gateway", "gateway-scaled", "tool", "tool-plain", "library"])
def test_the_config_is_one_that_the_proxy_serves(name: str, tmp_path: Path) -> None:
    manifests = render(name)
    if name == "library":
        config_map = next(each for each in manifests if each["kind"] == "ConfigMap" and "config.yaml" in each["data"])
        files = config_map["data"]
    else:
        files = files_of(manifests)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    for key, secret in {"admin-token": "0123456789abcdef", "redis-url": "redis://redis", "search-token": "t"}.items():
        (tmp_path / key).write_text(secret)
    config = tmp_path / "config.yaml"
    config.write_text(config.read_text().replace("/run/secrets/toolcall-proxy", str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "check", str(config)],
        capture_output=True, text=True, check=False, env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    assert ": ok, " in done.stdout


def alternatives(schema: Any) -> Iterator[Any]:
    """Yields the schemas of a place of the config, one after the other."""
    schema = CONFIG_SCHEMA["$defs"].get(schema.get("$ref", "").rsplit("/", 1)[-1], schema)
    yield schema
    for branch in schema.get("anyOf", ()):
        yield from alternatives(branch)


def test_off_in_a_values_file_is_off_in_the_config() -> None:
    """A values file is YAML 1.1, where `off` is false; where the config wants the word, the chart gives it back."""
    holders = [each["properties"] for each in walk(CONFIG_SCHEMA) if isinstance(each, dict) and "properties" in each]
    keys = {
        name
        for properties in holders
        for name, schema in properties.items()
        for each in (alternatives(schema) if isinstance(schema, dict) else ())
        if "off" in each.get("enum", ()) and False not in each["enum"]
    }
    (listed,) = re.findall(r"not \$inner\) \(has \$key \(list (.*?)\)\)", (CHART / "templates/_config.tpl").read_text())
    assert keys == set(listed.replace('"', "").split())

    inner = {"type": "object", "properties": {"level": False}}
    values: dict[str, Any] = {
        "config__defaults": {"repair": False, "cors": False},
        "config__tools": {"other": {"schema": inner, "repair": {"level": False, "rules": {"yes_no": False}}}},
        "config__telemetry": {"traces": False},
    }
    config = yaml.safe_load(files_of(render("tool", **values))["config.yaml"])
    assert ("off", False) == (config["defaults"]["repair"], config["defaults"]["cors"])
    assert {"level": "off", "rules": {"yes_no": False}} == config["tools"]["other"]["repair"]
    assert (inner, "off") == (config["tools"]["other"]["schema"], config["telemetry"]["traces"])


MISREAD = [
    ("{properties: {n: {type: integer}}}", 'config.routes.0.schema.properties holds the key "false"'),
    (
        "{properties: {answer: {enum: [yes, maybe]}}}",
        "schema.properties.answer holds a truth value in enum",
    ),
    ("{properties: {answer: {const: on}}}", "schema.properties.answer holds a truth value in const"),
    (
        "[{name: a, type: int, maximum: 9007199254740993}]",
        "schema.0.maximum holds a number beyond 2^53",
    ),
]


@pytest.mark.parametrize(("schema", "words"), MISREAD, ids=[row[0] for row in MISREAD])
def test_a_schema_that_helm_may_have_misread_is_refused(schema: str, words: str, tmp_path: Path) -> None:
    """ "Wrong and accepted" is zero: a property that is called otherwise than it was written would be just that."""
    route = "{path: /a, upstream: none, tool: a, schema: %s}"
    (tmp_path / "values.yaml").write_text(f"config: {{routes: [{route % schema}]}}")
    done = helm("template", CHART, "--values", tmp_path / "values.yaml")
    assert (1, True) == (done.returncode, words in done.stderr), done.stderr


def test_files_keep_their_bytes_and_large_numbers_stay_what_they_are() -> None:
    text = 'type: object\nproperties: {on: {const: 9007199254740993}, "b": {enum: [yes, "no"]}}\n# é\n'
    files = files_of(render("tool", schemas={"weather.yaml": text, "currency.json": "{}"}))
    assert (text, "{}") == (files["weather.yaml"], files["currency.json"])
    assert 1_000_000 == yaml.safe_load(files_of(render("gateway-scaled"))["config.yaml"])["state"]["max_keys"]


def test_schemas_lie_next_to_the_config_and_only_file_names_are_rewritten() -> None:
    """A mount that gave them a folder would list them by name, and a further one would roll the pod."""
    inline = {"$ref": "schemas/weather.yaml#/a", "const": "schemas/weather.yaml", "type": "string"}
    described = {"openapi": "schemas/currency.json", "operation": "b"}
    values: dict[str, Any] = {
        "config__tools": {"a": {"schema": inline}, "b": {"schema": described}},
        "config__documents": {"urn:w": "schemas/weather.yaml", "urn:other": "schemas/other.yaml"},
    }  # fmt: skip
    config = yaml.safe_load(files_of(render("tool", **values))["config.yaml"])
    assert inline | {"$ref": "weather.yaml#/a"} == config["tools"]["a"]["schema"]
    assert {"openapi": "currency.json", "operation": "b"} == config["tools"]["b"]["schema"]
    assert {"urn:w": "weather.yaml", "urn:other": "schemas/other.yaml"} == config["documents"]
    assert ["weather.yaml", "currency.json"] == [route["schema"] for route in config["routes"]]
    mounts = [source["configMap"] for source in pod_of(render("tool"))["spec"]["volumes"][0]["projected"]["sources"]]
    assert [{"name": "tools-toolcall-proxy"}] == mounts


def test_no_config_map_contains_a_secret() -> None:
    manifests = render("gateway-scaled")
    config = yaml.safe_load(files_of(manifests)["config.yaml"])
    assert "${file:/run/secrets/toolcall-proxy/admin-token}" == config["admin"]["token"]
    assert [] == [manifest for manifest in manifests if manifest["kind"] == "Secret"]
    (volume,) = [each for each in pod_of(manifests)["spec"]["volumes"] if "secret" in each]
    assert {"secretName": "toolcall-proxy", "defaultMode": 0o444} == volume["secret"]


def test_files_of_other_config_maps_lie_next_to_the_config() -> None:
    spec = pod_of(render("tool-own-config"))["spec"]
    maps = {"tools-config": {"config.yaml": "a", "x.json": "b"}, "tools-openapi": {"petstore.yaml": "c"}}
    assert {"config.yaml": "a", "x.json": "b", "schemas/petstore.yaml": "c"} == mounted_files(spec, maps)


# --- what is said -----------------------------------------------------------------------------------------------------
def notes(name: str, **values: object) -> str:
    done = helm("install", "tools", CHART, "--dry-run=client", *case_file(name), values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


def test_the_notes_name_the_address_and_warn_of_likely_mistakes() -> None:
    plain = notes("tool")
    assert "takes calls at http://tools-toolcall-proxy.default:80" in plain
    assert "its tool is kept alive for 20 s, and has 300 s in all" in plain
    assert "WARNING" not in plain

    many = notes("tool", replicaCount=3, config__upstreams={"tool": {"url": "http://10.0.0.1:80"}})
    assert "WARNING: several pods do not share their state" in many
    assert "WARNING: the upstream tool is outside of this pod (http://10.0.0.1:80)" in many


def test_the_alerts_and_the_dashboard_are_those_of_the_repository() -> None:
    manifests = render("gateway-scaled")
    base = "https://wiki.example.com/runbook"
    text = (CHART / "alerts/toolcall-proxy.yaml").read_text()
    written = yaml.safe_load(text.replace("runbook_url: docs/runbook.md#", f"runbook_url: {base}#"))["groups"]
    *groups, ours = of_kind(manifests, "PrometheusRule")["spec"]["groups"]
    assert (written, "ours") == (groups, ours["name"])
    name = written[0]["rules"][0]["alert"]
    fewer = render("library", metrics__prometheusRule={"enabled": True, "disabled": [name], "runbookURL": base})
    left = [rule["alert"] for group in of_kind(fewer, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    assert [rule["alert"] for group in written for rule in group["rules"] if rule["alert"] != name] == left
    dashboard = next(each for each in manifests if each["metadata"]["name"] == "tools-toolcall-proxy-dashboard")
    shown = (CHART / "dashboards/toolcall-proxy.json").read_text()
    assert ({"toolcall-proxy.json": shown}, "1") == (
        dashboard["data"],
        dashboard["metadata"]["labels"]["grafana_dashboard"],
    )


def test_a_tool_scales_by_its_own_container_and_needs_requests() -> None:
    metrics = of_kind(render("tool", autoscaling__enabled=True), "HorizontalPodAutoscaler")["spec"]["metrics"]
    target = {"type": "Utilization", "averageUtilization": 70}
    assert [
        {"type": "ContainerResource", "containerResource": {"container": "tool", "name": "cpu", "target": target}}
    ] == metrics
    words = "tool.resources.requests.memory is not set: set it, or autoscaling.targetMemory to null"
    scaled = {"enabled": True, "targetCPU": None, "targetMemory": 80}
    assert words in refusal("tool-plain", autoscaling=scaled, tool__resources__requests={"memory": None})
    render("tool-plain", autoscaling=scaled)


def test_the_first_example_needs_no_operator() -> None:
    groups = {each["apiVersion"].partition("/")[0] for each in render("tool")}
    assert not {group for group in groups if "monitoring" in group}
