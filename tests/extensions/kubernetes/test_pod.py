"""In a Kubernetes pod the proxy refuses a config that the pod cannot serve, and says what keeps it from its work."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.config.load import load
from proxy.extensions.kubernetes.pod_serving import EventRefused, PodEvents, PodWatcher
from proxy.server import start_serving
from proxy.telemetry.logs import Log
from proxy.telemetry.watches import NOT_READY, Notices
from tests.serving.keys import authority, certificate
from tests.serving.proxied import WEATHER

ROUTES = "routes: [{path: /a, upstream: tool, tool: a, schema: {type: object, required: [x]}}]"
GOOD = 'listen: 0.0.0.0:8080\nadmin: {listen: "127.0.0.1:8081", probes: "0.0.0.0:9091"}'
WRONG: list[tuple[str, str, str]] = [
    ("0.0.0.0:8080", "127.0.0.1:8080", "`listen` is reached only from inside of the pod  (write `listen: 0.0.0.0:"),
    ("0.0.0.0:8080", "0.0.0.0:8181", "`listen` has port 8181, and calls come to port 8080 of the pod"),
    (', probes: "0.0.0.0:9091"', "", "kubelet reaches no probes  (write `admin: "),
    ("0.0.0.0:9091", "0.0.0.0:9191", "`admin.probes` has port 9191, and kubelet asks port 9091 of the pod"),
    ("127.0.0.1:8081", "127.0.0.1:9190", "`admin.listen` has port 9190, and the preStop hook asks port 8081"),
    ("tool: {", "tools: {", "no upstream is called 'tool', by which the pod asks whether its tool is"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "said"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_a_config_that_the_pod_cannot_serve_ends_the_process_with_the_remedy(
    before: str, after: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    text = f"version: 1\n{GOOD}\nupstreams: {{tool: {{url: http://127.0.0.1:9}}}}\n{ROUTES}\n"
    text = text.replace(before, after)
    path.write_text(text.replace("upstream: tool,", "upstream: tools,") if "tools: {" in text else text)
    words = ["serve", str(path), "--pod-ports", "8080,9091,8081", "--pod-upstream", "tool"]
    assert 2 == main(words)
    assert f"{path}: {said}" in capsys.readouterr().err


async def start_in_a_network_of_its_own(path: Path, *words: str) -> asyncio.subprocess.Process:
    """`serve` for a pod, which listens at every address: in a network namespace, so that nobody else reaches it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no network namespace can be made here: run as root, with unshare and ip (util-linux, iproute2)")
    path.write_text(
        'version: 1\nlisten: 0.0.0.0:8080\nadmin: {listen: "127.0.0.1:8081", probes: "0.0.0.0:9091"}\n'
        f"upstreams: {{tool: {{url: http://127.0.0.1:9}}}}\n{ROUTES}\n"
    )
    serve = f"{sys.executable} -X importtime -m proxy serve {path} --pod-ports 8080,9091,8081 {' '.join(words)}"
    command = ["unshare", "--net", "--kill-child", "--fork", "sh", "-c", f"ip link set lo up && exec {serve}"]
    return await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def test_a_config_that_fits_the_pod_is_served_and_its_probes_port_takes_questions_from_the_first_moment(
    tmp_path: Path,
) -> None:
    """Kubelet's first question waits for its answer; refused, it would be a Warning event."""
    words = ("--pod-upstream", "tool", "--log-level", "error")
    serving = await start_in_a_network_of_its_own(tmp_path / "config.yaml", *words)
    assert serving.stderr is not None
    assert serving.stdout is not None
    listening = ""
    try:
        async for line in serving.stderr:
            if line.decode().rpartition("|")[2].strip() == "proxy.cli.options":
                (child,) = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
                listening = Path(f"/proc/{child}/net/tcp").read_text()
                break
        reading = asyncio.create_task(serving.stderr.read())
        printed = [(await serving.stdout.readline()).decode() for _ in range(3)]
        reading.cancel()
    finally:
        serving.kill()
        await serving.wait()
    assert f"00000000:{9091:04X} 00000000:0000 0A" in listening, "it listens, and nothing else of ours is imported"
    ports = ["listening on http://0.0.0.0:8080", "admin on http://127.0.0.1:8081", "probes on http://0.0.0.0:9091"]
    assert ports == [line.strip() for line in printed]


def make_notices(watcher: PodWatcher, clock: list[float], log: io.StringIO) -> Notices:
    return Notices(Log(log, "json", "info", lambda: 0.0), lambda: clock[0], watcher)


