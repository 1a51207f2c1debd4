"""The end of a pod: the hooks, the order of the containers, and arithmetic that fails with its numbers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from proxy.server import lifecycle as serving
from tests.kubernetes.rendering import ROOT, Manifest, containers, files_of, pod_of, proxy_of, refusal, render

pytestmark = pytest.mark.large


def ending(manifests: list[Manifest]) -> tuple[dict[str, str], int | None, int]:
    """The config's drain, the seconds that the tool's preStop sleeps, and the pod's period of grace."""
    spec = pod_of(manifests)["spec"]
    drain = yaml.safe_load(files_of(manifests)["config.yaml"])["drain"]
    assert drain.pop("stay_ready") is True
    tools = [each for each in containers(spec) if each["name"] == "tool"]
    sleep = tools[0]["lifecycle"]["preStop"]["sleep"]["seconds"] if tools else None
    return drain, sleep, spec["terminationGracePeriodSeconds"]


# Without the floor under the period, which would hide what it is made of.
BARE: dict[str, Any] = {"drain__leastGraceSeconds": 1}
CASES: list[tuple[dict[str, Any], tuple[str, str], int, int]] = [
    # values, drain of the config, the tool's sleep, period of grace
    ({}, ("15s", "30s"), 20, 20 + 30 + 5),
    ({"drain__seconds": 40}, ("40s", "30s"), 45, 45 + 30 + 5),
    ({"drain__toolSleepSeconds": 17}, ("15s", "30s"), 17, 17 + 30 + 5),
    ({"terminationGracePeriodSeconds": 300}, ("15s", "30s"), 20, 300),
    ({"terminationGracePeriodSeconds": 55}, ("15s", "30s"), 20, 55),
    ({"config__upstreams": {"tool": {"timeouts": {"response": "1500ms"}}}}, ("15s", "2s"), 20, 20 + 2 + 5),
    ({"config__upstreams": {"other": {"url": "http://o", "timeouts": {"response": "5m"}}}}, ("15s", "300s"), 20, 325),
    ({"config__defaults": {"timeout": "2m"}}, ("15s", "120s"), 20, 145),
    ({"config__tools": {"weather": {"timeout": 61.5}}}, ("15s", "62s"), 20, 87),
    ({"config__defaults": {"resend": {"deadline": "1h"}}}, ("15s", "3600s"), 20, 3625),
    ({"config__correction": {"upstream": "tool", "model": "m"}}, ("15s", "50s"), 20, 20 + 30 + 20 + 5),
    ({"config__correction": {"upstream": "tool", "model": "m", "deadline": "8s"}}, ("15s", "38s"), 20, 20 + 30 + 8 + 5),
    ({"drain__longestCallSeconds": 90}, ("15s", "90s"), 20, 115),
]


@pytest.mark.parametrize(("values", "drain", "sleep", "period"), CASES, ids=[str(row[0]) for row in CASES])
def test_the_seconds_follow_from_each_other(
    values: dict[str, Any], drain: tuple[str, str], sleep: int, period: int
) -> None:
    manifests = render("tool", **BARE, **values)
    assert ({"serve": drain[0], "finish": drain[1]}, sleep, period) == ending(manifests)


def test_a_gateway_has_no_tool_to_wait_for() -> None:
    assert ({"serve": "15s", "finish": "20s"}, None, 15 + 20 + 10) == ending(render("gateway", **BARE))


def test_the_period_has_a_floor_so_that_longer_timeouts_roll_no_pod() -> None:
    def period(response: str) -> int:
        return ending(render("tool", config__upstreams={"tool": {"timeouts": {"response": response}}}))[2]

    assert [300, 300, 300, 20 + 280 + 5] == [period(response) for response in ("1s", "30s", "275s", "280s")]


def test_a_tool_that_drops_its_calls_is_kept_until_the_longest_has_ended() -> None:
    assert ({"serve": "10s", "finish": "60s"}, 70, 150) == ending(render("tool-plain"))


