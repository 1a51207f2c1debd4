"""Reads network settings: listening addresses, TLS in both directions, unix sockets, and trusted proxies in front.

Certificates and keys are read here. So a file that is missing, encrypted or does not match is a mistake of the config
and does not fail while serving, and a reload notices a renewed one.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files, describe_failure
from proxy.config.keys.section_keys import LISTEN
from proxy.config.mistakes import split_url
from proxy.config.model import Address, Listen, Network, ServerTls, Trusted, UpstreamConfig, UpstreamTls
from proxy.config.sections.units import read_switch
from proxy.core.model.values import JsonValue, Pointer


def read_listen(context: Context, files: Files) -> Listen:
    """Reads where calls come in."""
    value = context.structure.entry("listen")
    if value is None:
        return Listen()
    at = read_address(context, ("listen",), value, Listen().port)
    written = value if isinstance(value, dict) else {}
    made: dict[str, Any] = LISTEN.read(written)
    if "mode" in made and not at.unix:
        context.mistake(("listen", "mode"), "`mode` has no effect without a unix socket", "drop it", key=True)
    if "tls" in written:
        paths = _find_paths(context, files, ("listen", "tls"), written["tls"], ("cert", "key", "client_ca"))
        if "cert" in paths and _fits(context, ("listen", "tls"), paths, "client_ca"):
            made["tls"] = ServerTls(**{name: str(path) for name, path in paths.items()})
    return Listen(at.host, at.port, at.unix, **made)


def read_address(context: Context, path: Pointer, value: JsonValue, port: int) -> Address:
    """Reads `host:port`, `unix:/path`, or a mapping; `port` is if the mapping names none. Reports an entry with two
    addresses, or none."""
    if isinstance(value, dict):
        host, unix = reveal(value.get("host", Address().host)), reveal(value.get("unix", ""))
        found = Address(host, value.get("port", port), unix)
        if "unix" in value and value.keys() & {"host", "port"}:
            context.mistake(path, "a unix socket has no host and no port", "keep `unix`, or `host` and `port`")
    elif (text := reveal(value)).startswith("unix:"):
        found = Address(unix=text.removeprefix("unix:"))
    else:
        host, _, number = text.rpartition(":")
        found = Address(host.strip("[]"), int(number))
    if not 0 <= found.port <= 65535:
        context.mistake(path, f"{found.port} is not a port", "ports go from 1 to 65535; 0 takes any free one")
    return found


def read_trusted(context: Context) -> Trusted:
    """Reads the proxies whose statements about the client are trusted."""
    networks: list[Network] = []
    written = [reveal(text) for text in context.mapping("forwarded").get("trusted", ())]
    for index, text in enumerate(written):
        if text == "unix":
            continue
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            hint = "write a network such as 10.0.0.0/8, an address, or unix"
            context.mistake(("forwarded", "trusted", index), f"this is not a network: {error}", hint)
    return Trusted(tuple(networks), "unix" in written)


# --- TLS --------------------------------------------------------------------------------------------------------------
def read_upstream_tls(
    context: Context, files: Files, at: Pointer, written: Mapping[str, JsonValue], url: str
) -> UpstreamTls | None:
    """Reads how an upstream's certificate is checked, and which certificate is sent."""
    if not url.startswith("https:"):
        context.mistake(at, "`tls` has no effect on this url", "write https://, or drop it", key=True)
    paths = _find_paths(context, files, at, written, ("ca", "cert", "key"))
    if "key" in written and "cert" not in written:
        context.mistake((*at, "key"), "a key without its certificate", "add `cert`", key=True)
    elif not _fits(context, at, paths, "ca"):
        return None
    verify = read_switch(written.get("verify", True))
    if not verify:
        context.notes.append(f"upstream {at[1]!r}: its certificate is not checked (tls.verify: off)")
    digest = hashlib.sha256(b"".join(hashlib.sha256(files.text(path)).digest() for path in paths.values()))
    name = reveal(written.get("server_name", ""))
    shown = {key: str(path) for key, path in paths.items()}
    return UpstreamTls(**shown, server_name=name, verify=verify, digest=digest.hexdigest() if paths else "")


def _find_paths(
    context: Context, files: Files, at: Pointer, written: Mapping[str, JsonValue], names: tuple[str, ...]
) -> dict[str, Path]:
    """The named files that can be read."""
    found: dict[str, Path] = {}
    for name in names:
        if name not in written:
            continue
        path = (context.folder / reveal(written[name])).absolute()
        if context.may_lack(path):
            continue
        try:
            if name == "key" or b"PRIVATE KEY" in files.text(path):
                files.secret(path)
        except (OSError, ValueError) as error:
            hint = "paths start at the config file's folder"
            context.mistake((*at, name), f"cannot read {written[name]}: {describe_failure(error)}", hint)
        else:
            found[name] = path
    return found


def _fits(context: Context, at: Pointer, paths: Mapping[str, Path], authorities: str) -> bool:
    """Returns whether OpenSSL accepts the files; reports a mistake otherwise."""
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found = len(context.mistakes)
    wanted = {"cert": "a PEM certificate and its own key, not encrypted", authorities: "one or more PEM certificates"}
    for name, hint in wanted.items():
        if name not in paths:
            continue
        try:
            if name == "cert":  # without a password OpenSSL would ask on the terminal
                probe.load_cert_chain(paths[name], paths.get("key"), lambda: "")
            else:
                probe.load_verify_locations(paths[name])
        except (ssl.SSLError, OSError) as error:
            subject = "the certificate and its key" if name == "cert" else "the authorities"
            reason = getattr(error, "reason", None) or "not PEM"
            context.mistake((*at, name), f"{subject} cannot be used: {reason}", hint)
    return len(context.mistakes) == found


def is_unencrypted(upstream: UpstreamConfig) -> bool:
    """Returns True if requests to an upstream leave this machine without encryption."""
    host = split_url(upstream.url).hostname or ""
    return upstream.url.startswith("http:") and not upstream.socket and not Address(host).is_loopback
