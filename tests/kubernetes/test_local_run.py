"""The rendered pod, run here: its containers as processes, its config mounted as kubelet mounts it, its hooks and
signals in kubelet's order, under load. No cluster, but every command, file, port and second is that of the chart.

In place of the cluster, a call is sent only while the pod is an endpoint. The pod stops being one a moment after its
end begins, which is the order in which EndpointSlices and kube-proxy learn of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.rendering import Manifest, containers, files_of, of_kind, pod_of, proxy_of, render
from tests.ports import hold_ports
from tests.serving.mounted import Mounted
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, tool
from tests.steady import until

pytestmark = pytest.mark.large

CONFIG_FOLDER: Final = "/etc/toolcall-proxy"
GOOD: Final = b'{"lat": 48.85, "lon": 2.35}'
# From the end of a pod to the last load balancer that knows. It is far less than drain.seconds, as in a cluster: on a
# busy machine a call that was sent before arrives much later.
PROPAGATION: Final = 0.3
# Between two calls of a client: enough calls to find a gap of milliseconds, and the machine is left to other tests.
PAUSE: Final = 0.004


@dataclass
class Pod:
    """A pod as kubelet would run it. `values` are those it was rendered with, `ports` where it listens."""

    case: str
    folder: Path
    values: dict[str, Any]
    manifests: list[Manifest] = field(default_factory=list)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    endpoint: bool = True
    answered: Counter[object] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.calls, self.admin, self.probes, self.tool = hold_ports(4)
        self.values |= {
            "ports": {"calls": self.calls, "admin": self.admin, "probes": self.probes},
            "tool__port": self.tool,
            "tool__args": [str(self.tool)],
        }
        self.manifests = render(self.case, **self.values)
        self.mount = Mounted(self.folder, self.files())

    def files(self) -> dict[str, str]:
        """The config's files; a pod has its own address, a process here has loopback."""
        return {name: text.replace("0.0.0.0", "127.0.0.1") for name, text in files_of(self.manifests).items()}

    def update(self, **values: Any) -> None:
        """`helm upgrade`, and then kubelet's swap of `..data`."""
        before = pod_of(self.manifests)
        self.values |= values
        self.manifests = render(self.case, **self.values)
        assert before == pod_of(self.manifests), "the upgrade would roll the pods"
        self.mount.update(self.files())

    def words(self, command: Sequence[str]) -> list[str]:
        """A command of the pod as it runs here: this Python, and the mounted folder. A process here listens on
        loopback, which `--pod-ports` refuses."""
        first, *rest = command
        if "--pod-ports" in rest:
            at = rest.index("--pod-ports")
            del rest[at : at + 2]
        return [
            sys.executable if first == "python" else first,
            *(word.replace(CONFIG_FOLDER, str(self.folder)) for word in rest),
        ]

    def start(self, container: Manifest) -> None:
        """Starts a container's process in an empty environment and folder, as an image would."""
        command = self.words([*container["command"], *container.get("args", ())])
        environ = {"PATH": os.defpath} | {entry["name"]: entry["value"] for entry in container.get("env", ())}
        log = (self.folder.parent / f"{container['name']}.log").open("wb")
        with log:
            self.running[container["name"]] = subprocess.Popen(command, env=environ, cwd="/", stdout=log, stderr=log)

    def end(self) -> None:
        """Ends what still runs."""
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    async def probe(self, name: str) -> int:
        """The status that one of the rendered probes gets, 0 where nobody answers."""
        proxy = proxy_of(self.manifests)
        asked = proxy[f"{name}Probe"]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in proxy["ports"]}
        request = f"GET {asked['path']} HTTP/1.1\r\nHost: 10.1.2.3\r\n\r\n".encode()
        try:
            return (await exchange(ports[asked["port"]], request)).status
        except OSError:
            return 0

    async def until(self, name: str, status: int) -> None:
        """Waits until a probe gets a status."""
        async with asyncio.timeout(300):
            while await self.probe(name) != status:
                self.assert_alive()
                await asyncio.sleep(0.02)

    def assert_alive(self) -> None:
        """Fails with the log of a container that has ended."""
        ended = [each for each, process in self.running.items() if process.poll() is not None]
        assert [] == ended, "".join((self.folder.parent / f"{each}.log").read_text() for each in ended)

    async def until_draining(self) -> None:
        """Waits until the proxy drains. It stays ready all the time."""
        async with asyncio.timeout(300):
            while not json.loads(await self.ask_drain())["draining"]:
                await asyncio.sleep(0.02)

    async def ask_drain(self) -> bytes:
        """The state of the drain, as the operator's port tells it."""
        return (await exchange(self.admin, b"GET /-/drain HTTP/1.1\r\nHost: localhost\r\n\r\n")).body

    async def stop(self, name: str) -> int:
        """SIGTERM, and the exit code."""
        self.running[name].send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.running[name].wait, 300)

    async def call(self, body: bytes) -> int:
        """The status of one call."""
        return (await exchange(self.calls, post("/tools/weather", body))).status

    async def has_answered(self, stage: str) -> None:
        """Waits until a good number of calls of a stage were answered."""
        await until(lambda: self.answered[stage] >= 20)

    async def load(self, stage: list[str]) -> None:
        """Calls while the pod is an endpoint, over kept connections as long as they last."""
        while self.endpoint:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.calls)
                closing = False
                while not closing and self.endpoint:
                    now = stage[-1]
                    writer.write(post("/tools/weather", GOOD))
                    answered = await read_message(reader)
                    closing = answered.header("connection") == "close"
                    self.answered[now if answered.status == 200 else (now, answered.status)] += 1
                    await asyncio.sleep(PAUSE)
                writer.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                self.answered[stage[-1], type(error).__name__] += 1


