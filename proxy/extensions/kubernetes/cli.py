"""`toolcall-proxy inject` puts the sidecar into Kubernetes manifests, from standard input to standard output."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy import __version__

if TYPE_CHECKING:
    from proxy.extensions.kubernetes.manifest_text import ManifestDocument
    from proxy.extensions.kubernetes.pod_config import Given
    from proxy.extensions.kubernetes.workloads import InjectionError

EXIT_CHANGED: Final = 1
EXIT_REFUSED: Final = 2

_EPILOG: Final = """\
examples:
  toolcall-proxy inject -f deployment.yaml -f service.yaml --config config.yaml | kubectl apply -f -
  kubectl get deployment,service weather -o yaml | toolcall-proxy inject --config config.yaml --diff
  kubectl get deployment,service weather -o yaml | toolcall-proxy inject --undo | kubectl apply -f -
  helm install weather ./chart --post-renderer toolcall-proxy --post-renderer-args --config=config.yaml
                                  Helm 4 with the plug-in helm/post-renderer; for Helm 3, put the command into a script

The config needs these keys, with any ports:
  listen: 0.0.0.0:8080
  admin: {listen: "127.0.0.1:8081", probes: "0.0.0.0:9091"}
  drain: {serve: 15s, finish: 30s, stay_ready: on}
It also needs an upstream at http://127.0.0.1:PORT, with the tool's port. `inject` writes the config and its files into
a ConfigMap for each workload. Pods get the native sidecar (Kubernetes 1.29) and its volumes. The tool gets a readiness
probe, a preStop hook and a longer termination grace period. Services of the tool's port then lead to the proxy.
A second run changes nothing. An unchanged document keeps every byte; a changed one loses its comments.

`inject` rejects manifests that would leave a way around the proxy, with file, line and fix (docs/kubernetes.md).
As a Kustomize function, it reads a ResourceList from standard input and prints one.
The annotation `toolcall-proxy/inject: disabled` excludes a workload. These annotations of a pod's template override
the options: toolcall-proxy/container, /port, /secret, /cpu, /memory, /log-level.

