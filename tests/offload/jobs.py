"""Jobs for the tests of the pool: each is a function from bytes to bytes, run in a child process."""

from __future__ import annotations

import os
import time

# The payloads that were shared with jobs of this child.
SHARED: list[bytes] = []


def echo(payload: bytes) -> bytes:
    return payload


def process_id(_payload: bytes) -> bytes:
    return str(os.getpid()).encode()


def run_for_ever(_payload: bytes) -> bytes:
    while True:
        pass


def sleep(payload: bytes) -> bytes:
    time.sleep(float(payload))
    return b"slept"


def fill_memory(_payload: bytes) -> bytes:
    return b"x" * (4 << 30)


def die(_payload: bytes) -> bytes:
    os._exit(7)


def quote_a_value(payload: bytes) -> bytes:
    raise ValueError(f"a secret: {payload!r}")


def print_and_answer(_payload: bytes) -> bytes:
    print("this is not a result")  # noqa: T201  # the point of the job
    return b"result"


def count_shared(payload: bytes, shared: bytes) -> bytes:
    """Joins both, and says how often something shared came to this child."""
    if not any(shared is known for known in SHARED):
        SHARED.append(shared)
    return payload + shared + str(len(SHARED)).encode()
