"""The Dockerfile says what the chart relies on. Its steps are tried by `python -m tests.kubernetes.image`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.image import ROOT, Step, context, steps
from tests.kubernetes.rendering import CHART, proxy_of, render

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def the(name: str) -> list[Step]:
    return [step for step in steps() if step.name == name]


def test_the_image_is_built_on_the_base_that_the_builder_names_and_holds_none_of_it() -> None:
    assert ["PYTHON=python:3.13-slim"] == [step.rest for step in the("ARG")]
    assert ["${PYTHON} AS build", "scratch"] == [step.rest for step in the("FROM")]
    (line,) = [step.rest for step in the("RUN") if step.rest.startswith("sh rootfs ")]
    (copied,) = [step.rest for step in the("COPY") if "--from" in step.rest]
    assert ("sh rootfs /rootfs /opt/toolcall-proxy", "--from=build /rootfs /") == (line, copied)


def test_no_step_of_the_image_itself_needs_a_shell() -> None:
    last = [step.name for step in steps()].index("FROM", 2)
    assert [] == [
        step.rest for step in steps()[last:] if step.name in ("RUN", "CMD", "ENTRYPOINT") and step.rest[0] != "["
    ]
    assert [True] == ["CMD [" in step.rest for step in the("HEALTHCHECK")]


@pytest.mark.parametrize("script", ["cluster", "release"])
def test_every_build_of_the_image_keeps_its_health_check(script: str) -> None:
    """The OCI's format has none."""
    assert "--format v2s2" in (ROOT / ".ci" / "release").read_text()
    builds = re.findall(r"buildah (?:build|bud) (?:\\\n|[^\n])*", (ROOT / ".ci" / script).read_text())
    assert [True] == ["--format docker" in build for build in builds]


def test_every_extra_but_that_for_shells_is_in_the_image() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (line,) = [step.rest for step in the("RUN") if "/wheels/*.whl" in step.rest]
    assert f"[{','.join(name for name in extras if name != 'completion')}]" in line


def test_the_image_runs_as_the_user_and_by_the_command_that_the_chart_has() -> None:
    user, group = VALUES["securityContext"]["runAsUser"], VALUES["securityContext"]["runAsGroup"]
    assert [f"{user}:{group}"] == [step.rest for step in the("USER")]
    proxy = proxy_of(render("tool"))
    ports = ["--pod-ports", ",".join(str(VALUES["ports"][name]) for name in ("calls", "probes", "admin"))]
    entry, default = (step.words for name in ("ENTRYPOINT", "CMD") for step in the(name))
    assert [proxy["command"], proxy["args"]] == [entry, [*default, *ports]]
    assert [[str(VALUES["ports"][name]) for name in ("calls", "probes")]] == [step.words for step in the("EXPOSE")]


def test_the_user_is_set_before_anything_of_ours_runs() -> None:
    names = [step.name for step in steps()]
    assert names.index("USER") < len(names) - 1 - names[::-1].index("RUN")


def test_the_context_has_what_the_image_is_made_of_and_nothing_else() -> None:
    tops = {path.parts[0] for path in context()}
    expected = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "requirements.lock",
        "config.example.yaml",
        "schemas",
        "docs",
        "proxy",
        ".ci",
    }
    assert expected == tops
    assert [] == [path for path in context() if path.suffix == ".pyc"]


def test_every_copied_name_is_in_the_context() -> None:
    copied = {Path(word).parts[0] for step in the("COPY") if "--from" not in step.rest for word in step.words[:-1]}
    assert copied == {path.parts[0] for path in context()}
