"""python -m tests.cluster    tries the chart on a real node, writes docs/evidence/kubernetes-tried.md (make cluster)

python -m tests.cluster --stop    ends what a broken run has left
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.cluster import settings as at
from tests.cluster.mistakes import Row
from tests.cluster.node import NoCluster, Node, clean
from tests.cluster.trials import Trials

PAGE: Final = at.ROOT / "docs" / "evidence" / "kubernetes-tried.md"


def write_page(rows: Sequence[Row], about: str) -> str:
    """docs/evidence/kubernetes-tried.md with these rows; `about` says on which versions they were seen."""
    return "\n".join(_write_lines(rows, about)) + "\n"


def _write_lines(rows: Sequence[Row], about: str) -> Iterator[str]:
    yield "# What was tried on a real cluster\n"
    yield "The rows are those that a run of `make cluster` ([kubernetes.md](kubernetes.md#a-real-cluster)) printed,"
    yield f"on a single node out of the real programs, in a network of its own: {about}\n"
    yield "Each run writes this page anew, row by row. A trial without a row was not reached.\n"
    yield "| tried | seen | as it should be |\n|---|---|---|"
    for name, seen, right in rows:
        yield f"| {name} | {seen} | {'yes' if right else '**no**'} |"
    yield "\nNot tried there: a NetworkPolicy (no plug-in here enforces one), several nodes, a cloud's load balancer.\n"
    yield "## " + PAGE.read_text(encoding="utf-8").partition("\n## ")[2].rstrip("\n")  # what people found is kept


def _try_all() -> bool:
    """Starts a node, tries everything on it, and ends it; gives whether all was as it should be."""
    with Node() as node, tempfile.TemporaryDirectory() as folder:
        version = json.loads(node.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        runtime = node.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion}")
        about = f"Kubernetes {version}, {runtime}; Pod Security `restricted`."
        rows: list[Row] = []
        for row in Trials(node, Path(folder)).run():
            rows.append(row)
            PAGE.write_text(write_page(rows, about), encoding="utf-8")  # what a broken run saw is kept
            print("ok   " if row[2] else "WRONG", *row[:2], flush=True)
    return all(right for *_, right in rows)


def _end(number: int, _: object) -> None:
    """Ends the run by a signal: the node ends on the way out, undisturbed by a second one."""
    for each in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    took = f"not done within {at.LONGEST} s" if number == signal.SIGALRM else f"ended by {signal.Signals(number).name}"
    raise SystemExit(f"make cluster: {took}")


def main(words: Sequence[str]) -> int:
    """Runs the trials; gives 0 where all went as it should, or nothing can run here."""
    if list(words) == ["--stop"]:
        clean()
        return 0
    for each in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _end)
    signal.alarm(at.LONGEST)
    try:
        return 0 if _try_all() else 1
    except NoCluster as missing:
        print(f"skipped: the trials on a real cluster, which cannot run here: {missing}", file=sys.stderr)
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