async def test_an_upstream_that_does_not_answer_is_a_line_of_log_and_the_termination_message(tmp_path: Path) -> None:
    termination, clock, log = tmp_path / "termination-log", [0.0], io.StringIO()
    termination.write_text("")
    notices = make_notices(PodWatcher(termination, hold=0.0), clock, log)
    trouble = "takes no connection: Connection refused"

    async def look() -> str:
        return trouble

    seen = []
    for at in (0.0, 10.0, 16.0, 20.0):
        clock[0] = at
        seen.append((await notices.watch_upstream("tool", look), termination.read_text()))
    trouble = ""
    seen.append((await notices.watch_upstream("tool", look), termination.read_text()))
    notices.log.close()

    refused = "takes no connection: Connection refused"
    told = f"upstream 'tool' {refused}  (is its url the address that the tool listens at?)"
    assert [(refused, ""), (refused, ""), (refused, told), (refused, told), ("", "")] == seen
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [("Upstream not ready", "warning"), ("Upstream ready", "info")] == [
        (line["message"], line["level"]) for line in lines
    ]


async def test_the_first_question_waits_for_a_tool_that_is_starting(tmp_path: Path) -> None:
    notices = make_notices(PodWatcher(tmp_path / "none", hold=600.0), [0.0], io.StringIO())
    answers = iter(["takes no connection", "takes no connection", "", "no connection in time"])

    async def look() -> str:
        return next(answers)

    assert ["", "no connection in time"] == [await notices.watch_upstream("tool", look) for _ in range(2)]


async def test_a_bad_edit_is_the_termination_message_until_it_is_corrected(tmp_path: Path) -> None:
    termination = tmp_path / "termination-log"
    termination.write_text("")
    path = tmp_path / "config.yaml"
    good = (
        "version: 1\nlisten: 127.0.0.1:0\nadmin: off\nupstreams: {tools: {url: http://127.0.0.1:9}}\n"
        f"routes:{WEATHER}"
    )
    path.write_text(good)
    watcher = PodWatcher(termination)
    serving = await start_serving(load(path, {}), log_to=io.StringIO(), environ={}, watcher=watcher)
    path.write_text(good.replace("upstream: tools", "upstream: tolls"))
    await serving.reloader.reload()
    bad = termination.read_text()
    path.write_text(good)
    await serving.reloader.reload()
    mended = termination.read_text()
    await serving.stop(0)

    assert bad.startswith(f"the config is not taken over:\n{path}:")
    assert "unknown upstream 'tolls'  (did you mean 'tools'?)" in bad
    assert "" == mended


# --- Events -----------------------------------------------------------------------------------------------------------
@contextmanager
def api_server(folder: Path, status: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """An API server on loopback that takes events: its port, and what was posted."""
    posted: list[dict[str, Any]] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            posted.append({"path": self.path, "token": self.headers["authorization"], **body})
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Api)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.pem", folder / "api.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_account(folder: Path) -> Path:
    """A service account's folder, and a certificate for an API server on loopback."""
    authority(folder)
    certificate(folder, "api", "IP:127.0.0.1")
    (folder / "ca.crt").write_bytes((folder / "ca.pem").read_bytes())
    (folder / "token").write_text("a-token")
    (folder / "namespace").write_text("tools")
    return folder


async def test_a_notice_is_an_event_of_the_pod_once(tmp_path: Path) -> None:
    account = make_account(tmp_path)
    with api_server(account, 201) as (port, posted):
        events = PodEvents("127.0.0.1", port, "weather-1", "u-1", account)
        notices = make_notices(PodWatcher(tmp_path / "none", events, hold=0.0), [0.0], io.StringIO())
        for _ in range(2):
            notices.tell(NOT_READY, "tool", "upstream 'tool' takes no connection")
        async with asyncio.timeout(60):
            await notices.settle()
    (event,) = posted
    assert ("/api/v1/namespaces/tools/events", "Bearer a-token") == (event["path"], event["token"])
    about = {"apiVersion": "v1", "kind": "Pod", "name": "weather-1", "namespace": "tools", "uid": "u-1"}
    assert about == event["involvedObject"]
    assert ("Warning", "UpstreamNotReady", "upstream 'tool' takes no connection") == (
        event["type"], event["reason"], event["message"],
    )  # fmt: skip


def test_an_event_that_is_refused_says_what_is_missing(tmp_path: Path) -> None:
    account = make_account(tmp_path)
    with (
        api_server(account, 403) as (port, _),
        pytest.raises(EventRefused, match="answered 403: may the pod's service account create events"),
    ):
        PodEvents("127.0.0.1", port, "weather-1", "u-1", account).post("Any", "text")


def test_events_outside_of_a_pod_are_refused_by_the_names_that_are_missing() -> None:
    with pytest.raises(ValueError, match=r"not set in the environment: POD_NAME, POD_UID  \(the chart's value"):
        PodEvents.of_pod({"KUBERNETES_SERVICE_HOST": "a", "KUBERNETES_SERVICE_PORT": "443"})
