"""What a pod's manifest tells `serve` of the pod: the arguments that the chart and `inject` write into it."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.config.model import Config
    from proxy.config.sections.pod import Pod
    from proxy.server.pod.notices import InPod


def add_pod_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the arguments."""
    pod = parser.add_argument_group(
        "in a Kubernetes pod", "What the pod's manifest says; the chart and `inject` set it."
    )
    pod.add_argument(
        "--pod-ports", metavar="CALLS,PROBES,ADMIN", type=_read_pod_ports,
        help="refuse a config that does not listen there, where the pod's Service, kubelet and hook ask",
    )  # fmt: skip
    pod.add_argument("--pod-upstream", metavar="NAME", default="", help="refuse a config without this upstream")
    pod.add_argument("--pod-events", action="store_true", help="write what is wrong as Events of the pod, too")


def write_pod_arguments(args: argparse.Namespace) -> list[str]:
    """The words of the same arguments, for a worker's command line."""
    pod: Pod | None = args.pod_ports
    words = [] if pod is None else ["--pod-ports", f"{pod.calls},{pod.probes},{pod.admin}"]
    return [*words, *(["--pod-events"] if args.pod_events else [])]


def list_pod_mistakes(config: Config, args: argparse.Namespace) -> list[str]:
    """Why the pod's manifest and the config do not fit together; with --pod-events also why there can be none."""
    from proxy.config.sections.pod import find_pod_mistakes

    found = list(find_pod_mistakes(config, replace(args.pod_ports, upstream=args.pod_upstream)))
    try:
        find_pod(args)
    except ValueError as error:
        found.append(str(error))
    return found


def find_pod(args: argparse.Namespace) -> InPod | None:
    """What the process has of its pod; None outside of one. Raises ValueError where there can be no Events."""
    from proxy.server.pod.events import PodEvents
    from proxy.server.pod.notices import InPod

    if args.pod_ports is None:
        return None
    return InPod(PodEvents.of_pod(os.environ) if args.pod_events else None, args.held)


def _read_pod_ports(text: str) -> Pod:
    from proxy.config.sections.pod import Pod

    found = re.fullmatch(r"(\d{1,5}),(\d{1,5}),(\d{1,5})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not three ports, such as 8080,9091,9090")
    calls, probes, admin = map(int, found.groups())
    return Pod(calls, probes, admin)
