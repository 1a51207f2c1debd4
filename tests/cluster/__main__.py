"""python -m tests.cluster    tries the chart on a real node and writes docs/kubernetes-tried.md (`make cluster`)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.cluster import settings as at
from tests.cluster.node import INSIDE, NoCluster, Node, await_true

PAGE: Final = at.ROOT / "docs" / "kubernetes-tried.md"
SPACE: Final = "tools"
EXAMPLE: Final = at.ROOT / "helm" / "ci" / "tool-values.yaml"
IMAGE: Final[dict[str, Any]] = {"repository": "localhost/toolcall-proxy", "tag": "0.1.0", "pullPolicy": "Never"}
SLOW_START: Final = (
    "import time, runpy, sys; time.sleep(8); sys.argv = ['samples', '9101']; "
    "runpy.run_module('proxy.samples', run_name='__main__')"
)


class Trial:
    """What is tried on a node, and what was seen."""

    def __init__(self, node: Node, folder: Path, about: str) -> None:
        self._node, self._folder, self._about = node, folder, about
        self.rows: list[tuple[str, str, bool]] = []

    def run(self) -> bool:
        """Tries everything; gives whether all of it went as it should."""
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        self._node.kubectl("create", "namespace", SPACE)
        self._node.kubectl("label", "namespace", SPACE, restricted)
        for trial in (
            self._install, self._refuse, self._reload, self._roll_out, self._roll_back, self._evict, self._rotate,
            self._inject, self._end_job,
        ):  # fmt: skip
            name = (trial.__doc__ or "").split("\n")[0].rstrip(".")
            begun = time.monotonic()
            try:
                seen, right = trial()
            except (RuntimeError, NoCluster, subprocess.TimeoutExpired) as error:
                seen, right = f"failed: {str(error)[-400:]}".replace("\n", " "), False
            self.rows.append((name, f"{seen} ({time.monotonic() - begun:.0f} s in all)", right))
            PAGE.write_text(write_page(self.rows, self._about), encoding="utf-8")  # what a broken run saw is kept
            print("ok   " if right else "WRONG", *self.rows[-1][:2], flush=True)
        return all(right for *_, right in self.rows)

    # --- helpers ------------------------------------------------------------------------------------------------------
    def _helm(self, verb: str, *words: str, check: bool = True, **values: Any) -> str:
        given = self._folder / "values.yaml"
        given.write_text(json.dumps({"image": IMAGE, "metrics": {"podMonitor": {"enabled": False}}, **values,
                                     "tool": {"image": IMAGE, **values.get("tool", {})}}))  # fmt: skip
        common = ["--namespace", SPACE, "--values", str(EXAMPLE), "--values", str(given), "--wait", "--timeout", "120s"]
        return self._node.helm(verb, "weather", at.ROOT / "helm", *common, *words, check=check)

    def _address(self, service: str = "weather-toolcall-proxy") -> str:
        return self._node.kubectl("-n", SPACE, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")

    def _under_load(
        self, seconds: int, change: Callable[[], Any], service: str = "weather-toolcall-proxy"
    ) -> dict[str, int]:
        """What good calls are answered while something changes."""
        words = [
            *INSIDE,
            sys.executable,
            str(Path(__file__).with_name("load.py")),
            self._address(service),
            "80",
            str(seconds),
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as load:
            time.sleep(2)
            change()
            printed = load.communicate(timeout=seconds + 120)[0]
        answers: dict[str, int] = json.loads(printed)
        return answers

    def _call(self, body: str, service: str = "weather-toolcall-proxy") -> int:
        url = f"http://{self._address(service)}/tools/weather"
        words = [
            "curl",
            "-s",
            "-m",
            "10",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            "content-type: application/json",
            "-d",
            body,
        ]
        return int(self._node.run(*words, url, check=False).strip() or 0)

    def _pods(self, selector: str = "app.kubernetes.io/name=toolcall-proxy") -> list[str]:
        return self._node.kubectl("-n", SPACE, "get", "pods", "-l", selector, "-o", "name").split()

    # --- what is tried ------------------------------------------------------------------------------------------------
    def _install(self) -> tuple[str, bool]:
        """Install `helm/ci/tool-values.yaml`, wait, and `helm test`."""
        begun = time.monotonic()
        self._helm("install")
        installed = time.monotonic() - begun
        printed = self._node.helm("test", "weather", "--namespace", SPACE, "--logs")
        return f"installed in {installed:.1f} s, {printed.count('ok  ')} of 4 checks of the test ok", printed.count(
            "ok  "
        ) == 4

    def _refuse(self) -> tuple[str, bool]:
        """Upgrade to a config with `upstream: toool`."""
        before = self._pods()
        routes = [{"path": "/tools/weather", "upstream": "toool", "tool": "weather", "schema": "schemas/weather.yaml"}]
        printed = self._helm("upgrade", check=False, config={"routes": routes})
        said = "unknown upstream 'toool'" in printed
        return (
            f"refused: {'with' if said else 'without'} the mistake in Helm's output; the pods are the same",
            said and before == self._pods(),
        )

    def _reload(self) -> tuple[str, bool]:
        """Change the config under load."""
        before, took = self._pods(), 0.0

        def change() -> None:
            nonlocal took
            begun = time.monotonic()
            self._helm(
                "upgrade",
                config={"defaults": {"repair": "off"}, "upstreams": {"tool": {"timeouts": {"response": "45s"}}}},
            )
            await_true("the new config", lambda: self._call('{"lat": "48.85", "lon": 2.35}') == 400, 90)
            took = time.monotonic() - begun

        answers = self._under_load(60, change)
        same = before == self._pods()
        return f"taken over after {took:.0f} s by the same pod; {_tell(answers)}", same and set(answers) == {"200"}

    def _roll_out(self) -> tuple[str, bool]:
        """Roll out a tool that needs 8 s to start, under load."""
        slow = {"command": ["python", "-c", SLOW_START], "args": []}
        answers = self._under_load(75, lambda: self._helm("upgrade", tool=slow))
        return _tell(answers), set(answers) == {"200"}

    def _roll_back(self) -> tuple[str, bool]:
        """Roll back under load."""
        back = lambda: self._node.helm("rollback", "weather", "1", "--namespace", SPACE, "--wait", "--timeout", "120s")  # noqa: E731
        answers = self._under_load(60, back)
        return _tell(answers), set(answers) == {"200"}

    def _evict(self) -> tuple[str, bool]:
        """Delete the only pod under load."""
        answers = self._under_load(45, lambda: self._node.kubectl("-n", SPACE, "delete", *self._pods(), "--wait=false"))
        refused = sum(count for answer, count in answers.items() if not answer.isdigit())
        return f"{_tell(answers)}; {refused} refused connections", refused == 0

    def _rotate(self) -> tuple[str, bool]:
        """Rotate the operator's token, then restart under load."""
        self._put_token("0123456789abcdef")
        self._helm(
            "upgrade", existingSecret="admin", config={"admin": {"token": "${file:/run/secrets/toolcall-proxy/token}"}}
        )
        self._put_token("fedcba9876543210")
        time.sleep(75)  # kubelet brings the Secret into the pod
        restart = lambda: self._node.kubectl("-n", SPACE, "rollout", "restart", "deployment/weather-toolcall-proxy")  # noqa: E731
        answers = self._under_load(45, restart)
        failed = self._node.kubectl("-n", SPACE, "get", "events").count("FailedPreStopHook")
        return f"{_tell(answers)}; {failed} failed preStop hooks", failed == 0 and set(answers) == {"200"}

    def _put_token(self, token: str) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "admin", "namespace": SPACE},
            "stringData": {"token": token},
        }
        self._node.kubectl("apply", "-f", "-", text=json.dumps(secret))

    def _inject(self) -> tuple[str, bool]:
        """Inject into a Deployment of somebody else, by one annotation."""
        injector = self._folder / "injector.yaml"
        injector.write_text(json.dumps({"shape": "library", "injector": {"enabled": True}, "image": IMAGE}))
        self._node.helm("install", "injector", at.ROOT / "helm", "--namespace", SPACE, "--values", injector)
        metadata = {"name": "taken", "annotations": {"toolcall-proxy/inject": "x"}}
        taken = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                 "spec": {"containers": [{"name": "a", "image": "a", "ports": [{"containerPort": 8080}]}]}}  # fmt: skip

        def refuse() -> bool:
            words = ["apply", "--dry-run=server", "-f", "-"]
            printed = self._node.kubectl(*words, text=json.dumps(taken), check=False)
            return "toolcall-proxy cannot be injected: a container of the pod has port 8080" in printed

        said = await_true("the policies in force", refuse, 60)  # the API server takes a moment
        for manifest in _make_foreign():
            self._node.kubectl("apply", "-f", "-", text=json.dumps(manifest))
        self._node.kubectl("-n", SPACE, "rollout", "status", "deployment/legacy", "--timeout=120s")
        await_true("an answer", lambda: self._call('{"lat": 48.85, "lon": 2.35}', "legacy") == 200, 60)
        seen = [self._call('{"lat": "48.85", "lon": 2.35}', "legacy"), self._call('{"lat": []}', "legacy")]
        return (
            f"a repairable call is answered {seen[0]}, a bad one {seen[1]}; a taken port is refused with its sentence",
            seen == [200, 400] and said,
        )

    def _end_job(self) -> tuple[str, bool]:
        """End a Job with an injected sidecar."""
        pod = _make_foreign()[-1]["spec"]["template"]
        pod["spec"]["restartPolicy"] = "Never"
        pod["spec"]["containers"][0] |= {
            "command": ["python", "-c", "import time; time.sleep(1)"],
            "readinessProbe": None,
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "once", "namespace": SPACE},
            "spec": {"template": pod},
        }
        self._node.kubectl("apply", "-f", "-", text=json.dumps(job))

        def ended() -> str:
            state = "{.items[0].status.containerStatuses[0].state.terminated.finishedAt}"
            return self._node.kubectl(
                "-n", SPACE, "get", "pods", "-l", "job-name=once", "-o", f"jsonpath={state}", check=False
            )

        await_true("the end of the Job's container", lambda: ended().startswith("20"), 60)
        begun = time.monotonic()
        self._node.kubectl("-n", SPACE, "wait", "--for=condition=complete", "job/once", "--timeout=60s")
        took = time.monotonic() - begun
        names = "jsonpath={.items[*].spec.initContainers[*].name}"
        injected = self._node.kubectl("-n", SPACE, "get", "pods", "-l", "job-name=once", "-o", names)
        return f"complete {took:.1f} s after its container; sidecar: {injected or 'none'}", took < 10 and bool(injected)


