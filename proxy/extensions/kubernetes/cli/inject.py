"""`toolcall-proxy inject` puts the sidecar into Kubernetes manifests, from standard input to standard output."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy import __version__
from proxy.cli.options import HelpText

if TYPE_CHECKING:
    from proxy.config.load import Loaded
    from proxy.config.model import Config
    from proxy.extensions.kubernetes.injection import Manifest, Sidecar
    from proxy.extensions.kubernetes.manifest_text import ManifestDocument

EXIT_CHANGED: Final = 1
EXIT_REFUSED: Final = 2

_EPILOG: Final = """\
examples:
  toolcall-proxy inject -f deployment.yaml --config config.yaml | kubectl apply -f -
  kubectl get deployment,service weather -o yaml | toolcall-proxy inject --config config.yaml --diff
  helm install weather ./chart --post-renderer toolcall-proxy --post-renderer-args --config=config.yaml
                                  Helm 4 with the plug-in helm/post-renderer; Helm 3 takes a script with the command

The config is the one that the proxy serves in the pod:
  listen: 0.0.0.0:8080
  admin: {listen: "127.0.0.1:9090", probes: "0.0.0.0:9091"}
  drain: {serve: 15s, finish: 30s, stay_ready: on}
with an upstream at http://127.0.0.1:PORT, where PORT is the tool's. It goes into a ConfigMap with the files it names.
Pods get the native sidecar (Kubernetes 1.29), its volume, a readiness probe and a preStop for the tool, and time to
end; Services that lead to the tool's port lead to the proxy. Injecting twice gives the same as injecting once. A
document that nothing changes keeps every byte; a changed one is written anew, without its comments.

As a Kustomize function, a ResourceList on standard input gives one on standard output.
A workload is left alone with the annotation `toolcall-proxy/inject: disabled`.

exit codes: 0 injected, 1 --diff found a difference, 2 something is in the way
"""


def register(subparsers: Any) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "inject",
        help="put the sidecar into Kubernetes manifests",
        description="Puts the proxy as a native sidecar into the pods of manifests, and in front of their Services.",
        epilog=_EPILOG,
        formatter_class=HelpText,
    )
    verb.add_argument("-f", "--filename", metavar="FILE", action="append", default=[], help="manifests (default: -)")
    verb.add_argument("-c", "--config", required=True, metavar="FILE", help="the proxy's config, as the pod serves it")
    verb.add_argument("--image", default=f"toolcall-proxy:{__version__}", help="the proxy's image")
    verb.add_argument("--name", default="toolcall-proxy", help="the ConfigMap's name")
    verb.add_argument("--upstream", metavar="NAME", help="the upstream that is the tool, where several are on loopback")
    verb.add_argument(
        "--only", metavar="KIND/NAME", action="append", default=[], help="this workload alone, may be repeated"
    )
    verb.add_argument("--diff", action="store_true", help="print what would change instead")


def run(args: argparse.Namespace) -> int:
    """Injects `args.filename` and gives the exit code."""
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError
    from proxy.extensions.kubernetes.injection import InjectionError, inject_all
    from proxy.extensions.kubernetes.manifest_text import read_documents, write_documents

    try:
        loaded = load(args.config, os.environ, config_only=True)
        sidecar = read_sidecar(loaded, args.image, args.name, args.upstream)
        text = _read(args.filename)
        documents = read_documents(text)
        injected = inject_all(
            [manifest for document in documents for manifest in document.manifests],
            sidecar,
            [name.lower() for name in args.only],
        )
        added = _put_config_map(injected.manifests, make_config_map(loaded, sidecar))
        made = write_documents(documents, injected.manifests, added)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_REFUSED
    except (InjectionError, OSError) as error:
        print(f"inject: {error}", file=sys.stderr)
        return EXIT_REFUSED
    for note in injected.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.diff:
        return _print_diff(documents, text, made)
    sys.stdout.write(made)
    return 0


def _read(names: list[str]) -> str:
    texts = [sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8") for name in names or ["-"]]
    return "\n---\n".join(text.strip("\n") for text in texts) + "\n"


def _print_diff(documents: list[ManifestDocument], before: str, after: str) -> int:
    lines = list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "before", "injected"))
    sys.stdout.writelines(lines)
    return EXIT_CHANGED if lines and documents else 0


# --- the config -------------------------------------------------------------------------------------------------------
def read_sidecar(loaded: Loaded, image: str, config_map: str, upstream: str | None) -> Sidecar:
    """The sidecar that serves this config. Raises InjectionError with every reason why a pod cannot serve it."""
    from proxy.extensions.kubernetes.injection import InjectionError, Sidecar

    config = loaded.config
    wrong = [*_find_unreachable(config), *_find_exposed(loaded)]
    tools = _find_tools(config)
    if upstream is not None and upstream not in tools:
        wrong.append(
            f"the upstream {upstream!r} is none at http://127.0.0.1:PORT  (there: {', '.join(tools) or 'none'})"
        )
    elif upstream is None and len(tools) != 1:
        hint = "say which one is the tool: --upstream NAME" if tools else "write `url: http://127.0.0.1:PORT`"
        wrong.append(f"{len(tools) or 'no'} upstreams are at http://127.0.0.1:PORT, where a pod has its tool  ({hint})")
    if wrong:
        raise InjectionError(f"{loaded.files[0]} cannot be served in a pod:\n  " + "\n  ".join(wrong))
    name = upstream or next(iter(tools))
    admin = config.admin
    if admin is None or admin.probes is None:
        raise AssertionError("found above")
    return Sidecar(
        image, config_map, name, tools[name], config.listen.port, admin.probes.port, admin.listen.port,
        ceil(config.drain), ceil(max(config.finish, *(entry.response_timeout for entry in config.upstreams.values()))),
        _list_paths(loaded),
    )  # fmt: skip


def _find_unreachable(config: Config) -> list[str]:
    """Addresses of the config that nothing outside the pod could reach although it must, or could although it must
    not."""
    wrong = []
    if config.listen.unix or config.listen.address.is_loopback:
        wrong.append("`listen` is reached from inside of the pod alone  (write `listen: 0.0.0.0:8080`)")
    if config.admin is None or config.admin.probes is None or config.admin.probes.is_loopback:
        wrong.append('kubelet reaches no probes  (write `admin: {listen: "127.0.0.1:9090", probes: "0.0.0.0:9091"}`)')
    elif not config.admin.listen.is_loopback:
        wrong.append("`admin.listen` is reached from outside of the pod  (write 127.0.0.1:9090)")
    if not config.stay_ready:
        wrong.append(
            "an ending pod gives up its last calls  (write `drain: {serve: 15s, finish: 30s, stay_ready: on}`)"
        )
    return wrong


def _find_exposed(loaded: Loaded) -> list[str]:
    """Secret files in the config's folder, which a ConfigMap would show."""
    folder = loaded.files[0].parent
    return [
        f"{path.relative_to(folder)} holds a secret, which a ConfigMap would show  (mount it from a Secret, and write "
        "its absolute path there, such as /run/secrets/toolcall-proxy/NAME)"
        for path in sorted(loaded.secret_files)
        if path.is_relative_to(folder)
    ]


