"""The proxy's own container and its volume, as plain manifests. The chart renders the same; a test compares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Manifest = dict[str, Any]

CONTAINER: Final = "toolcall-proxy"
VOLUME: Final = "toolcall-proxy-config"
CONFIG_FOLDER: Final = "/etc/toolcall-proxy"
PORT_NAME: Final = "toolproxy"
PROBES_NAME: Final = "toolproxy-probe"
# Pods that are done end at once, so a long period costs nothing.
LEAST_GRACE: Final = 300
_HOOKS_APART: Final = 5
_LAST_CALLS: Final = 5


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What is put into pods: the image, the ConfigMap, the ports and seconds of its config, and the tool behind it.

    `paths` leads from the keys of the ConfigMap to the files in the config's folder.
    """

    image: str
    config_map: str
    upstream: str
    tool_port: int
    port: int
    probes: int
    admin: int
    drain: int
    longest_call: int
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def sleep(self) -> int:
        """How long the tool is kept from its SIGTERM."""
        return self.drain + _HOOKS_APART

    @property
    def grace(self) -> int:
        """The least terminationGracePeriodSeconds."""
        return max(LEAST_GRACE, self.sleep + self.longest_call + _LAST_CALLS)

    def make_container(self, *, port_name: str = PORT_NAME, in_job: bool = False) -> Manifest:
        """The native sidecar. In a Job nobody calls any more when it is to end, so it does not wait for anybody."""
        drain = ["--seconds", "0"] if in_job else ["--with-tools"]
        return {
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "command": ["python", "-m", "proxy"],
            "args": ["serve", f"{CONFIG_FOLDER}/config.yaml"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "ports": [
                {"name": port_name, "containerPort": self.port, "protocol": "TCP"},
                {"name": PROBES_NAME, "containerPort": self.probes, "protocol": "TCP"},
            ],
            "lifecycle": {
                "preStop": {
                    "exec": {
                        "command": ["python", "-m", "proxy", "drain", *drain, "--admin", f"127.0.0.1:{self.admin}"]
                    }
                }
            },
            "startupProbe": _probe("/startupz", periodSeconds=1, timeoutSeconds=1, failureThreshold=60),
            "readinessProbe": _probe("/readyz", periodSeconds=5, timeoutSeconds=1, failureThreshold=2),
            "livenessProbe": _probe("/livez", periodSeconds=10, timeoutSeconds=2, failureThreshold=3),
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [{"name": VOLUME, "mountPath": CONFIG_FOLDER, "readOnly": True}],
        }

    def make_volume(self) -> Manifest:
        """The volume with the config."""
        source: Manifest = {"name": self.config_map}
        if any(key != path for key, path in self.paths.items()):
            source["items"] = [{"key": key, "path": path} for key, path in self.paths.items()]
        return {"name": VOLUME, "projected": {"defaultMode": 0o444, "sources": [{"configMap": source}]}}

    def make_tool_probe(self) -> Manifest:
        """The readiness probe of the tool's container: kubelet cannot reach a tool on loopback, and the proxy can."""
        asked = {"path": f"/readyz/upstream/{self.upstream}", "port": self.probes}
        return {"httpGet": asked, "periodSeconds": 2, "timeoutSeconds": 1, "failureThreshold": 2}


def _probe(path: str, **times: int) -> Manifest:
    return {"httpGet": {"path": path, "port": PROBES_NAME}, **times}