@contextlib.asynccontextmanager
async def running(case: str, folder: Path, **values: Any) -> AsyncIterator[Pod]:
    """A pod that has started, its containers in kubelet's order."""
    pod = Pod(case, folder / "config", values)
    try:
        for container in containers(pod_of(pod.manifests)["spec"]):
            pod.start(container)
            if container["name"] == "toolcall-proxy":
                await pod.until("startup", 200)
            else:
                await listening(pod.tool, pod)
        await pod.until("readiness", 200)
        yield pod
    finally:
        pod.end()


async def listening(port: int, pod: Pod) -> None:
    """Waits until somebody listens; not for a container that has ended."""
    async with asyncio.timeout(300):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            pod.assert_alive()
            await asyncio.sleep(0.02)


async def no_endpoint_any_more(pod: Pod, stage: list[str]) -> None:
    """Acts as the cluster does once the pod has to end."""
    await pod.until_draining()
    stage.append("draining")
    await asyncio.to_thread(time.sleep, PROPAGATION)  # by the wall clock, as the drain
    await until(lambda: pod.answered["draining"])
    pod.endpoint = False


async def test_a_change_of_the_config_and_the_end_of_the_pod_lose_no_call(tmp_path: Path) -> None:
    stage = ["before"]
    seconds = {"drain__seconds": 5, "drain__toolSleepSeconds": 7, "reload__interval": "100ms"}
    async with running("tool", tmp_path, **seconds) as pod:
        clients = [asyncio.create_task(pod.load(stage)) for _ in range(4)]
        repaired = await pod.call(b'{"lat": "48.85", "lon": 2.35}')
        await pod.has_answered("before")

        pod.update(config__defaults={"repair": "off"})
        async with asyncio.timeout(300):
            while await pod.call(b'{"lat": "48.85", "lon": 2.35}') != 400:
                await asyncio.sleep(0.05)
        stage.append("after")
        await pod.has_answered("after")

        # The end. All hooks at once; then the tool, then the sidecar.
        spec = pod_of(pod.manifests)["spec"]
        ends = asyncio.get_running_loop().time() + spec["terminationGracePeriodSeconds"]
        gone = asyncio.create_task(no_endpoint_any_more(pod, stage))
        hook = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            pod.words(proxy_of(pod.manifests)["lifecycle"]["preStop"]["exec"]["command"]), stdout=subprocess.DEVNULL
        )
        await asyncio.sleep(spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"])
        await pod.stop("tool")
        drained = await asyncio.to_thread(hook.wait, 300)
        alive = pod.running["toolcall-proxy"].poll()
        status = await pod.stop("toolcall-proxy")
        left = ends - asyncio.get_running_loop().time()
        await asyncio.gather(gone, *clients)

    assert 200 == repaired
    assert {"before", "after", "draining"} == set(pod.answered), pod.answered
    assert (0, None, 0) == (drained, alive, status)
    assert left > 0


async def unhurried(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
    """A tool that takes longer than the drain for one kind of call."""
    if b"imperial" in seen.body:
        await asyncio.sleep(6)
    writer.write(answer("200 OK", seen.body, JSON_TYPE))
    await writer.drain()


async def test_sigterm_is_enough_to_end_a_gateway_and_loses_no_call_however_long(tmp_path: Path) -> None:
    stage = ["before"]
    async with tool(unhurried) as server:
        values = {"shape": "gateway", "drain__seconds": 5, "config__upstreams": {"tool": {"url": server.url}}}
        async with running("tool", tmp_path, **values) as pod:
            clients = [asyncio.create_task(pod.load(stage)) for _ in range(4)]
            tested = await helm_test(pod)
            await pod.has_answered("before")
            gone = asyncio.create_task(no_endpoint_any_more(pod, stage))
            ended = asyncio.create_task(pod.stop("toolcall-proxy"))
            await pod.until_draining()
            ready = await pod.probe("readiness")
            long = await pod.call(b'{"lat": 48.85, "lon": 2.35, "units": "imperial"}')
            status = await ended
            await asyncio.gather(gone, *clients)

    assert {"before", "draining"} == set(pod.answered), pod.answered
    assert (200, 200, 0) == (ready, long, status)
    assert (0, 4) == (tested.returncode, tested.stdout.count("ok  ")), tested.stdout


async def helm_test(pod: Pod, **environ: str) -> subprocess.CompletedProcess[str]:
    """The pod of `helm test`, run against the pod here."""
    (container,) = of_kind(pod.manifests, "Pod")["spec"]["containers"]
    rendered = {entry["name"]: entry["value"] for entry in container["env"]}
    here = {
        "TARGET": f"http://127.0.0.1:{pod.calls}",
        "PODS": f"127.0.0.1:{pod.probes}",
        "CONFIG": str(pod.folder / "config.yaml"),
    }
    environ = {**rendered, **here, **environ}
    return await asyncio.to_thread(
        subprocess.run, pod.words(container["command"]), env=environ, capture_output=True, text=True, check=False
    )


async def test_helm_test_fails_if_an_answer_differs_from_the_expected_one(tmp_path: Path) -> None:
    async with running("tool", tmp_path) as pod:
        right = await helm_test(pod)
        bad = {"path": "/tools/weather", "body": {"lat": []}, "status": 200}
        other = {"path": "/tools/weather", "body": {"lat": []}, "status": 400, "code": "SOMETHING_ELSE"}
        wrong = await helm_test(pod, CALLS=json.dumps([bad, other]))
        config = yaml.safe_load((pod.folder / "config.yaml").read_text())
        released = tmp_path / "released.yaml"
        released.write_text("version: 1\nroutes: {/a: {upstream: none, tool: a, schema: {}}}")
        late = await helm_test(pod, CONFIG=str(released), WAIT="0")

    assert 0 == right.returncode, right.stdout
    assert (1, 1, True) == (late.returncode, late.stdout.count("WRONG"), "not served yet by 127.0.0.1" in late.stdout)
    assert (1, 2) == (wrong.returncode, wrong.stdout.count("WRONG"))
    assert f"http://127.0.0.1:{pod.tool}" == config["upstreams"]["tool"]["url"]
