"""The names in the certificate that a client has shown (`listen.tls.client_ca`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.server.http.request_head import RequestHead


def read_names(request: RequestHead) -> frozenset[str]:
    """The names with their kinds: `CN:` of the subject, `DNS:`, `URI:` and `email:` of its alternative names; none
    without a certificate, which TLS has verified already."""
    transport = request.protocol.transport
    shown = None if transport is None else transport.get_extra_info("peercert")
    return frozenset(_list_names(shown)) if shown else frozenset()


def _list_names(shown: dict[str, Any]) -> Iterator[str]:
    for part in shown.get("subject", ()):
        yield from (f"CN:{value}" for key, value in part if key == "commonName")
    yield from (f"{kind}:{value}" for kind, value in shown.get("subjectAltName", ()) if isinstance(value, str))
