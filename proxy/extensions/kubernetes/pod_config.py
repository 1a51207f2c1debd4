"""The proxy's config in a pod: the sidecar that it needs, or the reasons why a pod cannot serve it.

A ConfigMap shows everything in it, so plain secrets are refused, by the rule of the chart. The pod has to get the
variables and files that the config refers to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from math import ceil
from pathlib import Path
from typing import Final

from proxy.config.files.masking import is_schema_place, may_hold_secret
from proxy.config.files.structure import describe_section
from proxy.config.model import Config
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.kubernetes.pod_serving import find_pod_mistakes
from proxy.extensions.kubernetes.sidecar import SECRET_FOLDER, Manifest, Sidecar
from proxy.extensions.kubernetes.workloads import InjectionError
from proxy.plugin import ConfigSource, Files, Loaded, Substitution, Unresolved, split_url

# The sections that a running proxy takes over; the chart's template `toolcall-proxy.live` has the same.
LIVE: Final = (
    "routes", "tools", "schemas", "defaults", "documents", "guidance", "correction", "on_escalation", "upstreams",
    "drain", "reload", "second_judge", "record", "access", "pins", "callout", "prepare",
)  # fmt: skip
# Names of keys that hold a secret, as the chart's template `toolcall-proxy.noSecretsIn` has them.
_SECRET: Final = re.compile(r"(^|[-_])(authorization|cookie|token|secret|password|api[-_]?key)$", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"://[^/?#]*:[^:/@]+@")
# The variable from which the preStop hook takes the operator's token.
_TOKEN_VARIABLE: Final = "TOOLCALL_PROXY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_FILE: Final = re.compile(r"\$\{file:([^}]+)\}")


@value_class
class Given:
    """The command line's values for a pod: the image, the upstream that is the tool (None: the only one), the Secret.
    `env` holds variables (None: the key of that name in the Secret)."""

    image: str
    upstream: str | None = None
    secret: str = ""
    env: Mapping[str, str | None] = field(default_factory=dict)
    calls_port: str = ""
    cpu: str = ""
    memory: str = ""
    log_level: str = ""
    events: bool = False


def read_sidecar(loaded: Loaded, given: Given) -> Sidecar:
    """The sidecar that serves a config. Raises InjectionError with every reason why a pod cannot serve it."""
    config, source = loaded.config, Files().source(loaded.files[0], str(loaded.files[0]))
    tools, places = _find_tools(config), list[str]()
    wrong = [*find_pod_mistakes(config)]
    if not config.stay_ready:
        wrong.append(
            "an ending pod gives up its last calls  (write `drain: {serve: 15s, finish: 30s, stay_ready: on}`)"
        )
    wrong += [*_find_exposed(loaded), *_find_plain(source)]
    wrong += [*_find_missing(source, given, places), *_find_hidden_token(source)]
    if given.upstream is not None and given.upstream not in tools:
        there = ", ".join(tools) or "none"
        wrong.append(f"the upstream {given.upstream!r} is none at http://127.0.0.1:PORT  (there: {there})")
    elif given.upstream is None and len(tools) != 1:
        hint = "say which one is the tool: --upstream NAME" if tools else "write `url: http://127.0.0.1:PORT`"
        wrong.append(
            f"{len(tools) or 'no'} upstreams are at http://127.0.0.1:PORT, the address of the tool in a pod  ({hint})"
        )
    if wrong:
        raise InjectionError(f"{loaded.files[0]} cannot be served in a pod:\n  " + "\n  ".join(wrong))
    name = given.upstream or next(iter(tools))
    admin = config.admin
    if admin is None or admin.probes is None:
        raise AssertionError("found above")
    token = _TOKEN_FILE.fullmatch(_find_token(source.value))
    return Sidecar(
        given.image, name, tools[name], config.listen.port, admin.probes.port, admin.listen.port, ceil(config.drain),
        ceil(max(config.finish, *(entry.response_timeout for entry in config.upstreams.values()))),
        paths=_list_paths(loaded), checksum=_hash_static(source.value), secret=given.secret,
        env=tuple(given.env.items()), token_file=token[1] if token else "", cpu=given.cpu, memory=given.memory,
        log_level=given.log_level, events=given.events, calls_port=given.calls_port, secret_places=tuple(places),
    )  # fmt: skip


# --- secrets ----------------------------------------------------------------------------------------------------------
def _find_exposed(loaded: Loaded) -> Iterator[str]:
    """Secret files in the config's folder, which a ConfigMap would show."""
    folder = loaded.files[0].parent
    for path in sorted(loaded.secret_files):
        if path.is_relative_to(folder):
            yield (
                f"{path.relative_to(folder)} holds a secret, which a ConfigMap would show  (mount it from a Secret, "
                f"and write its absolute path there, such as {SECRET_FOLDER}/NAME)"
            )


def _walk(value: JsonValue, path: Pointer = ()) -> Iterator[tuple[Pointer, str]]:
    """Every text of the config outside of schemas, with its place."""
    if is_schema_place(path):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, (*path, index))
    elif isinstance(value, str):
        yield path, value


def _write(source: ConfigSource, path: Pointer, message: str, hint: str) -> str:
    """A mistake with its place: `file:line:col section message (hint)`."""
    return str(source.mistake(path, describe_section(source.value, path), message, hint))


