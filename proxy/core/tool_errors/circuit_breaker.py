"""The circuit breaker as a pure state machine: it protects a failing upstream from further load.

    Closed     calls go through; enough failures in a row, or too large a share of them, open it
    Open       nothing goes through until `until`
    HalfOpen   a few probes go through: if all succeed it closes, if one fails it opens again

`admit` and `settle` take a state and the time and give the next state. Each change of state begins a new epoch; a call
admitted in an earlier epoch has no effect on the current one.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.core.tool_errors.backoff import UPSTREAM_FAULTS, BudgetPolicy, is_server_error


@value_class
class BreakerPolicy:
    """A breaker opens after `failures` in a row, or when the share of failures reaches `ratio` among at least `calls`
    calls of the last `window` (None: no share counts). It then lets nothing through for `open_for` seconds, and after
    that `probes` calls."""

    failures: int = 5
    ratio: float | None = None
    window: float = 10.0
    calls: int = 20
    open_for: float = 5.0
    probes: int = 1


@value_class
class ConcurrencyPolicy:
    """The most calls that an upstream gets at a time. Up to `queue` others wait, for at most `wait` seconds."""

    limit: int
    wait: float = 1.0
    queue: int | None = None

    @property
    def most_waiting(self) -> int:
        """Returns how many calls may wait."""
        return self.limit if self.queue is None else self.queue


@value_class
class GuardPolicy:
    """The guards in front of one upstream; None means no breaker, or no limit."""

    breaker: BreakerPolicy | None = None
    concurrency: ConcurrencyPolicy | None = None
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)


# --- the states -------------------------------------------------------------------------------------------------------
@value_class
class Closed:
    """Calls go through. The window has two halves: the current one since `begun`, and the one `before` it."""

    epoch: int = 0
    in_a_row: int = 0
    begun: float = 0.0
    calls: int = 0
    failures: int = 0
    calls_before: int = 0
    failures_before: int = 0


@value_class
class Open:
    """Nothing goes through until `until`, on the monotonic clock."""

    epoch: int
    until: float


@value_class
class HalfOpen:
    """Probes go through: how many are under way, and how many succeeded."""

    epoch: int
    under_way: int = 1
    succeeded: int = 0


Breaker = Closed | Open | HalfOpen

# The number by which a gauge shows each state, and the state's name.
SHOWN_AS: Final[dict[type[Breaker], int]] = {Closed: 0, HalfOpen: 1, Open: 2}
CALLED: Final[dict[type[Breaker], str]] = {Closed: "closed", HalfOpen: "half_open", Open: "open"}
# The seconds that calls have to stay away while probes are under way.
_WHILE_PROBED: Final = 1


def find_wait(breaker: Breaker, now: float, policy: BreakerPolicy) -> int | None:
    """The whole seconds that a call has to stay away; None where it may go on."""
    if isinstance(breaker, Open):
        return None if now >= breaker.until else max(1, math.ceil(breaker.until - now))
    is_probed = isinstance(breaker, HalfOpen) and breaker.under_way + breaker.succeeded >= policy.probes
    return _WHILE_PROBED if is_probed else None


def admit(breaker: Breaker, now: float, policy: BreakerPolicy) -> Breaker | None:
    """The state after one more call was let through, which belongs to that epoch; None where it may not go on."""
    if find_wait(breaker, now, policy) is not None:
        return None
    if isinstance(breaker, HalfOpen):
        return replace(breaker, under_way=breaker.under_way + 1)
    return HalfOpen(breaker.epoch + 1) if isinstance(breaker, Open) else breaker


def settle(breaker: Breaker, epoch: int, failed: bool | None, now: float, policy: BreakerPolicy) -> Breaker:
    """The state after a call admitted in `epoch` has ended. `failed` None: it shows nothing about the upstream."""
    if epoch != breaker.epoch or isinstance(breaker, Open):
        return breaker
    if isinstance(breaker, Closed):
        return breaker if failed is None else _count_result(breaker, failed, now, policy)
    if failed:
        return Open(epoch + 1, now + policy.open_for)
    left = replace(breaker, under_way=breaker.under_way - 1, succeeded=breaker.succeeded + (failed is not None))
    return Closed(epoch + 1) if left.succeeded >= policy.probes else left


def _count_result(breaker: Closed, failed: bool, now: float, policy: BreakerPolicy) -> Breaker:
    in_a_row = breaker.in_a_row + 1 if failed else 0
    opens = failed and in_a_row >= policy.failures
    if policy.ratio is None:
        if not failed and not breaker.in_a_row:
            return breaker  # the usual case needs no new object
        counted = replace(breaker, in_a_row=in_a_row)
    else:
        age, half = now - breaker.begun, policy.window / 2
        if age >= 2 * half:
            breaker = Closed(breaker.epoch, begun=now)
        elif age >= half:
            breaker = Closed(breaker.epoch, 0, breaker.begun + half, 0, 0, breaker.calls, breaker.failures)
        counted = replace(breaker, in_a_row=in_a_row, calls=breaker.calls + 1, failures=breaker.failures + failed)
        calls, failures = counted.calls + counted.calls_before, counted.failures + counted.failures_before
        opens = opens or (failed and calls >= policy.calls and failures >= policy.ratio * calls)
    return Open(breaker.epoch + 1, now + policy.open_for) if opens else counted


def has_failed(answer: UpstreamReply | UpstreamFault) -> bool | None:
    """Returns whether an answer counts against the upstream (a refusal, 4xx or 501, does not); None for our fault."""
    if isinstance(answer, UpstreamReply):
        return is_server_error(answer.status)
    return True if answer.code in UPSTREAM_FAULTS else None
