"""Makes the TLS context of an upstream: system trust store or private CA, with or without a client certificate."""

from __future__ import annotations

import ssl
from pathlib import Path


def make_client_context(
    authorities: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    password: str | None = None,
    *,
    verify: bool = True,
) -> ssl.SSLContext:
    """Makes a context that trusts `authorities` (a PEM file) instead of the system's store, and presents `certificate`.

    `certificate` and `key` are PEM files; the key may stand in the certificate's file. Host names are checked, and TLS
    is at least 1.2. Without `verify` every certificate is accepted, so nothing protects against a man in the middle.
    Raises OSError or ssl.SSLError where a file cannot be read.
    """
    context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])  # keeps a server that also speaks HTTP/2 from choosing it
    if certificate is not None:
        # Without a password OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate, key, password if password is not None else lambda: "")
    return context
