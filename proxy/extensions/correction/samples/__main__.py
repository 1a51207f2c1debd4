"""`python -m proxy.extensions.correction.samples [PORT]` runs only the sample tools, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from proxy.extensions.correction.samples.server import DEFAULT_PORT, SampleServer


def main() -> None:
    """Serves on 127.0.0.1 at the port given as the only argument (default 9101)."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PORT
    # The first process of a container has no default for SIGTERM: without a handler, nothing but a kill would end it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with SampleServer(port) as server, suppress(KeyboardInterrupt):
        sys.stdout.write(f"sample tools on {server.url}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
