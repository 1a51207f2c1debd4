"""The TLS context of an upstream: the system's trust store or a CA of one's own, with or without our certificate."""

from __future__ import annotations

import ssl
from pathlib import Path


def client_context(
    authorities: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    password: str | None = None,
    *,
    verify: bool = True,
) -> ssl.SSLContext:
    """A context that trusts `authorities` (a PEM file) in place of the system's store, and shows `certificate`.

    `certificate` and `key` are PEM files; the key may stand in the certificate's file. Names are checked, and TLS is
    at least 1.2. Without `verify` any certificate will do: TLS then keeps out nobody who stands in between. Raises
    OSError or ssl.SSLError where a file cannot be read.
    """
    context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])  # a server that speaks HTTP/2 too must not choose it
    if certificate is not None:
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(certificate, key, password if password is not None else lambda: "")
    return context
