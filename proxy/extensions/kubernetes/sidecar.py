"""The proxy's container and its volumes in a pod's manifest, as plain values.

The chart renders the same, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from proxy.core.model.value_class import value_class

Manifest = dict[str, Any]

CONTAINER: Final = "toolcall-proxy"
CONFIG_FOLDER: Final = "/etc/toolcall-proxy"
SECRET_FOLDER: Final = "/run/secrets/toolcall-proxy"  # noqa: S105 - where a Secret is mounted
ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# The volumes: the config, a Secret, and a service account's token for Events.
VOLUME: Final = "toolcall-proxy-config"
SECRET_VOLUME: Final = "toolcall-proxy-secret"  # noqa: S105 - the name of a volume
ACCOUNT_VOLUME: Final = "toolcall-proxy-account"
VOLUMES: Final = (VOLUME, SECRET_VOLUME, ACCOUNT_VOLUME)
PORT_NAME: Final = "toolproxy"
PROBES_NAME: Final = "toolproxy-probe"
# Pods that are finished end at once, so a long period costs nothing.
LEAST_GRACE: Final = 300
_HOOKS_APART: Final = 5
_LAST_CALLS: Final = 5
_READABLE: Final = 0o444
# Seconds for which a token is good; kubelet renews it before.
_TOKEN_LASTS: Final = 3607


@value_class
class Sidecar:
    """The sidecar of a pod: its image, its config's ports and times (seconds), the tool behind it, and the pod's values
    for it.

    `paths`: key of the ConfigMap -> file in the config's folder. `checksum`: a hash over the keys that need a restart.
    `env`: variable -> value, or None for the key of that name in the Secret `secret`. `token_file`: where the preStop
    hook finds the operator's token. `calls_port`: the user's port of calls, a number or a name. `secret_places`: the
    places of the config that read the Secret's folder.
    """

    image: str
    upstream: str
    tool_port: int
    port: int
    probes: int
    admin: int
    drain: int
    longest_call: int
    config_map: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    checksum: str = ""
    secret: str = ""
    env: tuple[tuple[str, str | None], ...] = ()
    token_file: str = ""
    cpu: str = ""
    memory: str = ""
    log_level: str = ""
    events: bool = False
    calls_port: str = ""
    secret_places: tuple[str, ...] = ()

    @property
    def sleep(self) -> int:
        """Seconds by which the tool's SIGTERM is delayed."""
        return self.drain + _HOOKS_APART

    @property
    def grace(self) -> int:
        """The least terminationGracePeriodSeconds."""
        return max(LEAST_GRACE, self.sleep + self.longest_call + _LAST_CALLS)

    def make_container(self, *, port_name: str = PORT_NAME, in_job: bool = False) -> Manifest:
        """The native sidecar. In a Job no calls come at its end, so it does not wait for any."""
        env = self._make_env()
        return {
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "command": ["python", "-m", "proxy"],
            "args": self._make_args(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            **({"env": env} if env else {}),
            "ports": [
                {"name": port_name, "containerPort": self.port, "protocol": "TCP"},
                {"name": PROBES_NAME, "containerPort": self.probes, "protocol": "TCP"},
            ],
            "lifecycle": {"preStop": {"exec": {"command": self._make_hook(in_job=in_job)}}},
            "startupProbe": _probe("/startupz", 1, periodSeconds=1, timeoutSeconds=10, failureThreshold=60),
            "readinessProbe": _probe("/readyz", periodSeconds=5, timeoutSeconds=1, failureThreshold=2),
            "livenessProbe": _probe("/livez", periodSeconds=10, timeoutSeconds=2, failureThreshold=3),
            "resources": {
                "requests": {"cpu": self.cpu or "50m", "memory": self.memory or "96Mi"},
                "limits": {"memory": self.memory or "256Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": each["name"], "mountPath": _FOLDERS[each["name"]], "readOnly": True}
                for each in self.make_volumes()
            ],
        }

    def _make_args(self) -> list[str]:
        ports = f"{self.port},{self.probes},{self.admin}"
        args = ["serve", f"{CONFIG_FOLDER}/config.yaml", "--pod-ports", ports, "--pod-upstream", self.upstream]
        args += ["--log-level", self.log_level] if self.log_level else []
        return [*args, *(["--pod-events"] if self.events else [])]

    def _make_hook(self, *, in_job: bool) -> list[str]:
        drain = ["--seconds", "0"] if in_job else ["--with-tools"]
        token = ["--token-file", self.token_file] if self.token_file else []
        return ["python", "-m", "proxy", "drain", *drain, "--admin", f"127.0.0.1:{self.admin}", *token]

    def _make_env(self) -> list[Manifest]:
        made: list[Manifest] = []
        for name, value in self.env:
            key = {"secretKeyRef": {"name": self.secret, "key": name}}
            made.append({"name": name, "value": value} if value is not None else {"name": name, "valueFrom": key})
        if self.events:
            about = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
            made += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in about.items()]
        return made

    def make_volumes(self) -> list[Manifest]:
        """The volumes with the config, with the Secret, and with the token for Events."""
        source: Manifest = {"name": self.config_map}
        if any(key != path for key, path in self.paths.items()):
            source["items"] = [{"key": key, "path": path} for key, path in self.paths.items()]
        made = [{"name": VOLUME, "projected": {"defaultMode": _READABLE, "sources": [{"configMap": source}]}}]
        if self.secret:
            made.append({"name": SECRET_VOLUME, "secret": {"secretName": self.secret, "defaultMode": _READABLE}})
        if self.events:
            made.append({"name": ACCOUNT_VOLUME, "projected": {"defaultMode": _READABLE, "sources": _ACCOUNT}})
        return made

    def make_tool_probe(self) -> Manifest:
        """The readiness probe of the tool's container. It asks the proxy, because kubelet cannot reach a tool on
        loopback; the proxy waits 8 s for the first yes."""
        check = {"path": f"/readyz/upstream/{self.upstream}", "port": self.probes}
        return {"httpGet": check, "initialDelaySeconds": 1, "periodSeconds": 2, "timeoutSeconds": 10,
                "failureThreshold": 2}  # fmt: skip


_FOLDERS: Final = {VOLUME: CONFIG_FOLDER, SECRET_VOLUME: SECRET_FOLDER, ACCOUNT_VOLUME: ACCOUNT_FOLDER}
# The parts of a pod's own service account; the tool's container gets none of them.
_ACCOUNT: Final[list[Manifest]] = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_LASTS}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
]


def _probe(path: str, delay: int = 0, **times: int) -> Manifest:
    begin = {"initialDelaySeconds": delay} if delay else {}
    return {"httpGet": {"path": path, "port": PROBES_NAME}, **begin, **times}