exit codes: 0 success, 1 differences found (--diff), 2 the manifests or the config are rejected
"""


def register(subparsers: Any) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "inject",
        help="add the sidecar to Kubernetes manifests",
        description="Add the proxy as a sidecar to the pods in manifests, and point their Services at it.",
        epilog=_EPILOG,
    )
    verb.add_argument("-f", "--filename", metavar="FILE", action="append", default=[], help="manifests (default: -)")
    verb.add_argument("-c", "--config", metavar="FILE", help="the proxy's config for the pod")
    verb.add_argument("--image", default=f"toolcall-proxy:{__version__}", help="proxy image (default: %(default)s)")
    verb.add_argument("--name", default="", help="name of one ConfigMap for all (default: WORKLOAD-toolcall-proxy)")
    verb.add_argument("--namespace", default="", help="the namespace of manifests without one")
    verb.add_argument("--upstream", metavar="NAME", help="the tool's upstream, if several are at 127.0.0.1")
    verb.add_argument("--port", default="", help="the port for calls, if the tool's container names several")
    verb.add_argument("--secret", default="", metavar="NAME", help="mount this Secret at /run/secrets/toolcall-proxy")
    verb.add_argument(
        "--env", metavar="NAME[=VALUE]", action="append", default=[], type=_read_variable,
        help="set a variable; without =VALUE, take the key NAME of the Secret",
    )  # fmt: skip
    verb.add_argument("--cpu", default="", help="CPU request of the proxy (default: 50m)")
    verb.add_argument("--memory", default="", help="memory request and limit (default: 96Mi and 256Mi)")
    verb.add_argument("--log-level", default="", choices=("debug", "info", "warning", "error"), help="the log level")
    verb.add_argument("--events", action="store_true", help="report errors as Events of the pod (needs a Role)")
    verb.add_argument(
        "--only", metavar="KIND/NAME", action="append", default=[], help="only this workload; may be repeated"
    )
    verb.add_argument("--undo", action="store_true", help="remove what `inject` has added, from Services first")
    verb.add_argument("--diff", action="store_true", help="print the differences instead of the manifests")


def _read_variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=VALUE")
    return name, value if equals else None


def run(args: argparse.Namespace) -> int:
    """Injects `args.filename`, or takes it back, and gives the exit code."""
    from proxy.extensions.kubernetes.manifest_text import write_documents
    from proxy.extensions.kubernetes.workloads import InjectionError
    from proxy.plugin import ConfigError

    if args.undo == bool(args.config) or (args.undo and args.only):
        print("inject: use --config FILE, or only --undo", file=sys.stderr)
        return EXIT_REFUSED
    documents: list[ManifestDocument] = []
    try:
        documents += _read(args.filename)
        made, notes = _undo(documents) if args.undo else _inject(documents, args)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_REFUSED
    except (InjectionError, OSError) as error:
        print("\n".join(_write_refusal(error, documents)), file=sys.stderr)
        return EXIT_REFUSED
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.diff:
        before = write_documents(documents, [each for document in documents for each in document.manifests], [])
        lines = list(difflib.unified_diff(before.splitlines(True), made.splitlines(True), "before", "injected"))
        sys.stdout.writelines(lines)
        return EXIT_CHANGED if lines else 0
    sys.stdout.write(made)
    return 0


def _read(names: list[str]) -> list[ManifestDocument]:
    from proxy.extensions.kubernetes.manifest_text import read_documents

    found: list[ManifestDocument] = []
    for name in names or ["-"]:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        found += read_documents(text, "<stdin>" if name == "-" else name)
    return found


def _inject(documents: list[ManifestDocument], args: argparse.Namespace) -> tuple[str, list[str]]:
    from proxy.extensions.kubernetes.injection import InjectionChoice, inject_all
    from proxy.extensions.kubernetes.manifest_text import write_documents
    from proxy.extensions.kubernetes.pod_config import put_config_maps, read_sidecar
    from proxy.plugin import load

    loaded = load(args.config, os.environ, config_only=True)
    sidecar = read_sidecar(loaded, _read_given(args))
    choice = InjectionChoice(tuple(name.lower() for name in args.only), args.namespace, args.name)
    injected = inject_all([each for document in documents for each in document.manifests], sidecar, choice)
    added = put_config_maps(injected.manifests, loaded, sidecar, injected.config_maps)
    return write_documents(documents, injected.manifests, added), injected.notes


def _read_given(args: argparse.Namespace) -> Given:
    from proxy.extensions.kubernetes.pod_config import Given

    return Given(
        args.image, args.upstream, args.secret, dict(args.env), args.port, args.cpu, args.memory, args.log_level,
        events=args.events,
    )  # fmt: skip


def _undo(documents: list[ManifestDocument]) -> tuple[str, list[str]]:
    from proxy.extensions.kubernetes.manifest_text import write_in_order
    from proxy.extensions.kubernetes.undo import take_back_all

    taken = take_back_all([each for document in documents for each in document.manifests])
    notes = [
        f"once the pods are new: kubectl delete configmap {name}" + (f" --namespace {space}" if space else "")
        for space, _, name in (each.partition("/") for each in taken.config_maps)
    ]
    return write_in_order(documents, taken.manifests), [*taken.notes, *notes]


def _write_refusal(error: InjectionError | OSError, documents: list[ManifestDocument]) -> list[str]:
    """The lines of a refusal: each obstacle with its file and line."""
    from proxy.extensions.kubernetes.manifest_text import find_line

    if isinstance(error, OSError) or not error.obstacles:
        return [f"inject: {error}"]
    return [f"{find_line(documents, each.index, each.path)}: {each.message}" for each in error.obstacles]
