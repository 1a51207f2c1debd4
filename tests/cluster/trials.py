"""The trials on a node: each does one thing to the chart, mostly under load, and reports the observation."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.cluster import settings as at
from tests.cluster.foreign import make_config, make_foreign
from tests.cluster.mistakes import Mistakes, Row
from tests.cluster.node import INSIDE, NoCluster, Node, await_true

SPACE: Final = "tools"
EXAMPLE: Final = at.ROOT / "helm" / "ci" / "tool-values.yaml"
IMAGE: Final[dict[str, Any]] = {"repository": "localhost/toolcall-proxy", "tag": "0.1.0", "pullPolicy": "Never"}
SLOW_START: Final = (
    "import time, runpy, sys; time.sleep(8); sys.argv = ['samples', '9101']; "
    "runpy.run_module('proxy.extensions.correction.samples', run_name='__main__')"
)
GOOD: Final = '{"lat": 48.85, "lon": 2.35}'
REPAIRABLE: Final = '{"lat": "48.85", "lon": 2.35}'
BAD: Final = '{"lat": [], "lon": 2.35}'
# Mistakes in a config, each of which passed before Helm knew the config's schema.
TYPOS: Final[dict[str, Any]] = {
    "upstreams.tool.timeout": "20s",
    "upstreams.tool.timeouts.respnse": "3s",
    "defaults.repiar": "off",
    "defaults.attempts.max": "three",
    "telemetry.log.levle": "info",
    "upstreams.tool.timeouts.response": "20seconds",
    "defaults.mode": "enforced",
}


class Trials:
    """The trials on a node, in order: each begins with the state that the one before has left."""

    def __init__(self, node: Node, folder: Path) -> None:
        self._node, self._folder = node, folder

    def run(self) -> Iterator[Row]:
        """Tries everything."""
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        self._node.kubectl("create", "namespace", SPACE)
        self._node.kubectl("label", "namespace", SPACE, restricted)
        for trial in (
            self._start_image, self._refuse_typos, self._install, self._refuse_mistake, self._reload, self._roll_out,
            self._roll_back, self._stop_at_first, self._evict, self._rotate, self._scale, self._inject_by_annotation,
            self._inject_manifests, self._end_job, self._build_component, self._start_healthy, self._end_starting,
            self._edit_badly, self._take_back,
        ):  # fmt: skip
            name = (trial.__doc__ or "").split("\n")[0].rstrip(".")
            begun = time.monotonic()
            try:
                seen, right = trial()
            except (RuntimeError, NoCluster, subprocess.TimeoutExpired) as error:
                seen, right = f"failed: {str(error)[-400:]}".replace("\n", " "), False
            yield name, f"{seen} ({time.monotonic() - begun:.0f} s in all)", right
        yield from Mistakes(self._node, lambda space, service: self._call(BAD, service, space)).run()

    # --- helpers ------------------------------------------------------------------------------------------------------
    def _helm(self, verb: str, *words: str, check: bool = True, **values: Any) -> str:
        given = self._folder / "values.yaml"
        given.write_text(json.dumps({"image": IMAGE, "metrics": {"podMonitor": {"enabled": False}}, **values,
                                     "tool": {"image": IMAGE, **values.get("tool", {})}}))  # fmt: skip
        common = ["--namespace", SPACE, "--values", str(EXAMPLE), "--values", str(given), "--wait", "--timeout", "120s"]
        return self._node.helm(verb, "weather", at.ROOT / "helm", *common, *words, check=check)

    def _address(self, service: str = "weather-toolcall-proxy", space: str = SPACE) -> str:
        return self._node.kubectl("-n", space, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")

    def _under_load(
        self, seconds: int, change: Callable[[], Any], service: str = "weather-toolcall-proxy", *more: str
    ) -> dict[str, int]:
        """Returns what good calls are answered while something changes. `more`: words for load.py."""
        load_py = str(Path(__file__).with_name("load.py"))
        words = [*INSIDE, sys.executable, load_py, self._address(service), "80", str(seconds), *more]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as load:
            time.sleep(2)
            change()
            printed = load.communicate(timeout=seconds + 120)[0]
        answers: dict[str, int] = json.loads(printed)
        return answers

    def _call(self, body: str, service: str = "weather-toolcall-proxy", space: str = SPACE) -> int:
        """The status of a call through a Service; 0 where nobody answers."""
        url = f"http://{self._address(service, space)}/tools/weather"
        words = ["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "-d", body]
        return int(self._node.run(*words, "-H", "content-type: application/json", url, check=False).strip() or 0)

    def _pods(self, selector: str = "app.kubernetes.io/name=toolcall-proxy") -> list[str]:
        return self._node.kubectl("-n", SPACE, "get", "pods", "-l", selector, "-o", "name").split()

    def _await_one_pod(self, *selector: str) -> str:
        """The name of the only pod, once the older ones have ended. Raises NoCluster with the state of all."""
        try:
            await_true("the end of older pods", lambda: len(self._pods(*selector)) == 1, at.ENDED_WITHIN)
        except NoCluster as error:
            state = "jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.metadata.deletionTimestamp}; {end}"
            found = [self._node.kubectl("-n", SPACE, "get", kind, "-o", state) for kind in ("pods", "hpa")]
            raise NoCluster(f"{error}: {' '.join(found)}") from None
        return self._pods(*selector)[0]

    # --- what is tried ------------------------------------------------------------------------------------------------
    def _start_image(self) -> tuple[str, bool]:
        """Start the image that buildah made, on a read-only root."""
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(make_config()))
        ctr: list[str | Path] = [at.BIN / "ctr", f"--address={at.STATE}/containerd.sock", "--namespace=k8s.io"]
        mount = f"type=bind,src={config},dst=/etc/toolcall-proxy/config.yaml,options=rbind:ro"
        how = ["--detach", "--net-host", "--read-only", "--mount", mount]
        begun = time.monotonic()
        self._node.run(*ctr, "run", *how, "localhost/toolcall-proxy:0.1.0", "alone")
        ready = ["curl", "-s", "-m", "1", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:9091/readyz"]
        await_true("its readiness", lambda: self._node.run(*ready, check=False).startswith("200"), 60, every=0.05)
        took = time.monotonic() - begun
        self._node.run(*ctr, "tasks", "kill", "--signal", "KILL", "alone")
        await_true("its end", lambda: "STOPPED" in self._node.run(*ctr, "tasks", "list", check=False), 30)
        self._node.run(*ctr, "tasks", "delete", "alone", check=False)
        self._node.run(*ctr, "containers", "delete", "alone")
        sizes = self._node.run("buildah", "images", "--json", "localhost/toolcall-proxy:0.1.0")
        packed = (at.CACHE / "proxy.tar").stat().st_size / 1e6
        size = json.loads(sizes)[0]["size"]
        small = size.endswith(" MB") and float(size.removesuffix(" MB")) <= at.LARGEST_IMAGE
        return f"{size}, {packed:.0f} MB packed; ready {took:.1f} s after it was asked for", small

    def _refuse_typos(self) -> tuple[str, bool]:
        """Install with each of seven typos in the config."""
        refused = []
        for key, value in TYPOS.items():
            config = value
            for name in reversed(key.split(".")):
                config = {name: config}
            said = self._helm("install", check=False, config=config)
            refused.append("values don't meet the specifications of the schema" in said)
        left = self._node.helm("list", "--namespace", SPACE, "--short").strip()
        right = all(refused) and not left
        return f"{sum(refused)} of {len(refused)} refused by Helm; {left or 'nothing'} installed", right

    def _install(self) -> tuple[str, bool]:
        """Install `helm/ci/tool-values.yaml`, wait, and `helm test`."""
        begun = time.monotonic()
        self._helm("install")
        installed = time.monotonic() - begun
        good = self._node.helm("test", "weather", "--namespace", SPACE, "--logs").count("ok  ")
        return f"installed in {installed:.1f} s, {good} of 4 checks of the test ok", good == 4

    def _refuse_mistake(self) -> tuple[str, bool]:
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
        before, took = [self._await_one_pod()], 0.0

        def change() -> None:
            nonlocal took
            begun = time.monotonic()
            self._helm(
                "upgrade",
                config={"defaults": {"repair": "off"}, "upstreams": {"tool": {"timeouts": {"response": "45s"}}}},
            )
            await_true("the new config", lambda: self._call(REPAIRABLE) == 400, 90)
            took = time.monotonic() - begun

        answers = self._under_load(45, change)
        same = before == self._pods()
        return f"taken over after {took:.0f} s by the same pod; {_tell(answers)}", same and set(answers) == {"200"}

    def _roll_out(self) -> tuple[str, bool]:
        """Roll out a tool that needs 8 s to start, under load."""
        slow = {"command": ["python", "-c", SLOW_START], "args": []}
        answers = self._under_load(50, lambda: self._helm("upgrade", tool=slow))
        return _tell(answers), set(answers) == {"200"}

    def _roll_back(self) -> tuple[str, bool]:
        """Roll back under load."""
        back = lambda: self._node.helm("rollback", "weather", "1", "--namespace", SPACE, "--wait", "--timeout", "120s")  # noqa: E731
        answers = self._under_load(45, back)
        return _tell(answers), set(answers) == {"200"}

    def _stop_at_first(self) -> tuple[str, bool]:
        """Upgrade under load to pods that lack a variable of the config."""
        before = [self._await_one_pod()]
        name = "TOOLCALL_PROXY_ADMIN_TOKEN"
        mistaken = {"config": {"admin": {"token": f"${{{name}}}"}}, "podAnnotations": {"tried": "now"}}
        # The last --timeout counts.
        answers = self._under_load(30, lambda: self._helm("upgrade", "--timeout", "20s", check=False, **mistaken))
        new = [pod for pod in self._pods() if pod not in before]
        state = "{.status.initContainerStatuses[0]['state','lastState'].terminated.message}"
        said = self._node.kubectl("-n", SPACE, "get", *new, "-o", f"jsonpath={state}").strip()
        self._helm("upgrade")
        told = name in said
        return (
            f"{len(new)} new pod, which ends{' and names the variable in its termination message' if told else ''}; "
            f"{_tell(answers)}",
            told and len(new) == 1 and set(answers) == {"200"},
        )

    def _evict(self) -> tuple[str, bool]:
        """Evict the only pod under load."""
        pod = self._await_one_pod().removeprefix("pod/")
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": SPACE}}
        path = f"/api/v1/namespaces/{SPACE}/pods/{pod}/eviction"
        evict = lambda: self._node.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))  # noqa: E731
        answers = self._under_load(45, evict)
        refused = sum(count for answer, count in answers.items() if not answer.isdigit())
        return f"{_tell(answers)}; {refused} refused connections", refused == 0

    def _rotate(self) -> tuple[str, bool]:
        """Rotate the operator's token, then restart under load."""
        old, new = "0123456789abcdef", "fedcba9876543210"
        self._put_token(old)
        token = {"admin": {"token": "${file:/run/secrets/toolcall-proxy/token}"}}
        self._helm("upgrade", existingSecret="admin", config=token)
        self._await_one_pod()
        self._put_token(new)
        begun = time.monotonic()
        await_true("the new token", lambda: [self._ask_operator(each) for each in (old, new)] == ["401", "200"], 120)
        took = time.monotonic() - begun
        restart = lambda: self._node.kubectl("-n", SPACE, "rollout", "restart", "deployment/weather-toolcall-proxy")  # noqa: E731
        answers = self._under_load(45, restart)
        failed = self._node.kubectl("-n", SPACE, "get", "events").count("FailedPreStopHook")
        return (
            f"the new one alone counts after {took:.0f} s; {_tell(answers)}; {failed} failed preStop hooks",
            failed == 0 and set(answers) == {"200"},
        )

    def _ask_operator(self, token: str) -> str:
        """Returns what the operator's port of the pod answers to a token."""
        asked = (
            "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8081); "
            f"c.request('GET', '/-/config', headers={{'Authorization': 'Bearer {token}'}}); "
            "print(c.getresponse().status)"
        )
        inside = ["-n", SPACE, "exec", self._pods()[-1], "-c", "toolcall-proxy", "--", "python", "-c", asked]
        return self._node.kubectl(*inside, check=False).strip()

    def _scale(self) -> tuple[str, bool]:
        """Let load scale the pods by the tool's own container (HPA, metrics-server)."""
        took = 0.0

        def ask(path: str) -> str:
            return self._node.kubectl("-n", SPACE, "get", "hpa", "weather-toolcall-proxy", "-o", f"jsonpath={path}")

        def change() -> None:
            nonlocal took
            begun = time.monotonic()
            self._helm(
                "upgrade",
                autoscaling={"enabled": True, "minReplicas": 1, "maxReplicas": 2, "targetCPU": 50},
                tool={"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
            )
            await_true("a second pod by the autoscaler", lambda: ask("{.status.currentReplicas}") == "2", 120)
            took = time.monotonic() - begun

        answers = self._under_load(90, change)
        metric = ask("{.status.currentMetrics[0].containerResource}")
        measured = json.loads(metric or "{}")
        share = measured.get("current", {}).get("averageUtilization")
        return (
            f"two pods {took:.0f} s after the upgrade; container `{measured.get('container')}` at {share} % of its "
            f"request; {_tell(answers)}",
            measured.get("container") == "tool" and set(answers) == {"200"},
        )

    def _put_token(self, token: str) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "admin", "namespace": SPACE},
            "stringData": {"token": token},
        }
        self._node.kubectl("apply", "-f", "-", text=json.dumps(secret))

    def _inject_by_annotation(self) -> tuple[str, bool]:
        """Inject into a Deployment of somebody else by one annotation, and into a namespace by one label."""
        injector = self._folder / "injector.yaml"
        injector.write_text(json.dumps({"shape": "library", "injector": {"enabled": True}, "image": IMAGE}))
        self._node.helm("install", "injector", at.ROOT / "helm", "--namespace", SPACE, "--values", injector)
        self._node.kubectl("create", "namespace", "labelled")
        self._node.kubectl("label", "namespace", "labelled", "toolcall-proxy/inject=legacy")

        def try_pod(namespace: str, port: int, **annotations: str) -> str:
            """The sidecars that a pod would get; or why it would be refused."""
            metadata = {"name": "tried", "annotations": annotations}
            container = {"name": "a", "image": "a", "ports": [{"containerPort": port}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
            names = 'jsonpath={.spec.initContainers[*].name}{"\\n"}'
            words = ["-n", namespace, "apply", "--dry-run=server", "-o", names, "-f", "-"]
            printed = self._node.kubectl(*words, text=json.dumps(pod), check=False).splitlines()
            return "".join(line for line in printed if not line.startswith("Warning"))

        inject = "toolcall-proxy/inject"
        taken = "toolcall-proxy: a container has port 8080"
        # The API server takes a moment.
        said = await_true("the policies in force", lambda: taken in try_pod("default", 8080, **{inject: "x"}), 60)
        await_true("those of a namespace", lambda: try_pod("labelled", 1) == "toolcall-proxy", 60)
        kept = [try_pod("default", 8080), try_pod("labelled", 8080, **{inject: "disabled"})]
        for manifest in make_foreign(SPACE, "legacy", injected=True):
            self._node.kubectl("apply", "-f", "-", text=json.dumps(manifest))
        seen = self._await_answers("legacy")
        past = json.dumps({"spec": {"ports": [{"port": 80, "targetPort": 9101}]}})
        patched = self._node.kubectl("-n", SPACE, "patch", "service", "legacy", "-p", past, check=False)
        stays = "leads past the proxy of the pod legacy-" in patched and self._call(BAD, "legacy") == 400
        return (
            f"a repairable call is answered {seen[0]}, a bad one {seen[1]}; a taken port is refused with its sentence; "
            f"unmarked pods are {'left alone' if kept == ['', ''] else 'touched'}; its Service is "
            f"{'not let' if stays else 'let'} past the proxy afterwards",
            seen == [200, 400] and said and kept == ["", ""] and stays,
        )

    def _inject_manifests(self) -> tuple[str, bool]:
        """Inject into a running Deployment by `toolcall-proxy inject`, and then into its Service."""
        for manifest in make_foreign(SPACE, "plain", injected=False):
            self._node.kubectl("apply", "-f", "-", text=json.dumps(manifest))
        unguarded = await_true("an answer of the tool", lambda: self._call(REPAIRABLE, "plain"), 120)
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(make_config()))
        verb: list[str | Path] = [sys.executable, "-m", "proxy", "inject", "--config", config]
        verb += ["--image", "localhost/toolcall-proxy:0.1.0"]
        made = ""
        for kinds in ("deployment", "deployment,service"):
            given = self._node.kubectl("-n", SPACE, "get", kinds, "plain", "-o", "yaml")
            made = self._node.run(*verb, text=given)
            self._node.kubectl("-n", SPACE, "apply", "-f", "-", text=made)
            self._node.kubectl("-n", SPACE, "rollout", "status", "deployment/plain", "--timeout=120s")
        seen = self._await_answers("plain")
        again = "nothing" if made == self._node.run(*verb, text=made) else "something"
        return (
            f"a repairable call is answered {unguarded} before it (by the tool) and {seen[0]} after it, a bad one "
            f"{seen[1]}; injecting twice changes {again}",
            unguarded == 422 and seen == [200, 400] and again == "nothing",
        )

    def _take_back(self) -> tuple[str, bool]:
        """Take that injection back by `toolcall-proxy inject --undo`, under load."""
        undo = [sys.executable, "-m", "proxy", "inject", "--undo"]

        def take_back() -> None:
            given = self._node.kubectl("-n", SPACE, "get", "deployment,service", "plain", "-o", "yaml")
            made = self._node.run(*undo, text=given)
            self._node.kubectl("-n", SPACE, "apply", "-f", "-", text=made)
            self._node.kubectl("-n", SPACE, "rollout", "status", "deployment/plain", "--timeout=120s")

        # Once the Service leads to the tool, connections to the old pods end without a word, as the tool ends.
        answers = self._under_load(45, take_back, "plain", "reopen")
        names = "jsonpath={.spec.template.spec.initContainers[*].name}{.metadata.annotations.toolcall-proxy/before}"
        left = self._node.kubectl("-n", SPACE, "get", "deployment", "plain", "-o", names).strip()
        status = self._call(REPAIRABLE, "plain")
        return (
            f"left of it: {left or 'nothing'}; a repairable call is answered {status}, by the tool; {_tell(answers)}",
            (left, status) == ("", 422) and set(answers) == {"200"},
        )

    def _start_healthy(self) -> tuple[str, bool]:
        """Start an injected pod that is healthy, and look for `Warning` events."""
        made = make_foreign(SPACE, "healthy", injected=True)
        begun = time.monotonic()
        for manifest in made:
            self._node.kubectl("apply", "-f", "-", text=json.dumps(manifest))
        self._node.kubectl("-n", SPACE, "rollout", "status", "deployment/healthy", "--timeout=120s")
        took = time.monotonic() - begun
        pod = self._pods("app=healthy")[0].removeprefix("pod/")
        about = f"involvedObject.name={pod},type=Warning"
        said = "jsonpath={range .items[*]}{.reason}: {.message}{'; '}{end}"
        seen = self._node.kubectl("-n", SPACE, "get", "events", "--field-selector", about, "-o", said).strip()
        return f"ready after {took:.1f} s; events of type Warning: {seen or 'none'}", not seen

    def _end_starting(self) -> tuple[str, bool]:
        """End pods while their proxies start, one after the other."""
        pod = make_foreign(SPACE, "healthy", injected=True)[-1]["spec"]["template"]
        took = []
        for number, delay in enumerate((0.0, 0.1, 0.2, 0.3, 0.4)):
            named = {"name": f"early{number}", "namespace": SPACE, "annotations": pod["metadata"]["annotations"]}
            made = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": pod["spec"]}
            self._node.kubectl("apply", "-f", "-", text=json.dumps(made))
            self._await_sidecar(named["name"])
            time.sleep(delay)
            begun = time.monotonic()
            self._node.kubectl("-n", SPACE, "delete", "pod", named["name"], "--timeout=300s")
            took.append(time.monotonic() - begun)
        times = ", ".join(f"{each:.1f}" for each in took)
        return f"gone after {times} s, of a period of grace of 300 s", max(took) < at.GONE_WITHIN

    def _await_sidecar(self, pod: str) -> None:
        """Waits until the proxy's container of a pod runs; the proxy itself may still start."""
        state = ["-n", SPACE, "get", "pod", pod, "-o", "jsonpath={.status.initContainerStatuses[0].state}"]
        await_true("a sidecar", lambda: "running" in self._node.kubectl(*state, check=False), 60, every=0.1)

    def _edit_badly(self) -> tuple[str, bool]:
        """Edit the ConfigMap of a release with `events.enabled` badly, and look at the pod."""
        self._helm("upgrade", events={"enabled": True})
        pod = self._await_one_pod()
        name = ["-n", SPACE, "get", "configmap", "weather-toolcall-proxy", "-o", "json"]
        config_map = json.loads(self._node.kubectl(*name))
        good = config_map["data"]["config.yaml"]
        bad = good.replace("upstream: tool", "upstream: toool")
        patch = json.dumps({"data": {"config.yaml": bad}})
        begun = time.monotonic()
        self._node.kubectl("-n", SPACE, "patch", "configmap", "weather-toolcall-proxy", "--type=merge", "-p", patch)
        words = "ConfigNotTakenOver"

        def look() -> str:
            seen = self._node.kubectl("-n", SPACE, "describe", pod).rpartition("Events:")[2]
            return seen if words in seen else ""

        seen = await_true("the event", look, 120)
        took, status = time.monotonic() - begun, self._call(REPAIRABLE)
        told = "did you mean 'tool'?" in seen
        patch = json.dumps({"data": {"config.yaml": good}})
        self._node.kubectl("-n", SPACE, "patch", "configmap", "weather-toolcall-proxy", "--type=merge", "-p", patch)
        return (
            f"`kubectl describe pod` shows an event {words} after {took:.0f} s, {'with' if told else 'without'} the "
            f"mistake and its remedy; a call meanwhile is answered {status}",
            told and status == 200,
        )

    def _await_answers(self, name: str) -> list[int]:
        """Returns the statuses of a repairable and a bad call, once a Deployment has only new pods."""
        self._node.kubectl("-n", SPACE, "rollout", "status", f"deployment/{name}", "--timeout=120s")
        self._await_one_pod(f"app={name}")
        await_true("an answer of the proxy", lambda: self._call(REPAIRABLE, name) == 200, 60)
        return [self._call(REPAIRABLE, name), self._call(BAD, name)]

    def _build_component(self) -> tuple[str, bool]:
        """Apply the Kustomize example, as a dry run of the server."""
        built = self._node.run(at.ROOT / ".tools" / "kustomize", "build", at.ROOT / "helm" / "kustomize" / "example")
        printed = self._node.kubectl("-n", SPACE, "apply", "--dry-run=server", "-f", "-", text=built, check=False)
        taken, violated = printed.count("(server dry run)"), "would violate PodSecurity" in printed
        return (
            f"{taken} of 3 objects taken; {'not ' if violated else ''}what `restricted` allows",
            taken == 3 and not violated,
        )

    def _end_job(self) -> tuple[str, bool]:
        """End a Job with an injected sidecar."""
        pod = make_foreign(SPACE, "legacy", injected=True)[-1]["spec"]["template"]
        pod["spec"]["restartPolicy"] = "Never"
        pod["spec"]["containers"][0]["command"] = ["python", "-c", "import time; time.sleep(1)"]
        named = {"name": "once", "namespace": SPACE}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": {"template": pod}}
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


def _tell(answers: dict[str, int]) -> str:
    lost = {answer: count for answer, count in answers.items() if answer != "200"}
    others = ", ".join(f"{count} x {answer}" for answer, count in sorted(lost.items()))
    return f"{sum(answers.values())} calls, {sum(lost.values())} not answered 200" + (f" ({others})" if others else "")
