"""docs/evidence/reliability.md out of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.reliability.soak import CALLERS, DISTURBERS, Measured

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "reliability.md"

_TEXT: Final = """\
# Reliability, measured

Written by `make reliability` (`make reliability SOAK=60` for a short one). Not by hand: run it again and compare.

## Soak with faults

{minutes:g} minutes, one proxy process, {callers} callers that call without end and {disturbers} clients that disturb.
All the time the config is exchanged **every second** the way kubelet exchanges a ConfigMap, every tenth time by one
with mistakes. The upstream is **killed (SIGKILL) and started again** every 5 to 9 seconds. Each caller knows the right
result of each call: a valid call arrives byte for byte, a repairable one as repaired, an invalid one is refused. While
the upstream is down, an answer says so. Everything else, no answer included, counts as lost. The upstream judges every
call again, by separate code, and records the calls that reach it.

| | |
|---|---|
| Calls held | {held} |
| **Calls lost** | **{lost}** |
| Calls that reached the upstream | {arrived} |
| **Invalid calls that reached the upstream** | **{invalid}** |
| **Calls that reached it twice** | **{twice}** |
| Upstream killed | {kills} times |
| Configs taken over / refused because of a mistake | {taken} / {refused} |
| Memory of the proxy: start / most / end | {memory} |
| File descriptors: start / most / end | {files} |
| Defects (`Internal error` in the log) | {defects} |
| Exit code after SIGTERM | {exit_code} |

The held calls:

| call | count |
|---|---|
{kinds}

The disturbances:

| disturbance | count |
|---|---|
{disturbances}

Memory at the start is taken {warm:g} s in; at the end, {quiet:g} s after the last call.

## Hostile requests

The requests come from the test suites and advisories of other HTTP servers and proxies (request smuggling, broken
framing, odd line ends, cut-off bodies ...). They are written to a raw socket in three ways. Each has to end in one of
two ways: refused by the proxy with a JSON answer that is counted, or forwarded, and then the upstream reads exactly the
requests that were sent. Afterwards an ordinary call on a new connection has to be served.

{hostile}
"""


def written(measured: Measured, hostile: str) -> str:
    """The page as text. `hostile` is the table of hostile requests."""
    memory, files = measured.memory, measured.files
    return _TEXT.format(
        minutes=round(measured.seconds / 60, 1),
        callers=CALLERS,
        disturbers=DISTURBERS,
        held=f"{measured.told.held.total():,}",
        lost=len(measured.told.lost),
        arrived=f"{measured.arrived:,}",
        invalid=measured.invalid_arrived,
        twice=measured.arrived_twice,
        kills=measured.kills,
        taken=measured.reloads.get("success", 0),
        refused=measured.reloads.get("failure", 0),
        memory=" / ".join(f"{size / 2**20:.1f} MiB" for size in (memory[0], max(memory), memory[-1])),
        files=" / ".join(map(str, (files[0], max(files), files[-1]))),
        defects=len(measured.defects),
        exit_code=measured.exit_code,
        kinds="\n".join(f"| {kind} | {count:,} |" for kind, count in sorted(measured.told.held.items())),
        disturbances="\n".join(f"| {kind} | {count:,} |" for kind, count in sorted(measured.told.disturbed.items())),
        warm=5,
        quiet=3,
        hostile=hostile,
    )
