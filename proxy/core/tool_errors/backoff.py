"""Decides whether the same payload is sent again, after which wait, and how often in all (docs/upstream.md).

The proxy itself resends; the model's attempts are not affected. RFC 9110 section 9.2.2: "A proxy MUST NOT automatically
retry non-idempotent requests". So `RULES` determine who can know that the tool does not run twice: the first that
applies gives the reason. `Budget` says how many resends an upstream gets in all.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from proxy.core.contract.policy import ResendPolicy
from proxy.core.model import codes
from proxy.core.model.codes import Category
from proxy.core.model.fields import read_seconds
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Executed, Failure, Headers, UpstreamFault, UpstreamReply

Answer = UpstreamReply | UpstreamFault


class Reason(StrEnum):
    """The reason why a call was sent again. Used as a metric label."""

    UNSENT = "unsent"
    RETRY_AFTER = "retry_after"
    IDEMPOTENT = "idempotent"
    KEY = "idempotency_key"


class ResendDenied(StrEnum):
    """The reason why a call that might have been sent again was not. Used as a metric label."""

    MAX = "max"
    DEADLINE = "deadline"
    BUDGET = "budget"


# --- what happened ----------------------------------------------------------------------------------------------------
# Faults that another try may avoid. The proxy itself causes all others: an open breaker, a full queue, a bad request.
UPSTREAM_FAULTS: Final = frozenset({codes.UPSTREAM_UNAVAILABLE, codes.UPSTREAM_TIMEOUT, codes.UPSTREAM_BAD_ANSWER})
_HOPELESS_TOKENS: Final = frozenset({"proxy_configuration_error", "proxy_loop_detected"})
# Server errors that mean that the same request cannot succeed later either (RFC 9110 sections 15.6.2 and 15.6.6).
LASTING: Final = frozenset({501, 505})
_WAITING: Final = frozenset({429, 503})
# A tool's own category comes before its status: GoMind tools wrap "location not found" in a 503.
_PASSING: Final = frozenset({Category.SERVICE_ERROR, Category.RATE_LIMIT})


def is_server_error(status: int) -> bool:
    """Returns whether a status means a fault of the service that may pass."""
    return status >= 500 and status not in LASTING


def read_wait(failure: Failure) -> float | None:
    """Returns the seconds to wait that the upstream gives in Retry-After or in `details.retry_after` (GoMind)."""
    return read_seconds(failure.details.get("retry_after", ""))


def _may_pass(answer: Answer) -> bool:
    return isinstance(answer, UpstreamFault) or is_server_error(answer.status)


@value_class
class ResendRule:
    """One way to know that sending again does no harm. `when` describes it for the docs."""

    reason: Reason
    when: str
    allows: Callable[[Answer, Failure, ResendPolicy, bool], bool]


RULES: Final = (
    ResendRule(
        Reason.UNSENT,
        "It was provably never sent: no address, connection refused, TLS failed, no connection in time.",
        lambda answer, _failure, _policy, _keyed: isinstance(answer, UpstreamFault) and answer.executed is Executed.NO,
    ),
    ResendRule(
        Reason.RETRY_AFTER,
        "429 or 503 that says how long to wait, and `resend: {on_retry_after: on}`.",
        lambda answer, failure, policy, _keyed: (
            policy.on_retry_after
            and isinstance(answer, UpstreamReply)
            and answer.status in _WAITING
            and read_wait(failure) is not None
        ),
    ),
    ResendRule(
        Reason.IDEMPOTENT,
        "A 5xx (but 501 and 505), a timeout or a reset, and the tool is `idempotent: on`.",
        lambda answer, _failure, policy, _keyed: policy.idempotent and _may_pass(answer),
    ),
    ResendRule(
        Reason.KEY,
        "The same, and the request carries the header of `idempotency`, the client's own or a minted one.",
        lambda answer, _failure, _policy, keyed: keyed and _may_pass(answer),
    ),
)


def find_resend_reason(answer: Answer, failure: Failure, policy: ResendPolicy, keyed: bool) -> Reason | None:
    """Returns why the same payload may be sent again; None if it must not be, or if that would not help. `failure` is
    the meaning of the answer; `keyed`: the request carries an idempotency key."""
    if not failure.may_retry or failure.code.category not in _PASSING:
        return None
    if isinstance(answer, UpstreamFault) and (answer.code not in UPSTREAM_FAULTS or answer.token in _HOPELESS_TOKENS):
        return None
    return next((rule.reason for rule in RULES if rule.allows(answer, failure, policy, keyed)), None)


def compute_pause(policy: ResendPolicy, resent: int, chance: float, wait: float | None = None) -> float:
    """Returns the seconds to wait before resend number `resent` + 1, plus the upstream's own wait. They are anything
    from zero to a bound that doubles each time (full jitter, so that callers that failed together do not come back
    together). `chance` is at least 0 and below 1."""
    return (wait or 0.0) + chance * min(policy.max_backoff, policy.backoff * (1 << resent))


def add_idempotency_key(headers: Headers, policy: ResendPolicy, mint: Callable[[], str]) -> tuple[Headers, bool]:
    """The headers for all sends of one call, and whether they carry an idempotency key. Names are in lower case."""
    has_own = policy.key_header != "" and any(name == policy.key_header and value for name, value in headers)
    if has_own or not policy.key_header or not policy.mint_key:
        return headers, has_own
    others = tuple(entry for entry in headers if entry[0] != policy.key_header)
    return (*others, (policy.key_header, mint())), True


# --- the budget -------------------------------------------------------------------------------------------------------
@value_class
class BudgetPolicy:
    """The resends that an upstream gets: `ratio` of its requests, and `per_second` whatever its traffic. Without this
    bound, a service that is down would get a multiple of its usual load, and stay down."""

    ratio: float = 0.2
    per_second: float = 1.0

    @property
    def saved(self) -> float:
        """Returns how many resends can be saved up: those of ten seconds, and at least ten (calls fail together)."""
        return max(_SAVED, _SAVED * self.per_second)


_SAVED: Final = 10.0


@value_class
class Budget:
    """A token bucket: requests and time fill it, resends draw from it. `at` is the time of the last change."""

    policy: BudgetPolicy
    tokens: float
    at: float

    @classmethod
    def of(cls, policy: BudgetPolicy, now: float) -> Budget:
        """Returns a new budget, as full as time would make it."""
        return cls(policy, _SAVED * policy.per_second, now)

    def paid_in(self, now: float) -> Budget:
        """The budget after one more request that is not a resend."""
        most = self.policy.saved
        if self.tokens >= most:
            return self
        return Budget(self.policy, min(most, self._by_now(now) + self.policy.ratio), now)

    def draw(self, now: float) -> Budget | None:
        """The budget after one more resend; None where nothing is left."""
        tokens = self._by_now(now)
        return Budget(self.policy, tokens - 1.0, now) if tokens >= 1.0 else None

    def _by_now(self, now: float) -> float:
        return min(self.policy.saved, self.tokens + max(0.0, now - self.at) * self.policy.per_second)
