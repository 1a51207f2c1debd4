"""Prints the results of the proxy benchmark as tables, and compares them with the goals of docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from benchmarks.peers.cast import CAST, HUNDRED, MANY, NGINX, NODE, OURS, PARENT, PLAIN, TOKENS

Turn = tuple[str, str, int]  # peer, body, connections


@dataclass(frozen=True)
class Figure:
    """One turn. CPU in microseconds per call, times in milliseconds; `foreign` is the share of the proxies' core that
    others had."""

    cpu: float
    rate: float
    p50: float
    p99: float
    refused: float
    failed: int
    foreign: float


@dataclass
class Found:
    """All of a run. `turns` holds one figure per round; `statuses` what each body is answered with; times to the first
    answer in seconds, memory in MB: when it serves, and after the load."""

    turns: dict[Turn, list[Figure]] = field(default_factory=dict)
    statuses: dict[str, dict[str, int]] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    validating: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)

    def median(self, turn: Turn, key: str) -> float | None:
        """The median of the rounds."""
        figures = self.turns.get(turn)
        return statistics.median(getattr(one, key) for one in figures) if figures else None

    def ratio(self, turn: Turn, to: Turn, key: str = "cpu") -> float | None:
        """The median of the rounds' ratios."""
        ours, theirs = self.turns.get(turn), self.turns.get(to)
        if not ours or not theirs:
            return None
        pairs = zip(ours, theirs, strict=False)
        found = [getattr(one, key) / getattr(other, key) for one, other in pairs if getattr(other, key)]
        return statistics.median(found) if found else None


def show(found: Found) -> None:
    """Prints everything."""
    for body, connections in dict.fromkeys((body, connections) for _, body, connections in found.turns):
        _show_turns(found, body, connections)
    _show_sizes(found)
    for name, reason in found.left_out.items():
        print(f"left out: {name}: {reason}")
    print("\ngoals")
    for goal in GOALS:
        goal(found)


_SHOWN: Final = (("rate", 0), ("p50", 3), ("p99", 2), ("foreign", 2))
_BASES: Final = {NGINX: "x nginx", NODE: "x node", PLAIN: "x aio", PARENT: "x parent"}
_HEADS: Final = ("status", "CPU us", "least", *_BASES.values(), "calls/s", "p50 ms", "p99 ms", "others")


def _show_turns(found: Found, body: str, connections: int) -> None:
    print(f"\n{body}, {connections} connection{'s' if connections > 1 else ''}")
    print(f"{'':26}" + "".join(f"{head:>9}" for head in _HEADS))
    names = {name for name, *rest in found.turns if rest == [body, connections]}
    for name in [name for name in ("direct (no proxy)", *CAST) if name in names]:
        turn = (name, body, connections)
        cells = [str(found.statuses.get(name, {}).get(body, ""))]
        cells.append(_number(found.median(turn, "cpu"), 1))
        cells.append(_number(min(figure.cpu for figure in found.turns[turn]), 1))
        cells += [_number(found.ratio(turn, (base, body, connections)), 2) for base in _BASES]
        cells += [_number(found.median(turn, key), digits) for key, digits in _SHOWN]
        failed = sum(figure.failed for figure in found.turns[turn])
        print(f"{name:26}" + "".join(f"{cell:>9}" for cell in cells) + (f"  {failed} failed" if failed else ""))


def _show_sizes(found: Found) -> None:
    print(f"\n{'':26}{'first answer s':>15}{'idle MB':>9}{'after MB':>10}{'added ms':>10}")
    direct = found.median(("direct (no proxy)", "clean", 1), "p50")
    for name in found.idle:
        starts, alone = found.starts.get(name), found.median((name, "clean", 1), "p50")
        first = f"{statistics.median(starts):.3f}" if starts else ""
        added = f"{alone - direct:.3f}" if alone is not None and direct is not None else ""
        print(f"{name:26}{first:>15}{found.idle[name]:9.1f}{found.after.get(name, 0.0):10.1f}{added:>10}")


def _number(value: float | None, digits: int) -> str:
    return "" if not value else f"{value:.{digits}f}"


# --- the goals --------------------------------------------------------------------------------------------------------
def _goal(words: str, figure: float | None, limit: float, unit: str = "x") -> None:
    if figure is None:
        print(f"  {'not measured':14}{words}")
    else:
        print(f"  {'holds' if figure <= limit else 'MISSED':14}{words}: {figure:.2f} {unit}, at most {limit:g}")


def _against(base: str, limit: float) -> Callable[[Found], None]:
    def goal(found: Found) -> None:
        for body in ("clean", "changing", "later"):
            ratio = found.ratio((OURS, body, 32), (base, body, 32))
            _goal(f"CPU per small call ({body}), to {base}", ratio, limit)

    return goal


def _tail(found: Found) -> None:
    peers = sorted(name for name in found.validating if not name.startswith("ours"))
    _worst("p99 at 32 connections, to the best peer that checks", peers, found)


def _worst(words: str, peers: Iterable[str], found: Found) -> None:
    ratios = [found.ratio((OURS, "clean", 32), (peer, "clean", 32), "p99") for peer in peers]
    known = [ratio for ratio in ratios if ratio is not None]
    _goal(words, max(known) if known else None, 1.0)


def _routes(found: Found) -> None:
    ratio = found.ratio((MANY, "clean", 32), (OURS, "clean", 32))
    _goal("CPU per call with 10,000 routes, to 10", ratio, 1.05)


def _tokens(found: Found) -> None:
    ratio = found.ratio((TOKENS, "signed", 32), (OURS, "signed", 32))
    _goal("CPU per call with a known signed token, to the same call on a route that asks nobody", ratio, 1.1)


def _to_clean(body: str, words: str, limit: float) -> Callable[[Found], None]:
    def goal(found: Found) -> None:
        clean, ours = found.median((OURS, "clean", 32), "cpu"), found.median((OURS, body, 32), "cpu")
        _goal(f"CPU per {words}, to a clean call", ours / clean if clean and ours else None, limit)

    return goal


def _start(found: Found) -> None:
    starts = found.starts.get(HUNDRED)
    _goal("first answer with 100 routes", statistics.median(starts) if starts else None, 0.5, "s")


def _size(found: Found) -> None:
    _goal("idle memory", found.idle.get(OURS), 42.0, "MB")


GOALS: Final = (
    _against(PLAIN, 0.6),
    _against(NODE, 1.5),
    _to_clean("later", "clean call after others failed", 1.05),
    _to_clean("changing", "clean call with a new trace and id", 1.05),
    _tail,
    _to_clean("repaired", "repaired call", 1.5),
    _to_clean("refused", "refusal with four errors", 2.5),
    _routes,
    _tokens,
    _start,
    _size,
)
