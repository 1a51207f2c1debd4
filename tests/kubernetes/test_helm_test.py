"""`helm test` of a release that serves TLS: by a private authority that a value names, or with a line that says so; and
the notes and Events of a release."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.rendering import (
    CHART,
    case_file,
    helm,
    must_be_valid,
    of_kind,
    pod_of,
    proxy_of,
    refusal,
    render,
)
from tests.serving.keys import authority, certificate
from tests.serving.proxied import WEATHER, proxied

pytestmark = pytest.mark.large

TLS = {
    "config__listen": {"tls": {"cert": "/run/secrets/toolcall-proxy/tls.crt", "key": "/run/secrets/toolcall-proxy/k"}}
}


async def test_trusts_a_private_authority_by_its_file_and_names_the_certificate_without_it(tmp_path: Path) -> None:
    authority(tmp_path)
    certificate(tmp_path, "proxy", "DNS:localhost")
    listen = f"{{host: 127.0.0.1, port: 0, tls: {{cert: {tmp_path}/proxy.pem, key: {tmp_path}/proxy.key}}}}"
    calls = json.dumps([{"path": "/nowhere", "status": 404}, {"path": "/weather", "body": {"lat": []}, "status": 400}])
    async with proxied(WEATHER, listen=listen) as proxy:

        async def run(**environ: str) -> subprocess.CompletedProcess[str]:
            given = {"PATH": os.defpath, "TARGET": f"https://localhost:{proxy.port}", "CALLS": calls, **environ}
            words = [sys.executable, str(CHART / "files" / "calls.py")]
            return await asyncio.to_thread(
                subprocess.run, words, env=given, capture_output=True, text=True, check=False
            )

        trusted, not_trusted = await run(AUTHORITY=str(tmp_path / "ca.pem")), await run()

    assert (0, 2, "") == (trusted.returncode, trusted.stdout.count("ok  "), trusted.stderr), trusted.stdout
    assert (1, "") == (not_trusted.returncode, not_trusted.stderr)
    lines = not_trusted.stdout.splitlines()
    said = "its certificate is not trusted: name the authority that has signed it in the value test.authority"
    assert [True, True] == [line.startswith("WRONG") and said in line for line in lines]


@pytest.mark.parametrize("kind", ["secret", "configMap"])
def test_mounts_only_the_authority(kind: str) -> None:
    values: dict[str, Any] = TLS | {"test__authority": {kind: "mine", "key": "root.pem"}}
    pod = of_kind(render("tool", **values), "Pod")
    must_be_valid(pod)
    (container,) = pod["spec"]["containers"]
    environ = {each["name"]: each["value"] for each in container["env"]}
    assert environ["TARGET"] == "https://tools-toolcall-proxy.agents.svc:80"
    assert environ["AUTHORITY"] == "/run/toolcall-proxy-authority/root.pem"
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "authority"]
    source = {"name": "mine", "items": [{"key": "root.pem", "path": "root.pem"}]}
    assert [{kind: source}] == volume["projected"]["sources"]


def test_two_authorities_are_refused() -> None:
    assert "name the one that holds the authority's certificate" in refusal(
        "tool", test__authority={"secret": "a", "configMap": "b"}
    )


def read_notes(*words: str | Path) -> str:
    done = helm("install", "inj", CHART, "--namespace", "tools", "--dry-run=client", *words)
    assert 0 == done.returncode, done.stderr
    return done.stdout.rpartition("NOTES:\n")[2]


def test_the_notes_of_an_injector_name_the_annotation_and_no_config_map() -> None:
    notes = read_notes("--set", "shape=library", "--set", "injector.enabled=true")
    assert '{"annotations": {"toolcall-proxy/inject": "weather-toolcall-proxy"}}' in notes
    assert "inj-toolcall-proxy" not in notes
    assert "its config is the ConfigMap inj-toolcall-proxy" in read_notes(*case_file("library"))


# --- Events -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("case", "account"), [("tool", "tools-toolcall-proxy"), ("library", "default")])
def test_events_bring_the_one_right_they_need_and_a_token_only_for_the_proxy(case: str, account: str) -> None:
    manifests = render(case, events__enabled=True)
    for manifest in manifests:
        if manifest["kind"] in ("Role", "RoleBinding", "Deployment"):
            must_be_valid(manifest)
    assert [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}] == of_kind(manifests, "Role")["rules"]
    (subject,) = of_kind(manifests, "RoleBinding")["subjects"]
    assert {"kind": "ServiceAccount", "name": account, "namespace": "agents"} == subject
    if case == "tool":
        mounts: dict[str, Any] = {
            each["name"]: [mount["mountPath"] for mount in each.get("volumeMounts", ())]
            for each in (proxy_of(manifests), *pod_of(manifests)["spec"]["containers"])
        }
        folder = "/var/run/secrets/kubernetes.io/serviceaccount"
        assert [True, False] == [folder in mounts[name] for name in ("toolcall-proxy", "tool")]
        assert "--pod-events" == proxy_of(manifests)["args"][-1]


def test_there_are_no_rights_without_them() -> None:
    assert [] == [each for each in render("tool") if each["kind"].startswith("Role")]
    assert "pods that the injector guards get no token" in refusal(
        "library", events__enabled=True, injector__enabled=True
    )
