"""`make release` as far as it goes without a registry: the chart is packaged and signed, the rest is printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from proxy import __version__
from tests.kubernetes.rendering import ROOT, helm, of_kind, program, proxy_of, render

REGISTRY = "registry.example.com/tools"
KEY = "release@example.com"
CHART = f"toolcall-proxy-{yaml.safe_load((ROOT / 'helm' / 'Chart.yaml').read_text())['version']}.tgz"


@pytest.fixture(scope="module")
def keys() -> Iterator[Path]:
    """A keyring with a new secret key, and the public one beside it; its agent ends with the tests."""
    program("helm")  # a release packages the chart with it
    gpg = shutil.which("gpg") or ""
    if not gpg:
        how = "no gpg here: apt-get install gnupg"
        pytest.fail(how) if os.environ.get("CI") == "true" else pytest.skip(how)
    # A short path: the agent's socket lies in it.
    with tempfile.TemporaryDirectory(prefix="gpg") as home:
        words = [gpg, "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        subprocess.run([*words, "--quick-generate-key", KEY, "rsa2048", "sign"], check=True, capture_output=True)
        for name, verb in (("secret.gpg", "--export-secret-keys"), ("public.gpg", "--export")):
            exported = subprocess.run([*words, verb, KEY], check=True, capture_output=True).stdout
            (Path(home) / name).write_bytes(exported)
        yield Path(home)
        subprocess.run([f"{gpg}conf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def release(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A dry run, into a folder."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRY_RUN": "1", "OUT": str(folder), **settings}
    if "KEYRING" in settings:
        environ.setdefault("COSIGN_KEY", "cosign.key")
    return subprocess.run(
        [ROOT / ".ci" / "release"], env=environ, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "REGISTRY is not set: say where images and charts go"),
        ({"REGISTRY": REGISTRY}, "KEY is not set: name the PGP key that signs the chart"),
        ({"REGISTRY": REGISTRY, "KEY": KEY}, "COSIGN_KEY is not set: name the key that signs the image"),
        (
            {"REGISTRY": REGISTRY, "KEY": KEY, "COSIGN_KEY": "c.key", "KEYRING": "/nowhere"},
            "no keyring /nowhere: gpg --export-secret-keys",
        ),
    ],
)
def test_names_a_missing_setting_before_it_does_anything(settings: dict[str, str], words: str, tmp_path: Path) -> None:
    done = release(tmp_path, **settings)
    assert (2, "", True) == (done.returncode, done.stdout, words in done.stderr)
    assert [] == [*tmp_path.iterdir()]


def test_a_dry_run_signs_the_chart_and_prints_what_it_would_send(keys: Path, tmp_path: Path) -> None:
    settings = {
        "REGISTRY": REGISTRY,
        "KEY": KEY,
        "KEYRING": str(keys / "secret.gpg"),
        "BASE": "python:3.13-slim@sha256:a",
        "BUILD": "--isolation chroot",
    }
    done = release(tmp_path, **settings)
    assert 0 == done.returncode, done.stderr

    printed = [line.split() for line in done.stdout.splitlines()]
    built = [line for line in printed if line[:2] == ["buildah", "build"]]
    assert ["linux/amd64", "linux/arm64"] == [line[line.index("--platform") + 1] for line in built]
    assert [True, True] == ["PYTHON=python:3.13-slim@sha256:a" in line for line in built]
    assert [["--format", "docker", "--isolation", "chroot"]] * 2 == [line[2:6] for line in built]
    signed = [line[1:] for line in printed if line[0] == "cosign" and line[1] != "signing-config"]
    digest = f"{REGISTRY}/toolcall-proxy@sha256:{'0' * 64}"
    assert [("attest", digest), ("attest", digest), ("sign", digest)] == [(line[0], line[-1]) for line in signed]
    assert [True] * 3 == [line[line.index("--key") + 1] == "cosign.key" for line in signed]
    listed = [line[-2] for line in printed if line[0] == "syft"]
    contents = [
        f"spdx-json={tmp_path}/toolcall-proxy-{__version__}-linux-{each}.spdx.json" for each in ("amd64", "arm64")
    ]
    assert contents == listed
    assert [] == [line for line in printed if "--tls-verify=false" in line or "--plain-http" in line]
    (image,) = [line[-1] for line in printed if line[:3] == ["buildah", "manifest", "push"]]
    assert f"docker://{REGISTRY}/toolcall-proxy:{__version__}" == image
    (sent,) = [line[-2:] for line in printed if line[1:2] == ["push"]]
    assert [str(tmp_path / CHART), f"oci://{REGISTRY}/charts"] == sent

    verified = helm("verify", tmp_path / CHART, "--keyring", keys / "public.gpg")
    assert (0, True) == (verified.returncode, KEY in verified.stdout), verified.stderr


def test_a_registry_of_this_machine_may_have_no_tls(keys: Path, tmp_path: Path) -> None:
    settings = {"REGISTRY": "127.0.0.1:1/tools", "KEY": KEY, "KEYRING": str(keys / "secret.gpg"), "PLAIN_HTTP": "1"}
    done = release(tmp_path, **settings)
    assert 0 == done.returncode, done.stderr

    plain = [line.split()[1] for line in done.stdout.splitlines() if "--tls-verify=false" in line or "plain" in line]
    assert ["build", "build", "manifest", "push"] == plain
    insecure = [line.split()[:2] for line in done.stdout.splitlines() if "--allow-http-registry" in line]
    assert [["cosign", "attest"], ["cosign", "attest"], ["cosign", "sign"]] == insecure


def test_the_packaged_chart_names_the_image_where_it_was_sent_and_by_its_digest(keys: Path, tmp_path: Path) -> None:
    done = release(tmp_path, REGISTRY=REGISTRY, KEY=KEY, KEYRING=str(keys / "secret.gpg"))
    assert 0 == done.returncode, done.stderr
    manifests = render("tool", chart=tmp_path / CHART)
    assert f"{REGISTRY}/toolcall-proxy@sha256:{'0' * 64}" == proxy_of(manifests)["image"]
    assert "registry.example.com/tools/samples:1.4" == next(
        each["image"] for each in of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    )


def test_a_changed_package_is_found_out(keys: Path, tmp_path: Path) -> None:
    done = release(tmp_path, REGISTRY=REGISTRY, KEY=KEY, KEYRING=str(keys / "secret.gpg"))
    assert 0 == done.returncode, done.stderr
    with tarfile.open(tmp_path / CHART, "w:gz") as other:
        other.add(ROOT / "helm" / "Chart.yaml", "toolcall-proxy/Chart.yaml")
    assert 0 != helm("verify", tmp_path / CHART, "--keyring", keys / "public.gpg").returncode
