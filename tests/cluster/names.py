"""The cluster's DNS: A records of Services, and of headless ones the addresses of their ready pods."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.request
from collections import defaultdict


def read_names(api: str, token: str) -> dict[str, list[str]]:
    """Name -> addresses, as the API server knows them now."""

    def items(path: str) -> list[dict]:  # type: ignore[type-arg]
        request = urllib.request.Request(f"{api}{path}", headers={"Authorization": f"Bearer {token}"})
        context = ssl._create_unverified_context()  # noqa: S323 - its own authority, in this namespace alone
        with urllib.request.urlopen(request, context=context, timeout=5) as answer:
            return list(json.load(answer)["items"])

    ready: dict[str, list[str]] = defaultdict(list)
    for each in items("/apis/discovery.k8s.io/v1/endpointslices"):
        owner = each["metadata"].get("labels", {}).get("kubernetes.io/service-name")
        for endpoint in each.get("endpoints") or []:
            if endpoint.get("conditions", {}).get("ready"):
                ready[f"{owner}.{each['metadata']['namespace']}"] += endpoint["addresses"]
    names = {}
    for each in items("/api/v1/services"):
        name = f"{each['metadata']['name']}.{each['metadata']['namespace']}"
        address = each["spec"].get("clusterIP")
        names[name] = ready[name] if address == "None" else [address]
    return names


def answer(question: bytes, names: dict[str, list[str]]) -> bytes:
    """The answer to one question; NXDOMAIN for a name that is not a Service's."""
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
        at += question[at] + 1
    (kind,) = struct.unpack(">H", question[at + 1 : at + 3])
    end, name = at + 5, ".".join(labels)
    found = None
    for suffix in (".svc.cluster.local", ".svc", ""):
        if name.endswith(suffix) and found is None:
            found = names.get(name.removesuffix(suffix))
    if found is None:
        return question[:2] + b"\x85\x83\0\1\0\0\0\0\0\0" + question[12:end]
    records = [b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(each) for each in found if kind == 1]
    return (
        question[:2]
        + b"\x85\x80\0\1"
        + struct.pack(">H", len(records))
        + b"\0\0\0\0"
        + question[12:end]
        + b"".join(records)
    )


def main(address: str, api: str, token: str) -> None:
    """Answers for ever."""
    names: dict[str, list[str]] = {}

    def refresh() -> None:
        while True:
            try:
                fresh = read_names(api, token)
                names.clear()
                names.update(fresh)
            except OSError as error:
                print(error, flush=True)
            time.sleep(1)

    threading.Thread(target=refresh, daemon=True).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind((address, 53))
        while True:
            question, client = port.recvfrom(4096)
            port.sendto(answer(question, names), client)


if __name__ == "__main__":
    main(*sys.argv[1:])
