"""The mistakes at an injection by annotation. Each is made on a node, and is rejected, or leaves a pod that is not
ready with a reason that a person can read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

from tests.cluster.foreign import make_config, make_foreign
from tests.cluster.node import NoCluster, Node, await_true

SPACE: Final = "mistakes"
# What `kubectl` shows of a workload's and its pods' trouble, in the order in which a person looks.
_WITHIN: Final = 120.0

Manifests = list[dict[str, Any]]
# The trial, the observation, and whether it is right.
Row = tuple[str, str, bool]


def _container(made: Manifests) -> dict[str, Any]:
    container: dict[str, Any] = _template(made)["spec"]["containers"][0]
    return container


def _template(made: Manifests) -> dict[str, Any]:
    template: dict[str, Any] = made[-1]["spec"]["template"]
    return template


def _annotate(made: Manifests, key: str, value: str) -> None:
    _template(made)["metadata"]["annotations"][f"toolcall-proxy/{key}"] = value


def _configure(made: Manifests, **keys: Any) -> None:
    made[0]["data"]["config.yaml"] = json.dumps(make_config() | keys)


def _name_two_ports(made: Manifests) -> None:
    _container(made)["ports"].insert(0, {"name": "metrics", "containerPort": 9100})


def _misplace(made: Manifests) -> None:
    made[-1]["metadata"] = made[-1]["metadata"] | {"annotations": _template(made)["metadata"].pop("annotations")}


def _route(**keys: Any) -> list[dict[str, Any]]:
    return [make_config()["routes"][0] | keys]


# Mistake -> what makes it of manifests that are right, and words of what a person reads.
MISTAKES: Final[dict[str, tuple[Callable[[Manifests], Any], str]]] = {
    "a port that the proxy needs": (
        lambda made: _container(made)["ports"].append({"containerPort": 9091}),
        "refused: toolcall-proxy: a container has port 8080, 9091 or 8081",
    ),
    "hostNetwork": (
        lambda made: _template(made)["spec"].update(hostNetwork=True),
        "refused: toolcall-proxy: the pod has hostNetwork",
    ),
    "`toolcall-proxy/container: nope`": (
        lambda made: _annotate(made, "container", "nope"),
        "refused: toolcall-proxy: no container has the name",
    ),
    "a typo in the config": (
        lambda made: _configure(made, routes=_route(upstream="toool")),
        "termination message: /etc/toolcall-proxy/config.yaml:1:",
    ),
    "a schema file that is not there": (
        lambda made: _configure(made, routes=_route(schema="nope.yaml")),
        "termination message: /etc/toolcall-proxy/config.yaml:1:",
    ),
    "a variable that is not set": (
        lambda made: _configure(made, admin={**make_config()["admin"], "token": "${ADMIN_TOKEN}"}),
        "the environment variable ADMIN_TOKEN is not set",
    ),
    "a ConfigMap without `config.yaml`": (
        lambda made: made[0].update(data={"other.yaml": "{}"}),
        "termination message: /etc/toolcall-proxy/config.yaml:1:1",
    ),
    "a ConfigMap that is not there": (
        lambda made: _annotate(made, "inject", "nowhere"),
        'event: FailedMount: MountVolume.SetUp failed for volume "toolcall-proxy-config" : configmap "nowhere" not',
    ),
    "`toolcall-proxy/upstream: nope`": (
        lambda made: _annotate(made, "upstream", "nope"),
        "no upstream is called 'nope', by which the pod asks whether its tool is ready",
    ),
    "an upstream at another port than the tool's": (
        lambda made: _configure(made, upstreams={"tool": {"url": "http://127.0.0.1:9102"}}),
        "log of the proxy: Upstream not ready: tool takes no connection",
    ),
    "a config at other ports than the injector's": (
        lambda made: _configure(made, listen="0.0.0.0:8181"),
        "`listen` has port 8181, and calls come to port 8080 of the pod",
    ),
    "a config that listens on loopback": (
        lambda made: _configure(made, listen="127.0.0.1:8080"),
        "`listen` is reached only from inside of the pod",
    ),
    "a tool with a second port": (_name_two_ports, "refused: toolcall-proxy: the tool's container names several ports"),
    "a Service that leads to the tool by number": (
        lambda made: made[1]["spec"]["ports"][0].update(targetPort=9101),
        "refused: toolcall-proxy: the Service m14 leads past the proxy. Let its targetPort be http",
    ),
    "a `hostPort` on the tool's port": (
        lambda made: _container(made)["ports"][0].update(hostPort=9101),
        "refused: toolcall-proxy: the port of calls has a hostPort",
    ),
    "the annotation on the Deployment instead of its template": (
        _misplace,
        "refused: toolcall-proxy: the annotation toolcall-proxy/inject counts in the pod template alone",
    ),
}


class Mistakes:
    """Makes every mistake at once, in its own namespace, on a node that has the injector."""

    def __init__(self, node: Node, call: Callable[[str, str], int]) -> None:
        """`call` sends a call that the proxy refuses with 400 through a Service: (namespace, Service) -> the status."""
        self._node, self._call = node, call

    def run(self) -> Iterator[Row]:
        """Makes them all, and gives a row for each."""
        self._node.kubectl("create", "namespace", SPACE)
        refused = {}
        for number, (make, _) in enumerate(MISTAKES.values(), 1):
            made = deepcopy(make_foreign(SPACE, f"m{number}", injected=True))
            _template(made)["spec"]["terminationGracePeriodSeconds"] = 1
            make(made)
            said = [self._node.kubectl("apply", "-f", "-", text=json.dumps(each), check=False) for each in made]
            refused[number] = next((each for each in said if "denied request" in each), "")
        for number, (name, (_, words)) in enumerate(MISTAKES.items(), 1):
            begun = time.monotonic()
            workload = f"m{number}"
            seen, read = self._await_reason(workload, refused[number], words)
            ready, status = self._find_ready(workload), self._call(SPACE, workload)
            told = f"{_shorten(seen)}; pods ready: {ready}; a bad call through the Service: {status or 'no answer'}"
            took = f"({time.monotonic() - begun:.0f} s)"
            yield f"By annotation, {name}", f"{told} {took}", read and (ready, status) == (0, 0)
        self._node.kubectl("delete", "namespace", SPACE, "--wait=false")

    def _await_reason(self, name: str, refused: str, words: str) -> tuple[str, bool]:
        """Returns what a person reads, once the words are in it, and whether they are."""

        def look() -> str:
            seen = self._read(name, refused)
            return seen if words in seen else ""

        try:
            return str(await_true(name, look, _WITHIN)), True
        except NoCluster:
            return self._read(name, refused) or "nothing", False

    def _read(self, name: str, refused: str) -> str:
        """Everything that a person reads: of the apply, the workload, its pods, their events, the proxy's log."""
        if refused:
            return _cut_refusal(refused)
        selector = ["-n", SPACE, "-l", f"app={name}", "-o", "json"]
        found = []
        for each in json.loads(self._node.kubectl("get", "replicasets", *selector))["items"]:
            found += [
                _cut_refusal(one["message"]) for one in each["status"].get("conditions", ()) if one["status"] == "True"
            ]
        for pod in json.loads(self._node.kubectl("get", "pods", *selector))["items"]:
            for status in pod["status"].get("initContainerStatuses", ()):
                ends = [status[key].get("terminated", {}) for key in ("state", "lastState")]
                found += [f"termination message: {end['message'].strip()}" for end in ends if end.get("message")]
            about = f"involvedObject.name={pod['metadata']['name']},type=Warning"
            events = json.loads(
                self._node.kubectl("-n", SPACE, "get", "events", "--field-selector", about, "-o", "json")
            )
            found += [f"event: {one['reason']}: {one['message']}" for one in events["items"]]
            log = self._node.kubectl("-n", SPACE, "logs", pod["metadata"]["name"], "-c", "toolcall-proxy", check=False)
            for line in log.splitlines():
                if '"Upstream not ready"' in line:
                    entry = json.loads(line)
                    found.append(f"log of the proxy: {entry['message']}: {entry['upstream']} {entry['reason']}")
        return "\n".join(dict.fromkeys(found))

    def _find_ready(self, name: str) -> int:
        """Returns how many pods of a workload are ready."""
        pods = json.loads(self._node.kubectl("-n", SPACE, "get", "pods", "-l", f"app={name}", "-o", "json"))["items"]
        conditions = [one for pod in pods for one in pod["status"].get("conditions", ())]
        return sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _cut_refusal(text: str) -> str:
    """The sentence of a refusal by the API server."""
    _, denied, sentence = text.rpartition("denied request: ")
    return f"refused: {sentence.strip()}" if denied else text


def _shorten(seen: str) -> str:
    """Returns what was read, as one cell of a table."""
    lines = [line for line in seen.splitlines() if "probe failed" not in line and "BackOff" not in line]
    return " / ".join(lines)[:300].replace("|", "\\|")
