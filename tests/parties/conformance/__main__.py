"""`make conformance`: the official conformance suite of MCP against its own server and client, directly and through the
proxy. A check that passes directly has to pass through the proxy, except the checks in `suite.EXCEPTIONS`.

The server and the client are those of the Python SDK's own conformance run (MIT, see LICENSE), unchanged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.parties.conformance.suite import REVISIONS, WAYS, compare, run_clients, run_servers


def main() -> int:
    """Prints one line for each way and revision, and gives 1 if a check is worse than directly."""
    parser = argparse.ArgumentParser(prog="make conformance")
    parser.add_argument("--revisions", nargs="*", default=REVISIONS, choices=REVISIONS)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--no-clients", action="store_true", help="leave out the scenarios of clients")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        worse = compare(run_servers(Path(folder), args.revisions, args.ways)) if args.ways else []
        for revision in () if args.no_clients else args.revisions:
            worse += compare(run_clients(Path(folder), revision))
    sys.stdout.writelines(f"worse than directly: {line}\n" for line in worse)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
