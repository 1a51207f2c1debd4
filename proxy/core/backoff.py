"""When the same payload is sent again, how long to wait before, and how often in all (contract section 7).

A resend is the proxy's own affair: the model's attempts are not touched by it. RFC 9110 section 9.2.2: "A proxy MUST
NOT automatically retry non-idempotent requests", so the rules ask who can know that the tool does not run twice:

    RULES          the table: what has to be known; the first rule that fits gives the reason
    pause          how long to wait: full jitter, on top of what the upstream asks for
    Budget         how many resends an upstream takes in all: a share of its requests, and a few per second

`upstream/resending.py` plays by these rules; nothing here knows a clock or rolls a die.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proxy.core import codes
from proxy.core.codes import Category
from proxy.core.model import Executed, Failure, Headers, UpstreamFault, UpstreamReply
from proxy.core.policy import ResendPolicy

Answer = UpstreamReply | UpstreamFault


class Reason(StrEnum):
    """Why a call was sent again: a metric's label."""

    UNSENT = "unsent"
    RETRY_AFTER = "retry_after"
    IDEMPOTENT = "idempotent"
    KEY = "idempotency_key"


class Denied(StrEnum):
    """Why a call that might have been sent again was not: a metric's label."""

    MAX = "max"
    DEADLINE = "deadline"
    BUDGET = "budget"


# --- what happened ----------------------------------------------------------------------------------------------------
# Faults that another try may not meet. Any other is of our own making: an open breaker, a full queue, a bad request.
_FAULTS: Final = frozenset({codes.UPSTREAM_UNAVAILABLE, codes.UPSTREAM_TIMEOUT, codes.UPSTREAM_BAD_ANSWER})
_HOPELESS_TOKENS: Final = frozenset({"proxy_configuration_error", "proxy_loop_detected"})
# Server errors that say by themselves that the same request fares no better (RFC 9110 sections 15.6.2 and 15.6.6).
LASTING: Final = frozenset({501, 505})
_WAITING: Final = frozenset({429, 503})
# A tool's own category goes before its status: GoMind tools wrap "location not found" in a 503.
_PASSING: Final = frozenset({Category.SERVICE_ERROR, Category.RATE_LIMIT})
_SECONDS: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*s?")


def is_server_error(status: int) -> bool:
    """Whether a status is a fault of the service that may pass."""
    return status >= 500 and status not in LASTING


def told_to_wait(failure: Failure) -> float | None:
    """How many seconds the upstream asks to wait: by Retry-After, or by `details.retry_after` of its own (GoMind)."""
    found = _SECONDS.fullmatch(failure.details.get("retry_after", "").strip())
    return float(found[1]) if found else None


def _never_sent(answer: Answer, _failure: Failure, _policy: ResendPolicy, _keyed: bool) -> bool:
    return isinstance(answer, UpstreamFault) and answer.executed is Executed.NO


def _waits(answer: Answer, failure: Failure, policy: ResendPolicy, _keyed: bool) -> bool:
    asked = isinstance(answer, UpstreamReply) and answer.status in _WAITING and told_to_wait(failure) is not None
    return policy.on_retry_after and asked


def _idempotent(answer: Answer, _failure: Failure, policy: ResendPolicy, _keyed: bool) -> bool:
    return policy.idempotent and _may_pass(answer)


def _keyed(answer: Answer, _failure: Failure, _policy: ResendPolicy, keyed: bool) -> bool:
    return keyed and _may_pass(answer)


def _may_pass(answer: Answer) -> bool:
    return isinstance(answer, UpstreamFault) or is_server_error(answer.status)


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to know that sending again does no harm. `when` says it in words, for the docs."""

    reason: Reason
    when: str
    allows: Callable[[Answer, Failure, ResendPolicy, bool], bool]


RULES: Final = (
    Rule(
        Reason.UNSENT,
        "It was provably never sent: no address, connection refused, TLS failed, no connection in time.",
        _never_sent,
    ),
    Rule(
        Reason.RETRY_AFTER,
        "429 or 503 that says how long to wait, and `resend: {on_retry_after: on}`.",
        _waits,
    ),
    Rule(
        Reason.IDEMPOTENT,
        "A 5xx (but 501 and 505), a timeout or a reset, and the tool is `idempotent: on`.",
        _idempotent,
    ),
    Rule(
        Reason.KEY,
        "The same, and the request carries the header of `idempotency`, the client's own or a minted one.",
        _keyed,
    ),
)


def reason_to_resend(answer: Answer, failure: Failure, policy: ResendPolicy, keyed: bool) -> Reason | None:
    """Why the same payload may be sent again; None where it may not, or where that would be no use.

    `failure` is what the answer means; `keyed` says that the request carries an idempotency key.
    """
    if not failure.may_retry or failure.code.category not in _PASSING:
        return None
    if isinstance(answer, UpstreamFault) and (answer.code not in _FAULTS or answer.token in _HOPELESS_TOKENS):
        return None
    return next((rule.reason for rule in RULES if rule.allows(answer, failure, policy, keyed)), None)


def pause(policy: ResendPolicy, resent: int, chance: float, wait: float | None = None) -> float:
    """How many seconds to wait before resend number `resent` + 1. `chance` is at least 0 and below 1.

    Full jitter: anything between nothing and a bound that doubles, so that callers that failed together do not come
    back together; on top of what the upstream asked for.
    """
    return (wait or 0.0) + chance * min(policy.max_backoff, policy.backoff * (1 << resent))


def keyed_headers(headers: Headers, policy: ResendPolicy, mint: Callable[[], str]) -> tuple[Headers, bool]:
    """The headers to send with all sends of one call, and whether they carry an idempotency key. Names lower case."""
    if not policy.key_header:
        return headers, False
    if any(name == policy.key_header and value for name, value in headers):
        return headers, True
    if not policy.mint_key:
        return headers, False
    others = tuple(entry for entry in headers if entry[0] != policy.key_header)
    return (*others, (policy.key_header, mint())), True


# --- the budget -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """How many resends an upstream takes: `ratio` of its requests, and `per_second` whatever its traffic.

    Without it a service that is down gets a multiple of its usual load, and stays down.
    """

    ratio: float = 0.2
    per_second: float = 1.0

    @property
    def saved(self) -> float:
        """How many resends can be saved up: what ten seconds bring, and at least ten, since calls fail together."""
        return max(_SAVED, _SAVED * self.per_second)


_SAVED: Final = 10.0


@dataclass(frozen=True, slots=True)
class Budget:
    """A token bucket: requests and time pay in, resends draw. `at` is the time of the last change."""

    policy: BudgetPolicy
    tokens: float
    at: float

    @classmethod
    def of(cls, policy: BudgetPolicy, now: float) -> Budget:
        """A new budget, filled as far as time alone would fill it."""
        return cls(policy, _SAVED * policy.per_second, now)

    def paid_in(self, now: float) -> Budget:
        """The budget after one more request that is no resend."""
        most = self.policy.saved
        if self.tokens >= most:
            return self
        return Budget(self.policy, min(most, self._by_now(now) + self.policy.ratio), now)

    def drawn(self, now: float) -> Budget | None:
        """The budget after one more resend; None where there is nothing left."""
        tokens = self._by_now(now)
        return Budget(self.policy, tokens - 1.0, now) if tokens >= 1.0 else None

    def _by_now(self, now: float) -> float:
        return min(self.policy.saved, self.tokens + max(0.0, now - self.at) * self.policy.per_second)
