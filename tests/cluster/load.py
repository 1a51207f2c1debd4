"""load.py HOST PORT SECONDS [reopen]: good calls through a Service over kept connections; prints a count of answers.

With `reopen` a client notices that the server has closed its idle connection, as most libraries do. The proxy is tried
without, because it announces each end by `Connection: close`; a tool by itself may not.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import threading
import time
from collections import Counter

WORKERS, RATE = 8, 80.0


def is_closed(connection: http.client.HTTPConnection) -> bool:
    """Returns whether the server has closed an idle connection: only its end can be read there."""
    return connection.sock is not None and bool(select.select([connection.sock], [], [], 0)[0])


def call(host: str, port: int, until: float, reopens: bool, answers: Counter[str], lock: threading.Lock) -> None:
    """One client."""
    connection: http.client.HTTPConnection | None = None
    body = json.dumps({"lat": 48.85, "lon": 2.35})
    while time.monotonic() < until:
        begun = time.monotonic()
        if reopens and connection is not None and is_closed(connection):
            connection.close()
            connection = None
        try:
            connection = connection or http.client.HTTPConnection(host, port, timeout=40)
            connection.request("POST", "/tools/weather", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            seen = str(answer.status)
            if answer.will_close:
                connection.close()
                connection = None
        except (OSError, http.client.HTTPException) as error:
            seen, connection = type(error).__name__, None
        with lock:
            answers[seen] += 1
        time.sleep(max(0.0, WORKERS / RATE - (time.monotonic() - begun)))


def main(host: str, port: str, seconds: str, reopen: str = "") -> None:
    """Runs the clients and prints what they were answered."""
    answers, lock, until = Counter[str](), threading.Lock(), time.monotonic() + float(seconds)
    given = host, int(port), until, bool(reopen), answers, lock
    clients = [threading.Thread(target=call, args=given) for _ in range(WORKERS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
