"""Rates: how soon the next call may come, by the generic cell rate algorithm (ITU-T I.371, "GCRA").

A key holds one number, the theoretical arrival time: when the next call would come if all came evenly. A call that
comes `burst` intervals or more before the time after it is too early. Times are whole microseconds.

`take` is the rule. `redis/scripts.py` writes it again in Lua, because it must run where the data is;
`tests/state/test_rates.py` compares the two.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from proxy.interfaces import Clock, Rate, RateExceeded


def take(arrivals: Sequence[int | None], rates: Sequence[Rate], now: int) -> list[int] | RateExceeded:
    """The arrival times after one more call at the time `now`, or why it may not be made: all rates have to allow it.

    A time further ahead than a burst can have moved it is from before the clock jumped back, or of another config: the
    key begins anew."""
    after: list[int] = []
    worst = RateExceeded(0, 0)
    for index, (arrival, rate) in enumerate(zip(arrivals, rates, strict=True)):
        room = rate.interval * rate.burst
        begun = now if arrival is None or arrival > now + room else max(arrival, now)
        after.append(begun + rate.interval)
        wait = begun + rate.interval - room - now
        if wait > worst.wait:
            worst = RateExceeded(index, wait)
    return worst if worst.wait else after


class RateTable:
    """The arrival times of at most `max_keys` keys, those that were used last."""

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self.arrivals: OrderedDict[str, int] = OrderedDict()

    def take(self, rates: Sequence[Rate]) -> RateExceeded | None:
        """Counts one call under each key, or under none."""
        known = self.arrivals
        found = take([known.get(rate.key) for rate in rates], rates, int(self._clock.now() * 1_000_000))
        if isinstance(found, RateExceeded):
            for rate in rates:
                if rate.key in known:
                    known.move_to_end(rate.key)
            return found
        for rate, arrival in zip(rates, found, strict=True):
            known[rate.key] = arrival
            known.move_to_end(rate.key)
        while len(known) > self._max_keys:
            known.popitem(last=False)
        return None