def _find_plain(source: ConfigSource) -> Iterator[str]:
    """Secrets in plain text, by the names of their keys, and a password in the store's URL."""
    for path, text in _walk(source.value):
        named = isinstance(path[-1], str) and _SECRET.search(path[-1]) is not None
        in_url = path == ("state", "url") and _USER_INFO.search(text) is not None
        if text and "${" not in text and (named or in_url):
            yield _write(
                source, path, f"`{path[-1]}` is a secret, and a ConfigMap would show it",
                f"write ${{file:{SECRET_FOLDER}/KEY}} and name the Secret with --secret, or ${{NAME}} with --env NAME",
            )  # fmt: skip


def _find_missing(source: ConfigSource, given: Given, places: list[str]) -> Iterator[str]:
    """References that nothing in the pod provides. Those that only need a Secret go to `places`, because a pod's
    annotation may name one."""
    hint = "give it with --env NAME=VALUE, or --env NAME for the key of that name in the Secret of --secret"
    environ = dict.fromkeys(given.env, "given")

    def read(path: Path) -> bytes:
        if str(path).startswith(f"{SECRET_FOLDER}/"):
            return b"given"
        raise FileNotFoundError(2, "nothing in the pod brings it there")

    problems: list[Unresolved] = []
    Substitution(environ, read, Path(source.file).parent, is_schema_place, may_hold_secret).apply(
        source.value, problems
    )
    for problem in problems:
        if problem.missing and "variable" in problem.message:
            yield _write(
                source, problem.path, problem.message.replace("is not set", "is set by nothing in the pod"), hint
            )
        elif problem.missing and not _is_beside(source, problem.path):
            yield _write(
                source, problem.path, problem.message,
                f"write ${{file:{SECRET_FOLDER}/KEY}}, and name the Secret with --secret",
            )  # fmt: skip
    for path, text in _walk(source.value):
        if f"{SECRET_FOLDER}/" in text:
            line, _ = source.places.at(path)
            places.append(f"{source.file}:{line} reads {text}")
    if not given.secret:
        places += [f"--env {name} takes its key {name}" for name, value in given.env.items() if value is None]


def _is_beside(source: ConfigSource, path: Pointer) -> bool:
    """Returns whether a reference names a file in the config's folder, which `_find_exposed` refuses."""
    found = dict(_walk(source.value)).get(path, "")
    return any(not name.startswith("/") for name in _TOKEN_FILE.findall(found))


def _find_token(value: JsonValue) -> str:
    admin = value.get("admin") if isinstance(value, dict) else None
    token = admin.get("token") if isinstance(admin, dict) else None
    return token if isinstance(token, str) else ""


def _find_hidden_token(source: ConfigSource) -> Iterator[str]:
    """An operator's token that the preStop hook cannot read."""
    token = _find_token(source.value)
    if "${" in token and not _TOKEN_FILE.fullmatch(token) and token != f"${{{_TOKEN_VARIABLE}}}":
        yield _write(
            source, ("admin", "token"), "the preStop hook needs the token too",
            f"write ${{file:{SECRET_FOLDER}/KEY}} or ${{{_TOKEN_VARIABLE}}}",
        )  # fmt: skip


# --- the ConfigMap ----------------------------------------------------------------------------------------------------
def _find_tools(config: Config) -> dict[str, int]:
    """The upstreams on loopback, with their ports."""
    found = {}
    for name, entry in config.upstreams.items():
        url = split_url(entry.url)
        if not entry.socket and url.hostname in ("127.0.0.1", "localhost", "::1"):
            found[name] = url.port or 80
    return found


def _hash_static(value: JsonValue) -> str:
    """A hash over the sections that only a restart takes over."""
    static = {key: inner for key, inner in value.items() if key not in LIVE} if isinstance(value, dict) else {}
    telemetry = static.pop("telemetry", None)
    if isinstance(telemetry, dict):
        log = telemetry.get("log")
        kept = {key: inner for key, inner in log.items() if key != "level"} if isinstance(log, dict) else log
        static["telemetry"] = {**telemetry, "log": kept} if kept else {k: v for k, v in telemetry.items() if k != "log"}
    static = {key: inner for key, inner in static.items() if inner != {}}
    text = json.dumps(static, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _list_paths(loaded: Loaded) -> dict[str, str]:
    """Key of the ConfigMap -> path in the config's folder. A key must not hold a slash."""
    folder = loaded.files[0].parent
    found = {"config.yaml": "config.yaml"}
    for path in loaded.files[1:]:
        if path.is_relative_to(folder):
            written = path.relative_to(folder).as_posix()
            found[written.replace("/", "__")] = written
    return found


def put_config_maps(
    manifests: list[Manifest], loaded: Loaded, sidecar: Sidecar, places: list[tuple[str, str]]
) -> list[Manifest]:
    """Replaces the ConfigMaps of an earlier injection, each by (namespace, name); gives those to add."""
    folder = loaded.files[0].parent
    texts = {
        key: (folder / path).read_text(encoding="utf-8") for key, path in sidecar.paths.items() if key != "config.yaml"
    }
    data = {"config.yaml": loaded.files[0].read_text(encoding="utf-8"), **texts}
    added = []
    for namespace, name in places:
        found = [
            index
            for index, each in enumerate(manifests)
            if each.get("kind") == "ConfigMap"
            and each["metadata"].get("name") == name
            and each["metadata"].get("namespace", "") == namespace
        ]
        if found:
            manifests[found[0]] = {**manifests[found[0]], "data": data}
        else:
            metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
            added.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return added
