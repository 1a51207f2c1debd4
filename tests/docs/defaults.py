"""Makes the last part of docs/reference/keys.md out of the constants of the code.

python -m tests.docs.defaults    writes that part (`make docs`)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.config import watch
from proxy.config.files import source, yaml12
from proxy.core.model.values import JsonValue
from proxy.extensions.console import mistake_counts
from proxy.extensions.workers import supervisor as worker_pool
from proxy.server import lifecycle as serving
from proxy.server import reload
from proxy.server.admin import page as operator_page
from proxy.server.admin import port as admin
from proxy.telemetry import ring

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "keys.md"

START: Final = "## Bounds that are not keys\n"

_HEAD: Final = f"""\
{START}
| what | value |
|---|---|
"""


def fixed() -> Iterator[tuple[str, JsonValue]]:
    """Yields what the code bounds by a constant, in words, and the constant's value."""
    yield "Time for calls under way after the drain, once the port is closed", f"{serving.GRACE:g} s"
    yield "Refused, failed and would-be-refused requests kept with `console: off`", ring.KEPT_WRONG
    yield "Kinds of mistakes counted apart, then `_other`", mistake_counts.MOST_MISTAKES
    yield "Invented keys remembered of a tool", mistake_counts.MOST_INVENTED
    yield "Reloads, changes of breakers, and faults of an upstream kept", "50, 200, 50"
    yield "Readers of `/-/calls` as a stream", operator_page.READERS
    yield "Largest body of a question on the operator's port", f"{admin.MAX_BODY >> 20} MiB"
    yield "Largest file of a config", f"{source.MAX_FILE_BYTES >> 20} MiB"
    yield "Deepest nesting of a config's file", yaml12.MAX_DEPTH
    yield "Values in a config's file", yaml12.MAX_NODES
    yield "Readings until changing files have to settle", watch.READINGS
    yield (
        "A look at the files where the config says `reload: off` (to see that it says otherwise)",
        f"{reload.IDLE:g} s",
    )
    yield "Wait before a dead worker is started again", f"{worker_pool.AGAIN_AFTER:g} s"
    yield "Time for a worker to start", f"{worker_pool.STARTS_WITHIN:g} s"


def part() -> str:
    """The part of the page, with its title."""
    return _HEAD + "\n".join(f"| {what} | {value} |" for what, value in fixed()) + "\n"


if __name__ == "__main__":
    keys = PAGE.read_text(encoding="utf-8").partition(START)[0]
    PAGE.write_text(keys + part(), encoding="utf-8")
