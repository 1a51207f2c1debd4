"""The injector's policies as the chart renders them. Only an API server compiles CEL (`make cluster`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kubernetes.rendering import Manifest, must_be_valid, proxy_of, refusal, render

pytestmark = pytest.mark.large

INJECT = "tools-toolcall-proxy-inject-agents"
# Policy -> its kinds.
NAMES = {
    INJECT: ("Mutating", "Validating"),
    f"{INJECT}-namespace": ("Mutating", "Validating"),
    f"{INJECT}-services": ("Validating",),
    f"{INJECT}-namespace-services": ("Validating",),
    f"{INJECT}-to-pods": ("Validating",),
    f"{INJECT}-misplaced": ("Validating",),
}


def policies(**values: Any) -> dict[tuple[str, str], Manifest]:
    """Returns what is rendered of admission, by kind and name."""
    manifests = render("library", injector__enabled=True, **values)
    found = [each for each in manifests if "AdmissionPolicy" in each["kind"]]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def mutations(**values: Any) -> list[str]:
    """The expressions of the mutation for marked pods."""
    spec = policies(**values)["MutatingAdmissionPolicy", INJECT]["spec"]
    return [each[next(key for key in each if key != "patchType")]["expression"] for each in spec["mutations"]]


def test_every_policy_is_there_bound_and_off_by_default() -> None:
    made = policies()
    expected = {(f"{verb}AdmissionPolicy{end}", name) for name, verbs in NAMES.items() for verb in verbs
                for end in ("", "Binding")}  # fmt: skip
    assert expected == set(made)
    for (kind, name), manifest in made.items():
        must_be_valid(manifest)
        if kind.endswith("Binding"):
            assert name == manifest["spec"]["policyName"]
    assert [] == [each for each in render("library") if "AdmissionPolicy" in each["kind"]]


def test_the_policies_are_those_of_the_clusters_version() -> None:
    versions = [
        policies(version=version)["MutatingAdmissionPolicy", INJECT]["apiVersion"] for version in ("1.34.0", "1.36.0")
    ]
    assert ["admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1"] == versions
    assert "use `toolcall-proxy inject` on the manifests instead" in refusal(
        "library", injector__enabled=True, version="1.33.0"
    )


def test_a_release_may_consist_of_only_the_injector() -> None:
    made = {each["kind"] for each in render(shape="library", injector__enabled=True)}
    assert made == {each for each in made if "AdmissionPolicy" in each}


def test_the_policy_puts_in_what_the_chart_renders() -> None:
    container, values, _ = mutations(ports={"calls": 7000, "admin": 7001, "probes": 7002}, drain__seconds=30)
    own = proxy_of(render("tool"))
    assert all(f"{probe}Probe{{httpGet" in container for probe in ("startup", "readiness", "liveness"))
    assert all(words in container for words in ("containerPort: 7000", "containerPort: 7002", "seconds: 35", "> 300 ?"))
    memory = [f"optional.of('{own['resources'][key]['memory']}')" for key in ("requests", "limits")]
    assert [True, True] == [words in container for words in memory]
    assert json.dumps(own["command"]) in values
    assert json.dumps([*own["args"][:2], "--pod-ports", "7000,7002,7001"])[:-1] in values
    assert '"drain", "--admin", "127.0.0.1:7001", "--config", "/etc/toolcall-proxy/config.yaml"' in values


def test_the_name_of_the_port_moves_in_probes_and_hooks() -> None:
    *_, name = mutations()
    for place in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle/postStart", "lifecycle/preStop"):
        assert [True, True] == [f'"/{place}/{how}/port"' in name for how in ("httpGet", "tcpSocket")]


def test_the_releases_secret_and_variables_are_injected() -> None:
    env = [
        {"name": "A", "value": "b"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "k"}}},
    ]
    spec = policies(existingSecret="mine", extraEnv=env)["MutatingAdmissionPolicy", INJECT]["spec"]
    (secret,) = [each["expression"] for each in spec["variables"] if each["name"] == "secret"]
    assert "variables.said[?'toolcall-proxy/secret'].orValue('mine')" == secret
    container, values, _ = mutations(existingSecret="mine", extraEnv=env)
    assert 'Object.spec.initContainers.env{name: "A", value: "b"}' in container
    assert '/env/1/valueFrom", value: Object.spec.initContainers.env.valueFrom{secretKeyRef: ' in values


@pytest.mark.parametrize("value", ["extraEnvFrom", "extraVolumes", "extraVolumeMounts", "schemaConfigMaps"])
def test_rejects_values_that_are_not_injected(value: str) -> None:
    entry = {"name": "a", "mountPath": "/a"} if value == "extraVolumeMounts" else {"name": "a"}
    said = refusal(shape="library", case="", injector__enabled=True, **{value: [entry]})
    assert f"{value} is not injected: give it to the release of a pod of its own" in said


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"])
def test_a_pod_that_wants_nothing_meets_no_policy(kind: str) -> None:
    """Match conditions know only the pod: a condition on its namespace failed there, and every pod was refused."""
    made = policies()
    of_pod, of_namespace = (made[kind, f"{INJECT}{end}"]["spec"] for end in ("", "-namespace"))
    conditions = [each["expression"] for spec in (of_pod, of_namespace) for each in spec["matchConditions"]]
    assert [] == [expression for expression in conditions if "namespaceObject" in expression]

    annotation = "object.metadata.?annotations[?'toolcall-proxy/inject'].orValue('')"
    assert [f"!({annotation} in ['', 'disabled'])", f"{annotation} == ''"] == [
        spec["matchConditions"][0]["expression"] for spec in (of_pod, of_namespace)
    ]
    own = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
    key = "toolcall-proxy/inject"
    marked = [{"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": ["", "disabled"]}]
    assert [own, own + marked] == [
        spec["matchConstraints"]["namespaceSelector"]["matchExpressions"] for spec in (of_pod, of_namespace)
    ]


def test_the_services_of_a_namespace_are_the_parameters_of_its_pods_and_the_other_way_around() -> None:
    made = policies()
    seen = {
        end: made["ValidatingAdmissionPolicy", f"{INJECT}{end}"]["spec"]["paramKind"]["kind"]
        for end in ("-services", "-namespace-services", "-to-pods")
    }
    assert {"-services": "Service", "-namespace-services": "Service", "-to-pods": "Pod"} == seen
    for end in seen:
        reference = made["ValidatingAdmissionPolicyBinding", f"{INJECT}{end}"]["spec"]["paramRef"]
        assert {"selector": {}, "parameterNotFoundAction": "Allow"} == reference


@pytest.mark.parametrize("case", ["gateway", "tool", "tool-plain"])
def test_the_charts_own_pods_want_no_sidecar_in_a_marked_namespace(case: str) -> None:
    """The pods of the hooks, too: a check of the config must not wait for a missing ConfigMap."""
    templates = [
        each if each["kind"] == "Pod" else each["spec"]["template"]
        for each in render(case)
        if each["kind"] in {"Pod", "Job", "Deployment"}
    ]
    annotations = [each["metadata"]["annotations"] for each in templates]
    assert ["disabled"] * 3 == [each["toolcall-proxy/inject"] for each in annotations]


def test_every_refusal_is_a_short_sentence_that_says_what_to_do() -> None:
    messages = {
        each["message"]
        for (kind, _), manifest in policies().items()
        if kind == "ValidatingAdmissionPolicy"
        for each in manifest["spec"]["validations"]
    }
    assert 13 == len(messages)
    remedies = ("Take it out", "Annotate", "annotate", "Correct", "Give", "Let its targetPort", "Write it there")
    for message in messages:
        assert message.startswith("toolcall-proxy: ")
        assert len(message) < 200, message
        assert any(remedy in message for remedy in remedies), message
