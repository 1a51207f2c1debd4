"""A child process: reads one job after the other from stdin, runs each, and writes its result to stdout.

    job      4 bytes length of the head, 8 bytes length of the payload, the head (JSON), what is shared, the payload
    result   1 byte of `JobEnding`, 8 bytes length, then the result, or the name of what the job raised

What many jobs share, such as a tool's schema, is sent once and then named by its digest; both sides keep the last
`MOST_SHARED` (`SharedBytes`).

The limits are the kernel's, so they hold in code that never returns to the interpreter: the address space may grow by
`memory` bytes beyond what the started child has, and each job may use its seconds of CPU time and one more. The parent
keeps the time of the clock, which is longer: on a busy machine a second of CPU time takes several of them.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, Final

try:
    import resource
except ImportError:  # Windows has no such limits: there the parent's deadline alone ends a job
    resource = None  # type: ignore[assignment]  # None is what the two functions below ask for

JOB: Final = struct.Struct(">IQ")
RESULT: Final = struct.Struct(">BQ")
# How much a child steps back where processors are short: the event loop goes first.
NICENESS: Final = 5
# What a job's clean-up and the child's own reading and writing may use beyond the job's seconds.
SPARE_CPU_SECONDS: Final = 1
# How many tools a child keeps: each with its compiled patterns.
MOST_SHARED: Final = 8


class JobEnding(IntEnum):
    """How a job ended, as the first byte of its result."""

    DONE = 0
    RAISED = 1
    NO_MEMORY = 2


class SharedBytes:
    """What a child was sent of what its jobs share, by digest: the parent and the child count alike."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def find(self, digest: str) -> bytes | None:
        """What has this digest, used last from now on; None where it is to be sent."""
        if digest in self._kept:
            self._kept.move_to_end(digest)
        return self._kept.get(digest)

    def keep(self, digest: str, data: bytes) -> None:
        """Keeps what was sent; the least recently used goes."""
        self._kept[digest] = data
        if len(self._kept) > MOST_SHARED:
            self._kept.popitem(last=False)


def serve(memory: int, jobs: IO[bytes], results: IO[bytes]) -> None:
    """Runs the jobs of one parent until it closes the pipe. A child that ran out of memory says so and ends."""
    limit_memory(memory)
    functions: dict[str, Callable[..., bytes]] = {}
    kept = SharedBytes()
    while len(start := jobs.read(JOB.size)) == JOB.size:
        head_length, payload_length = JOB.unpack(start)
        ending, result = JobEnding.NO_MEMORY, b""
        try:
            head = json.loads(jobs.read(head_length))
            shared = [read_shared(kept, head, jobs)] if "shared" in head else []
            payload = jobs.read(payload_length)
            name = head["function"]
            if name not in functions:  # what has to be imported for it is not the job's to pay
                functions[name] = find_function(name)
            limit_cpu(head["seconds"])
            ending, result = JobEnding.DONE, functions[name](payload, *shared)
        except MemoryError:
            pass  # the result above says so
        except Exception as error:  # noqa: BLE001  # whatever a job raises is its result; its text may quote values
            ending, result = JobEnding.RAISED, type(error).__name__.encode()
        results.write(RESULT.pack(ending, len(result)) + result)
        results.flush()
        if ending is JobEnding.NO_MEMORY:
            return


def read_shared(kept: SharedBytes, head: dict[str, Any], jobs: IO[bytes]) -> bytes:
    """What the job shares with others: sent with this job, or with one before it."""
    known = kept.find(head["shared"])
    if known is None:
        known = jobs.read(head["sent"])
        kept.keep(head["shared"], known)
    return known


def find_function(name: str) -> Callable[..., bytes]:
    """The function that `package.module:function` names."""
    module, _, function = name.partition(":")
    found: Callable[..., bytes] = getattr(importlib.import_module(module), function)
    return found


def limit_memory(memory: int) -> None:
    """Lets the address space grow by `memory` bytes and no further: then allocations fail, in C and Rust as well."""
    if resource is not None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if os.path.exists("/proc") else 0  # noqa: PTH110
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_cpu(seconds: float) -> None:
    """Ends this process (SIGXCPU) once it has used `seconds` of CPU time, and a little, from now on."""
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = math.ceil(used.ru_utime + used.ru_stime + seconds) + SPARE_CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    if hasattr(os, "nice"):  # Windows has none
        os.nice(NICENESS)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # a job that prints writes to the log, not into the results
    serve(int(sys.argv[1]), sys.stdin.buffer, out)
