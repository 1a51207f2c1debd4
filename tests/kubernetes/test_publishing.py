"""Ingress and HTTPRoute: off by default, and both lead only to the Service."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.rendering import must_be_valid, of_kind, render, service_of, template

PORT: dict[str, Any] = {"service__port": 8000}
BACKEND = {"service": {"name": "tools-toolcall-proxy", "port": {"number": 8000}}}


@pytest.mark.parametrize("shape", ["gateway", "tool"])
def test_publishes_nothing_by_default(shape: str) -> None:
    assert set() == {"Ingress", "HTTPRoute"} & {manifest["kind"] for manifest in render(shape)}


def test_an_ingress_without_hosts_takes_every_path_of_every_host() -> None:
    manifests = render("gateway", ingress__enabled=True, **PORT)
    ingress = of_kind(manifests, "Ingress")
    must_be_valid(ingress)
    path = {"path": "/", "pathType": "Prefix", "backend": BACKEND}
    assert {"rules": [{"http": {"paths": [path]}}]} == ingress["spec"]
    assert BACKEND["service"]["name"] == service_of(manifests)["metadata"]["name"]


def test_an_ingress_has_the_hosts_paths_class_and_certificates_that_are_named() -> None:
    hosts = [{"host": "a.example.com", "paths": [{"path": "/tools", "pathType": "Exact"}, {"path": "/mcp"}]},
             {"host": "b.example.com"}]  # fmt: skip
    tls = [{"hosts": ["a.example.com"], "secretName": "a"}]
    values = {"className": "nginx", "hosts": hosts, "tls": tls, "annotations": {"x": "1"}, "labels": {"y": "2"}}
    ingress = of_kind(render("tool", ingress={"enabled": True, **values}, **PORT), "Ingress")
    must_be_valid(ingress)
    exact = {"path": "/tools", "pathType": "Exact", "backend": BACKEND}
    prefixes = [{"path": path, "pathType": "Prefix", "backend": BACKEND} for path in ("/mcp", "/")]
    assert {
        "ingressClassName": "nginx",
        "tls": tls,
        "rules": [
            {"host": "a.example.com", "http": {"paths": [exact, prefixes[0]]}},
            {"host": "b.example.com", "http": {"paths": [prefixes[1]]}},
        ],
    } == ingress["spec"]
    assert ({"x": "1"}, "2") == (ingress["metadata"]["annotations"], ingress["metadata"]["labels"]["y"])


def test_a_route_of_the_gateway_api_leads_to_the_service_by_every_rule() -> None:
    parents = [{"name": "agents", "namespace": "gateways"}]
    backends = [{"name": "tools-toolcall-proxy", "port": 8000}]
    least = render("tool", httpRoute={"enabled": True, "parentRefs": parents}, **PORT)
    assert {"parentRefs": parents, "rules": [{"backendRefs": backends}]} == of_kind(least, "HTTPRoute")["spec"]

    rules: list[dict[str, Any]] = [
        {"matches": [{"path": {"type": "PathPrefix", "value": "/a"}}]}, {"timeouts": {"request": "60s"}},
    ]  # fmt: skip
    more = {"enabled": True, "parentRefs": parents, "hostnames": ["tools.example.com"], "rules": rules}
    spec = of_kind(render("gateway", httpRoute=more, **PORT), "HTTPRoute")["spec"]
    assert {
        "parentRefs": parents,
        "hostnames": ["tools.example.com"],
        "rules": [{**rule, "backendRefs": backends} for rule in rules],
    } == spec


def test_a_rule_cannot_lead_past_the_service() -> None:
    rules = [{"backendRefs": [{"name": "tool", "port": 9101}]}]
    done = template("tool", httpRoute={"enabled": True, "parentRefs": [{"name": "agents"}], "rules": rules})
    assert (1, True) == (done.returncode, "/httpRoute/rules/0" in done.stderr), done.stderr
