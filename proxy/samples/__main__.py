"""`python -m proxy.samples [PORT]` runs the sample tools alone, until Ctrl-C."""

from __future__ import annotations

import sys

from proxy.samples.server import DEFAULT_PORT, SampleServer


def main() -> None:
    """Serves on 127.0.0.1 at the port given as the only argument (default 9101)."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PORT
    with SampleServer(port) as server:
        sys.stdout.write(f"sample tools on {server.url}\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")


if __name__ == "__main__":
    main()
