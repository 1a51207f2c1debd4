"""Events of the proxy's own pod, written to the Kubernetes API: `kubectl describe pod` and `kubectl events` show them.

Needs the right to create events (docs/kubernetes.md has the Role), a token of the pod's service account, and the pod's
name and uid in the environment (POD_NAME, POD_UID).
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from proxy.core.model.value_class import value_class

# Where a pod finds its service account (Kubernetes, "Accessing the Kubernetes API from a Pod").
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WITHIN: Final = 5.0
# Kubernetes refuses a longer note.
_LONGEST: Final = 1024
_CREATED: Final = 201


class EventRefused(Exception):  # noqa: N818 - it says what happened
    """An Event that was not written; says why and what to do."""


@value_class
class PodEvents:
    """Writes Events of one pod. `host` and `port` are those of the API server; `account` is the folder with token,
    namespace and certificate of the authority."""

    host: str
    port: int
    pod: str
    uid: str
    account: Path = ACCOUNT

    @classmethod
    def of_pod(cls, environ: Mapping[str, str]) -> PodEvents:
        """The events of the pod in which this process runs. Raises ValueError where the environment says no pod."""
        names = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAME", "POD_UID")
        if missing := [name for name in names if not environ.get(name)]:
            raise ValueError(
                f"--pod-events: not set in the environment: {', '.join(missing)}  (the chart's value `events.enabled` "
                "and `inject --events` set POD_NAME and POD_UID)"
            )
        host, port, pod, uid = (environ[name] for name in names)
        return cls(host, int(port), pod, uid)

    def post(self, reason: str, text: str) -> None:
        """Writes one Event of type Warning; blocks for at most a few seconds. Raises EventRefused."""
        try:
            namespace = (self.account / "namespace").read_text(encoding="utf-8").strip()
            token = (self.account / "token").read_text(encoding="utf-8").strip()
            trusted = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=_WITHIN, context=trusted)
            try:
                body = json.dumps(self._make_event(namespace, reason, text))
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                connection.request("POST", f"/api/v1/namespaces/{namespace}/events", body, headers)
                status = connection.getresponse().status
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise EventRefused(f"the API server is not reached: {type(error).__name__}") from None
        if status != _CREATED:
            raise EventRefused(f"the API server answered {status}: may the pod's service account create events?")

    def _make_event(self, namespace: str, reason: str, text: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.pod[:200]}.", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": self.pod, "namespace": namespace,
                               "uid": self.uid},
            "type": "Warning",
            "reason": reason,
            "message": text[:_LONGEST],
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "toolcall-proxy"},
        }  # fmt: skip
