"""The tool behind the proxies where nginx is not installed: answers every call with the same bytes.

python -m benchmarks.peers.tool PORT
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.calls import ANSWER
from benchmarks.upstream import ANSWER_HEADERS, Bare, has, run_on


async def serve(port: int) -> None:
    """Runs until it is ended."""
    answer = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (ANSWER_HEADERS, len(ANSWER), ANSWER)
    server = await asyncio.get_running_loop().create_server(lambda: Bare(answer), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    run_on("uvloop" if has("uvloop") else "asyncio", serve(int(sys.argv[1])))
