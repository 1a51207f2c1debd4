"""Manifests of somebody who has no chart of ours: a tool by itself, which a sidecar is to be put into."""

from __future__ import annotations

import json
from typing import Any, Final

_SAFE: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# A tool that anybody on the network can reach, and that accepts only numbers for a number.
_TOOL: Final = """\
import http.server, json, signal, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200 if isinstance(json.loads(body).get("lat"), float) else 422)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
http.server.ThreadingHTTPServer(("", 9101), Handler).serve_forever()
"""


def make_config() -> dict[str, Any]:
    """A config for the sidecar of such a tool: one route."""
    schema = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}
    return {
        "version": 1,
        "listen": "0.0.0.0:8080",
        "admin": {"listen": "127.0.0.1:8081", "probes": "0.0.0.0:9091"},
        "drain": {"serve": "15s", "finish": "30s", "stay_ready": True},
        "upstreams": {"tool": {"url": "http://127.0.0.1:9101"}},
        "routes": [{"path": "/tools/weather", "upstream": "tool", "tool": "weather", "schema": schema}],
    }


def make_foreign(namespace: str, name: str, *, injected: bool) -> list[dict[str, Any]]:
    """A ConfigMap, a Service and a Deployment; with `injected` the annotation, and a Service by the port's name."""
    named = {"name": name, "namespace": namespace}
    container = {
        "name": "app",
        "image": "localhost/toolcall-proxy:0.1.0",
        "imagePullPolicy": "Never",
        "securityContext": _SAFE,
        "command": ["python", "-c", _TOOL],
        "ports": [{"name": "http", "containerPort": 9101}],
    }
    annotations = {"toolcall-proxy/inject": name} if injected else {}
    template = {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": {"containers": [container]}}
    config = {"config.yaml": json.dumps(make_config())}
    ports = [{"port": 80, "targetPort": "http" if injected else 9101}]
    selected = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": config},
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": {"selector": {"app": name}, "ports": ports}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named, "spec": selected},
    ]
