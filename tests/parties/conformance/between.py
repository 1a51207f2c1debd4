"""Starts a proxy in front of the server at the last argument, and the other arguments with the proxy's URL instead: the
suite's client with a proxy in between."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from tests.parties.environment import ADMIN, proxy


def main() -> int:
    """Returns the exit code of the client."""
    *client, url = sys.argv[1:]
    parts = urlsplit(url)
    path = parts.path or "/"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        route = f"{{path: {path}, upstream: s, protocol: mcp, mcp: {{resource: rewrite}}}}"
        config.write_text(
            f"version: 1\n{ADMIN}upstreams:\n  s: {{url: 'http://{parts.netloc}'}}\nroutes:\n  - {route}\n"
        )
        with proxy(config) as port:
            return subprocess.call([*client, f"http://localhost:{port}{parts.path}"])


if __name__ == "__main__":
    sys.exit(main())