def _make_foreign() -> list[dict[str, Any]]:
    """A ConfigMap, a Service by name and a Deployment with the annotation, of somebody who has no chart of ours."""
    config = {
        "version": 1, "listen": "0.0.0.0:8080", "admin": {"listen": "127.0.0.1:9090", "probes": "0.0.0.0:9091"},
        "drain": {"serve": "15s", "finish": "30s", "stay_ready": True},
        "upstreams": {"tool": {"url": "http://127.0.0.1:9101"}},
        "routes": [{"path": "/tools/weather", "upstream": "tool", "upstream_path": "/weather", "tool": "weather",
                    "schema": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}}],
    }  # fmt: skip
    named = {"name": "legacy", "namespace": SPACE}
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip
    container = {
        "name": "app", "image": "localhost/toolcall-proxy:0.1.0", "imagePullPolicy": "Never", "securityContext": safe,
        "command": ["python", "-m", "proxy.samples", "9101"], "ports": [{"name": "http", "containerPort": 9101}],
    }  # fmt: skip
    template = {"metadata": {"labels": {"app": "legacy"}, "annotations": {"toolcall-proxy/inject": "legacy"}},
                "spec": {"containers": [container]}}  # fmt: skip
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"config.yaml": json.dumps(config)}},
        {"apiVersion": "v1", "kind": "Service", "metadata": named,
         "spec": {"selector": {"app": "legacy"}, "ports": [{"port": 80, "targetPort": "http"}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named,
         "spec": {"selector": {"matchLabels": {"app": "legacy"}}, "template": template}},
    ]  # fmt: skip


def _tell(answers: dict[str, int]) -> str:
    lost = {answer: count for answer, count in answers.items() if answer != "200"}
    others = ", ".join(f"{count} x {answer}" for answer, count in sorted(lost.items()))
    return f"{sum(answers.values())} calls, {sum(lost.values())} not answered 200" + (f" ({others})" if others else "")


def write_page(rows: list[tuple[str, str, bool]], about: str) -> str:
    """docs/kubernetes-tried.md with these rows; `about` says on which versions they were seen."""
    return "\n".join(_write_lines(rows, about)) + "\n"


def _write_lines(rows: list[tuple[str, str, bool]], about: str) -> Iterator[str]:
    yield "# What was tried on a real cluster\n"
    yield "The rows are those that a run of `make cluster` ([kubernetes.md](kubernetes.md#a-real-cluster)) printed, on"
    yield f"a single node out of the real programs, in a network of its own: {about}\n"
    yield "Each run writes this page anew, row by row. A trial without a row was not reached.\n"
    yield "| tried | seen | as it should be |\n|---|---|---|"
    for name, seen, right in rows:
        yield f"| {name} | {seen} | {'yes' if right else '**no**'} |"
    yield "\nNot tried there: a NetworkPolicy (no plug-in here enforces one), several nodes, a cloud's load balancer,"
    yield "and autoscaling (it wants a metrics server)."


def main() -> int:
    """Runs the trials; gives 0 where all went as it should, or nothing can run here."""
    try:
        with Node() as node, tempfile.TemporaryDirectory() as folder:
            version = json.loads(node.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
            runtime = node.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion}")
            size = (at.CACHE / "proxy.tar").stat().st_size / 1e6
            image = f"the image, by buildah, has {size:.0f} MB packed."
            about = f"Kubernetes {version}, {runtime}; Pod Security `restricted`; {image}"
            right = Trial(node, Path(folder), about).run()
    except NoCluster as missing:
        print(f"no cluster here: {missing}", file=sys.stderr)
        return 0
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
