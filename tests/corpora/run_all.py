"""Every corpus run, one after the other.

    python -m tests.corpora.run_all DATA_FOLDER

Prints a line for each run and, where something is wrong, the case. Exits 1 if one of these is found: a call forwarded
with wrong arguments, a right call changed or rejected, or a call under other names decided otherwise. The others are a
text read wrongly, a difference between the validation engine and its peers, and advice on a schema that does not hold.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.corpora import (
    run_advice,
    run_endpoint,
    run_engine,
    run_improvements,
    run_lint,
    run_operations,
    run_renaming,
    run_repair,
    run_schemas,
    run_text,
)

Run = Callable[[Path], Iterator[tuple[str, Counter[str]]]]

RUNS: Final[tuple[Run, ...]] = (
    *run_repair.RUNS,
    *run_renaming.RUNS,
    *run_text.RUNS,
    *run_schemas.RUNS,
    *run_lint.RUNS,
    *run_operations.RUNS,
    *run_engine.RUNS,
    *run_endpoint.RUNS,
    *run_improvements.RUNS,
    *run_advice.RUNS,
)


def reported(runs: tuple[Run, ...], data: Path) -> int:
    """Prints a line for each run; 1 if anything was wrong."""
    failed = False
    for run in runs:
        for name, found in run(data):
            print(f"{name:60} " + ", ".join(f"{key} {count}" for key, count in sorted(found.items())), flush=True)
            failed = failed or found["wrong"] > 0
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.corpora.run_all DATA_FOLDER")
    sys.exit(reported(RUNS, Path(sys.argv[1])))
