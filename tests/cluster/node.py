"""One Kubernetes node out of its real programs, as processes in a network namespace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.cluster import settings as at

_STARTS_WITHIN: Final = 180.0
# Not `ip netns exec`: that hides the cgroups.
INSIDE: Final = ("nsenter", f"--net=/run/netns/{at.NAMESPACE}")


class NoCluster(Exception):  # noqa: N818 - it says what is missing
    """This machine cannot run the cluster; says why."""


def find_missing() -> list[str]:
    """Returns what is missing here to run the node, each with how to get it."""
    missing = [f"{name}: bash .ci/cluster builds it" for name in at.PROGRAMS if not (at.BIN / name).is_file()]
    missing += [f"{name}: apt-get install {pack}" for name, pack in at.PACKAGES.items() if shutil.which(name) is None]
    if os.geteuid() != 0:
        missing.append("root: namespaces, mounts and cgroups need it")
    missing += [f"{name}: .ci/cluster makes the image (buildah)" for name in ("proxy.tar", "pause.tar")
                if not (at.CACHE / name).is_file()]  # fmt: skip
    return missing or _find_what_is_forbidden()


def _find_what_is_forbidden() -> list[str]:
    """Returns what this machine's kernel does not let its root do, of what a node needs."""
    missing = []
    for what, words in {
        "network and mount namespaces": ["unshare", "--net", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        "nftables in a network namespace": ["unshare", "--net", "nft", "add", "table", "ip", "tried"],
        "bridges and virtual interfaces": ["unshare", "--net", "ip", "link", "add", "tried", "type", "veth"],
    }.items():
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            missing.append(f"{what}: {done.stderr.strip() or 'refused'}")
    tree = Path("/sys/fs/cgroup")
    unified = tree / "cgroup.controllers"
    has = unified.read_text().split() if unified.is_file() else [each.name for each in tree.glob("*")]
    missing += [f"the cgroup controller {name}" for name in ("cpu", "cpuset", "memory", "pids") if name not in has]
    for folder in [tree] if unified.is_file() else [tree / "memory"]:
        try:
            (folder / at.NAMESPACE).mkdir(exist_ok=True)
            (folder / at.NAMESPACE).rmdir()
        except OSError as error:
            missing.append(f"cgroups of its own: {error}")
    return missing


def await_true(what: str, look: Callable[[], Any], seconds: float = _STARTS_WITHIN, *, every: float = 0.5) -> Any:
    """Waits until `look` gives something; raises NoCluster with what it waited for."""
    until = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > until:
            raise NoCluster(f"{what} was not seen within {seconds:g} s (logs: {at.STATE}/log)")
        time.sleep(every)
    return found


class Node:
    """A running node. `with Node() as node:` starts it and ends everything that it started."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Node:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *words: str | Path, text: str | None = None, check: bool = True, seconds: float = 600) -> str:
        """Runs a command inside the network namespace; gives what it printed."""
        environ = {**os.environ, "KUBECONFIG": str(at.STATE / "kubeconfig"), "HELM_CACHE_HOME": str(at.STATE / "helm")}
        command = [*INSIDE, *map(str, words)]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env=environ, timeout=seconds
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))[:200]}: {done.stderr[-2000:]}{done.stdout[-2000:]}")
        return done.stdout + ("" if check else done.stderr)

    def kubectl(self, *words: str | Path, **how: Any) -> str:
        """Runs kubectl."""
        return self.run("kubectl", *words, **how)

    def helm(self, *words: str | Path, **how: Any) -> str:
        """Runs Helm."""
        return self.run(at.ROOT / ".tools" / "helm", *words, **how)

    def _spawn(self, name: str, *words: str | Path) -> None:
        log = (at.STATE / "log" / f"{name}.log").open("wb")
        path = f"{at.BIN}:/usr/sbin:/sbin:{os.environ['PATH']}"
        # Each of them ends with this process, however that ends.
        command = ["setpriv", "--pdeathsig", "KILL", *INSIDE, *map(str, words)]
        environ = {**os.environ, "PATH": path}
        self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)

    def _await_start(self, what: str, look: Callable[[], Any]) -> None:
        """Waits for a part of the node; raises NoCluster early if a program of it has ended."""

        def look_at_all() -> Any:
            for name, process in self._running.items():
                if process.poll() is not None:
                    lines = (at.STATE / "log" / f"{name}.log").read_text(errors="replace").strip().splitlines()
                    raise NoCluster(
                        f"{name} ended with {process.returncode}: {' / '.join([*lines[:1], *lines[-2:]])[:600]}"
                    )
            return look()

        await_true(what, look_at_all)

    def _start(self) -> None:
        if missing := find_missing():
            raise NoCluster("; ".join(missing))
        clean()
        _write_files()
        _make_network()
        control, node, state = at.BIN / "control", at.BIN / "node", at.STATE
        kubeconfig = f"--kubeconfig={state}/kubeconfig"
        front = state / "front"
        self._spawn("etcd", control, "etcd", state / "etcd", str(at.ETCD[0]), str(at.ETCD[1]))
        time.sleep(2)
        self._spawn(
            "api", control, "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{at.ETCD[0]}", "--secure-port=21502",
            f"--bind-address={at.NODE}", f"--advertise-address={at.NODE}", f"--cert-dir={state}/apicert",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-cluster-ip-range={at.SERVICES}", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={state}/sa.pub", f"--service-account-signing-key-file={state}/sa.key",
            f"--token-auth-file={state}/tokens.csv", "--authorization-mode=RBAC", "--allow-privileged=true", "--v=1",
            f"--requestheader-client-ca-file={front}.pem", f"--proxy-client-cert-file={front}.pem",
            f"--proxy-client-key-file={front}.key", "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        )  # fmt: skip
        self._spawn("containerd", at.BIN / "containerd", "--config", state / "containerd.toml")
        self._await_start("the API server", lambda: "ok" == self.kubectl("get", "--raw=/readyz", check=False).strip())
        self._spawn(
            "controllers", control, "kube-controller-manager", kubeconfig,
            f"--root-ca-file={state}/apicert/apiserver.crt",
            f"--service-account-private-key-file={state}/sa.key", "--leader-elect=false",
            "--use-service-account-credentials=false", "--horizontal-pod-autoscaler-sync-period=5s", "--v=1",
        )  # fmt: skip
        self._spawn("scheduler", node, "kube-scheduler", kubeconfig, "--leader-elect=false", "--v=1")
        self._load_images()
        self._spawn(
            "kubelet", node, "kubelet", f"--config={state}/kubelet.yaml", kubeconfig, f"--root-dir={state}/kubelet",
            f"--node-ip={at.NODE}", "--hostname-override=node1", "--v=2",
        )  # fmt: skip
        self._spawn("kube-proxy", node, "kube-proxy", f"--config={state}/proxy.yaml", "--v=2")
        self._spawn("dns", "python3", Path(__file__).with_name("names.py"), at.NODE, at.API, at.TOKEN)
        self._spawn(
            "metrics", at.BIN / "metrics-server", kubeconfig, f"--authentication-kubeconfig={state}/kubeconfig",
            f"--authorization-kubeconfig={state}/kubeconfig", f"--secure-port={at.METRICS_PORT}",
            f"--bind-address={at.NODE}", f"--cert-dir={state}/metricscert", "--kubelet-insecure-tls",
            "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s",
            "--kubelet-request-timeout=5s",
        )  # fmt: skip
        self.kubectl("apply", "-f", state / "metrics.yaml")
        self._await_start(
            "a node that is ready", lambda: " Ready" in self.kubectl("get", "nodes", "--no-headers", check=False)
        )

    def _load_images(self) -> None:
        ctr: list[str | Path] = [at.BIN / "ctr", f"--address={at.STATE}/containerd.sock", "--namespace=k8s.io"]
        self._await_start("containerd", lambda: "Server" in self.run(*ctr, "version", check=False))
        for archive in ("pause.tar", "proxy.tar"):
            self.run(*ctr, "images", "import", at.CACHE / archive)

    def stop(self) -> None:
        """Ends what was started here, and every container of it."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        clean()
        for process in self._running.values():
            process.wait()
        self._running.clear()


def clean() -> None:
    """Ends what a run has left: the processes in its namespaces, its mounts, namespaces, cgroups and files."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    mounts = [place for place in places if place.startswith(f"{at.STATE}/")]
    # A pod's network namespace is a mount too, and all of a pod's processes are in it.
    ours = _find_inode(Path("/proc/self/ns/net"))
    spaces = {_find_inode(Path(place)) for place in [*mounts, f"/run/netns/{at.NAMESPACE}"]} - {None, ours}
    for _ in range(20):  # one that ends may have begun another
        left = [each for each in Path("/proc").glob("[0-9]*") if _find_inode(each / "ns" / "net") in spaces]
        if not left:
            break
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(int(each.name), signal.SIGKILL)
        time.sleep(0.1)
    for place in reversed(mounts):
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "delete", at.NAMESPACE], check=False, capture_output=True)
    tops = [top for pattern in ("kubepods", "*/kubepods") for top in Path("/sys/fs/cgroup").glob(pattern)]
    for folder, _, _ in [each for top in tops for each in os.walk(top, topdown=False)]:
        with suppress(OSError):  # somebody else's, which is not empty
            Path(folder).rmdir()
    for link in Path("/var/log/containers").glob("*"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{at.STATE}/"):
            link.unlink()
    shutil.rmtree(at.STATE, ignore_errors=True)


def _find_inode(path: Path) -> tuple[int, int] | None:
    """Returns the inode that a path leads to, of a namespace or a file; None if it has gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write_files() -> None:
    for folder in ("log", "cni", "etcd"):
        (at.STATE / folder).mkdir(parents=True, exist_ok=True)
    values = {
        "state": at.STATE,
        "api": at.API,
        "token": at.TOKEN,
        "metrics_port": at.METRICS_PORT,
        "snapshotter": "native" if _is_nested() else "overlayfs",
    }
    for name, text in {
        "containerd.toml": at.CONTAINERD, "cni/10-pods.conflist": at.CNI, "kubelet.yaml": at.KUBELET,
        "proxy.yaml": at.KUBE_PROXY, "kubeconfig": at.KUBECONFIG,
        "metrics.yaml": at.METRICS,
    }.items():  # fmt: skip
        (at.STATE / name).write_text(text.format(**values))
    (at.STATE / "kubeconfig").chmod(0o600)
    (at.STATE / "resolv.conf").write_text("nameserver 192.0.2.1\n")
    (at.STATE / "tokens.csv").write_text(f'{at.TOKEN},admin,admin,"system:masters"\n')
    # By this certificate the API server shows itself to the metrics server.
    front: list[str | Path] = [
        "-keyout",
        at.STATE / "front.key",
        "-out",
        at.STATE / "front.pem",
        "-subj",
        "/CN=front",
        "-days",
        "2",
    ]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *front], check=True, capture_output=True
    )
    key = at.STATE / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    subprocess.run(
        ["openssl", "rsa", "-in", key, "-pubout", "-out", key.with_suffix(".pub")], check=True, capture_output=True
    )


def _is_nested() -> bool:
    """Returns whether the cache lies on an overlay itself, on which no other can be laid."""
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", at.CACHE], capture_output=True, text=True, check=True
    ).stdout.strip()
    return kind == "overlayfs"


def _make_network() -> None:
    """The namespace, and an interface in it that has the node's address and leads nowhere."""
    inside = INSIDE
    for command in (
        ["ip", "netns", "add", at.NAMESPACE],
        [*inside, "ip", "link", "set", "lo", "up"],
        [*inside, "ip", "link", "add", "node0", "type", "bridge"],
        [*inside, "ip", "addr", "add", f"{at.NODE}/24", "dev", "node0"],
        [*inside, "ip", "link", "set", "node0", "up"],
        [*inside, "ip", "route", "add", "default", "dev", "node0"],
        [*inside, "sysctl", "-qw", "net.ipv4.ip_forward=1"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoCluster(f"{' '.join(command)}: {done.stderr.strip()}")
