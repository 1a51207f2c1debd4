"""Decides when a layer runs, and which action its verdict leads to: the seeds' decision tables, as data. Pure.

    ACTIVATION   HTTP status -> whether other arguments can help (GoMind, "When Semantic Retry Activates")
    MATRIX       (should_retry, changes, is_transient_error) -> an action ("Decision Matrix")

The seeds call a tool a second time even if the first call may have run; the proxy does not (docs/upstream.md). The
proxy asks a model about a 503 only for idempotent tools, and sends the same payload again only if the rules of resends
would have allowed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from proxy.core.contract import attempts as contract
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model import codes
from proxy.core.model.codes import STATUS_OF_CATEGORY, Category
from proxy.core.model.values import Executed, Failure
from proxy.extensions.correction.core.settings import find_policy
from proxy.extensions.correction.core.words import Layer


class Why(StrEnum):
    """Says by status whether other arguments can help."""

    ARGUMENTS = "arguments"  # the tool refused the arguments: it has not run
    CREDENTIALS = "credentials"  # no arguments can help
    WAITING = "waiting"  # resends handle it, by waiting
    TRANSIENT = "transient"  # may help, where the tool says what happened and may be called twice
    SERVER = "server"  # resends handle it


ACTIVATION: Final[Mapping[int, Why]] = {
    400: Why.ARGUMENTS,
    404: Why.ARGUMENTS,
    409: Why.ARGUMENTS,
    422: Why.ARGUMENTS,
    401: Why.CREDENTIALS,
    403: Why.CREDENTIALS,
    429: Why.WAITING,
    503: Why.TRANSIENT,
    500: Why.SERVER,
    502: Why.SERVER,
    504: Why.SERVER,
}


class Action(StrEnum):
    """The action that a verdict leads to."""

    CHANGE = "change"  # call with the changed arguments
    AGAIN = "again"  # call with the same arguments at once
    BACK_OFF = "back_off"  # the same, after a pause
    STOP = "stop"


# (should_retry, there are changes, is_transient_error)
MATRIX: Final[Mapping[tuple[bool, bool, bool], Action]] = {
    (True, True, True): Action.CHANGE,
    (True, True, False): Action.CHANGE,
    (True, False, True): Action.AGAIN,
    (True, False, False): Action.AGAIN,
    (False, True, True): Action.BACK_OFF,
    (False, False, True): Action.BACK_OFF,
    (False, True, False): Action.STOP,
    (False, False, False): Action.STOP,
}


def find_status(failure: Failure) -> int:
    """Returns the status of a failure; an error inside a success has that of its category."""
    status = failure.http_status
    return status if status >= 400 else STATUS_OF_CATEGORY[failure.code.category]


def is_tools(failure: Failure) -> bool:
    """Returns whether the failure is the tool's own answer."""
    return "upstream_status" in failure.details


def asks(layer: Layer, failure: Failure, policy: ToolPolicy, independent: bool) -> bool:
    """Returns whether a layer handles a failure. `independent`: no earlier result of the conversation is known."""
    if not find_policy(policy).wants(layer) or not (is_tools(failure) or failure.code is codes.INVALID_ARGUMENTS):
        return False
    if layer is Layer.VALIDATION_FEEDBACK:
        return _is_about_arguments(failure) and contract.raises_attempt(failure)
    if independent and not find_policy(policy).independent_steps:
        return False
    if ACTIVATION.get(find_status(failure)) is Why.TRANSIENT:
        return failure.retryable is not None and policy.resend.idempotent
    return _is_about_arguments(failure)


def _is_about_arguments(failure: Failure) -> bool:
    """Returns whether other arguments can help. `retryable: false` on a 4xx forbids it (GoMind, "Retry Decision
    Matrix")."""
    return ACTIVATION.get(find_status(failure)) is Why.ARGUMENTS and failure.may_retry and not may_have_run(failure)


# The proxy's own failures before anything is sent.
_BEFORE_SENDING: Final = frozenset(
    code.name
    for code in (
        codes.INVALID_ARGUMENTS,
        codes.CONTAINER_INVOCATION,
        codes.CONTAINER_NOT_EXPANDED,
        codes.CALL_CAP_EXCEEDED,
        codes.CALL_NOT_ALLOWED,
        codes.HOOK_FAILED,
    )
)


def may_have_run(failure: Failure) -> bool:
    """Returns whether a failed call may have run; then it must not be reported as refused only."""
    executed = failure.details.get("executed")
    if executed is not None:
        return executed != Executed.NO
    if not is_tools(failure):
        return failure.code.name not in _BEFORE_SENDING
    return failure.http_status >= 500 or failure.code.category is Category.SERVICE_ERROR


def may_go_again(failure: Failure, policy: ToolPolicy, resent: int) -> bool:
    """Returns whether a model may request to send the same payload once more: only if resends are left. The proxy has
    used them up already, except after `retryable: false`."""
    return is_tools(failure) and policy.resend.idempotent and policy.resend.max_resends > resent


def is_type_error(failure: Failure) -> bool:
    """Returns whether one of the violations is a wrong type (the seeds' `type_error`)."""
    return failure.type_related or any(violation.code is codes.TYPE_MISMATCH for violation in failure.violations)