def _find_tools(config: Config) -> dict[str, int]:
    """The upstreams on loopback, with their ports."""
    from urllib.parse import urlsplit

    found = {}
    for name, entry in config.upstreams.items():
        url = urlsplit(entry.url)
        if not entry.socket and url.hostname in ("127.0.0.1", "localhost", "::1"):
            found[name] = url.port or 80
    return found


def _list_paths(loaded: Loaded) -> dict[str, str]:
    """Key of the ConfigMap -> path in the config's folder. A key must not hold a slash."""
    folder = loaded.files[0].parent
    found = {"config.yaml": "config.yaml"}
    for path in loaded.files[1:]:
        if path.is_relative_to(folder):
            written = path.relative_to(folder).as_posix()
            found[written.replace("/", "__")] = written
    return found


def make_config_map(loaded: Loaded, sidecar: Sidecar) -> Manifest:
    """The ConfigMap with the config and the files in its folder that it names."""
    folder = loaded.files[0].parent
    texts = {
        key: (folder / path).read_text(encoding="utf-8") for key, path in sidecar.paths.items() if key != "config.yaml"
    }
    data = {"config.yaml": loaded.files[0].read_text(encoding="utf-8"), **texts}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": sidecar.config_map}, "data": data}


def _put_config_map(manifests: list[Manifest], config_map: Manifest) -> list[Manifest]:
    """Replaces the ConfigMap of an earlier injection in each namespace; gives the ConfigMaps to add for the others."""
    from proxy.extensions.kubernetes.injection import VOLUME

    spaces = {(each.get("metadata") or {}).get("namespace") for each in manifests if f"'name': '{VOLUME}'" in str(each)}
    added = []
    for space in sorted(spaces, key=str):
        made = {**config_map, "metadata": {**config_map["metadata"], **({"namespace": space} if space else {})}}
        places = [
            index
            for index, each in enumerate(manifests)
            if each.get("kind") == "ConfigMap"
            and each["metadata"].get("name") == config_map["metadata"]["name"]
            and each["metadata"].get("namespace") == space
        ]
        if places:
            manifests[places[0]] = {**manifests[places[0]], "data": config_map["data"]}
        else:
            added.append(made)
    return added
