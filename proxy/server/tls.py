"""TLS for calls that come in: TLS 1.2 or newer, HTTP/1.1, and a certificate of the client where the config asks."""

from __future__ import annotations

import ssl

from proxy.config.model import ServerTls


def make_server_context(tls: ServerTls) -> ssl.SSLContext:
    """A context for a listening port. Raises OSError or ssl.SSLError where a file cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2: a client could have keys made anew without end
    context.set_alpn_protocols(["http/1.1"])  # a client that speaks HTTP/2 too must not choose it
    renew(context, tls)
    if tls.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tls.client_ca)
    return context


def renew(context: ssl.SSLContext, tls: ServerTls) -> None:
    """Shows the certificate that the files hold now to every connection from here on. Raises as
    `make_server_context`."""
    # Without a password OpenSSL would ask the terminal for one.
    context.load_cert_chain(tls.cert, tls.key or None, lambda: "")