def test_the_seconds_that_a_proxy_needs_to_end_are_those_of_the_proxy() -> None:
    """Three ports, one after the other, once what hangs had its time."""
    assert 5 + 5 > serving.GRACE + serving._KEPT_WAIT + 3 * serving._CLOSING


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"terminationGracePeriodSeconds": 54},
        "terminationGracePeriodSeconds is 54, but the tool's preStop sleeps 20 s (drain.toolSleepSeconds), then the "
        "longest call takes 30 s (config.upstreams.tool.timeouts.response), and the proxy needs 5 s to end: "
        "20 + 30 + 5 = 55. Set it to 55 or more, or leave it out",
    ),
    (
        {"shape": "gateway", "terminationGracePeriodSeconds": 30, "drain__longestCallSeconds": 30},
        "terminationGracePeriodSeconds is 30, but the proxy goes on taking calls for 15 s (drain.seconds), then the "
        "longest call takes 30 s (drain.longestCallSeconds), and the proxy needs 10 s to end: 15 + 30 + 10 = 55. Set "
        "it to 55 or more, or leave it out",
    ),
    (
        {"drain__toolSleepSeconds": 16},
        "drain.toolSleepSeconds is 16, but the proxy goes on taking calls for 15 s (drain.seconds) and hooks may start "
        "2 s apart: the tool would be gone before the calls are. Set it to 17 or more, or leave it out",
    ),
    (
        {"drain__longestCallSeconds": 10, "config__defaults": {"timeout": "20s"}},
        "drain.longestCallSeconds is 10, but config.upstreams.tool.timeouts.response lets a call take 30 s: raise the "
        "one or lower the other",
    ),
]


@pytest.mark.parametrize(("values", "words"), REFUSALS, ids=[next(iter(row[0])) for row in REFUSALS])
def test_seconds_that_do_not_add_up_are_refused_with_their_numbers(values: dict[str, Any], words: str) -> None:
    upstreams = {"config__upstreams": {"tool": {"url": "http://127.0.0.1:9101"}}}
    assert words == refusal("tool", **upstreams, **values)


def test_the_page_shows_a_refusal_as_it_is_made() -> None:
    page = " ".join((ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8").split())
    assert refusal("tool", terminationGracePeriodSeconds=30) in page


# --- native sidecar, ordinary container -------------------------------------------------------------------------------
def test_a_native_sidecar_starts_first_drains_by_its_hook_and_is_never_restarted_by_it() -> None:
    spec = pod_of(render("tool"))["spec"]
    (proxy,) = spec["initContainers"]
    assert ("toolcall-proxy", "Always") == (proxy["name"], proxy["restartPolicy"])
    command = ["python", "-m", "proxy", "drain", "--with-tools", "--admin", "127.0.0.1:8081"]
    assert {"preStop": {"exec": {"command": command}}} == proxy["lifecycle"]
    assert ["tool"] == [each["name"] for each in spec["containers"]]


def test_further_init_containers_run_before_the_sidecar() -> None:
    spec = pod_of(render("tool", extraInitContainers=[{"name": "first", "image": "first"}]))["spec"]
    assert ["first", "toolcall-proxy"] == [each["name"] for each in spec["initContainers"]]


def test_sigterm_is_enough_to_drain_an_ordinary_container_and_a_gateway() -> None:
    for case in ("tool-plain", "gateway"):
        manifests = render(case)
        assert "initContainers" not in pod_of(manifests)["spec"]
        assert not {"restartPolicy", "lifecycle"} & set(proxy_of(manifests))


def test_the_hook_has_the_operators_token_and_the_seconds_of_a_config_the_chart_does_not_write() -> None:
    def command(case: str, **values: Any) -> list[str]:
        words: list[str] = proxy_of(render(case, **values))["lifecycle"]["preStop"]["exec"]["command"]
        return words[5:]

    by_file = command("tool", config__admin={"token": "${file:/run/secrets/toolcall-proxy/token}"})
    by_name = command("tool", config__admin={"token": "${TOOLCALL_PROXY_ADMIN_TOKEN}"})
    assert ["--admin", "127.0.0.1:8081", "--token-file", "/run/secrets/toolcall-proxy/token"] == by_file
    assert ["--admin", "127.0.0.1:8081"] == by_name
    assert ["--admin", "127.0.0.1:9001", "--seconds", "30"] == command("tool-own-config")


def test_clusters_without_the_sleep_action_sleep_by_command() -> None:
    (tool,) = pod_of(render("tool", version="1.29.4"))["spec"]["containers"]
    assert {"preStop": {"exec": {"command": ["sleep", "20"]}}} == tool["lifecycle"]


def test_rejects_clusters_without_native_sidecars() -> None:
    words = "Kubernetes v1.28.3 runs no native sidecars (1.29 and newer do): set sidecar.native: false"
    assert words == refusal("tool", version="1.28.3")
    assert render("tool-plain", version="1.28.3")
