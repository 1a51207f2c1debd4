"""A child process: reads one job after the other from stdin, runs each, and writes its result to stdout.

    job      a line of JSON (`function`, `seconds`, `size` of the payload; `shared`, the digest of what many jobs share,
             such as a tool's schema, and `sent`, its size where it comes with this job), what is shared, the payload
    result   a line `ENDING SIZE`, then the result: `done`, or `crash` with the name of what was raised, or `memory`

Shared data is sent once: both sides keep the last `MOST_SHARED`, and count alike (`keep_shared`).

The limits are the kernel's, so they hold in code that never returns to the interpreter. The address space may grow by
`memory` bytes beyond that of the started child. Each job may use its seconds of CPU time and one more. The parent keeps
the time of the clock, which is longer: on a busy machine a second of CPU time takes several of them.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from pathlib import Path
from typing import IO, Final

try:
    import resource
except ImportError:  # Windows has no such limits: there only the parent's deadline ends a job
    resource = None  # type: ignore[assignment]  # None is what the two functions below ask for

# How much a child steps back where processors are short: the event loop goes first.
NICENESS: Final = 5
# The CPU time for a job's clean-up and the child's reading and writing, beyond the job's seconds.
SPARE_CPU_SECONDS: Final = 1
# How many tools a child keeps: each with its compiled patterns.
MOST_SHARED: Final = 8


def keep_shared(kept: dict[str, bytes], digest: str, data: bytes) -> None:
    """Keeps what has this digest, used last from now on; the least recently used goes."""
    kept[digest] = kept.pop(digest, data)
    if len(kept) > MOST_SHARED:
        del kept[next(iter(kept))]


def serve(memory: int, jobs: IO[bytes], results: IO[bytes]) -> None:
    """Runs the jobs of one parent until it closes the pipe. A child that ran out of memory says so and ends."""
    limit_memory(memory)
    kept: dict[str, bytes] = {}
    while line := jobs.readline():
        ending, result = "memory", b""
        try:
            job = json.loads(line)
            if digest := job.get("shared"):
                keep_shared(kept, digest, jobs.read(job["sent"]))
            payload = jobs.read(job["size"])
            module, _, name = job["function"].partition(":")
            function = getattr(importlib.import_module(module), name)  # what it imports is not the job's to pay
            limit_cpu(job["seconds"])
            ending, result = "done", function(payload, kept[digest]) if digest else function(payload)
        except MemoryError:
            pass  # the ending above says so
        except Exception as error:  # noqa: BLE001  # whatever a job raises is its result; its text may quote values
            ending, result = "crash", type(error).__name__.encode()
        results.write(f"{ending} {len(result)}\n".encode() + result)
        results.flush()
        if ending == "memory":
            return


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
