"""The short way to a repair: the mender generated for a schema (core/engine/mender.py), asked before the repair engine.

It knows the damage that is by far the most common, numbers and booleans sent as text, and a few more rules with one
obvious answer. What it makes counts only if the judge accepts it, and is what the repair engine would make, repairs and
their order included (tests/core/test_mending.py holds the two together). `None` means: ask the repair engine.
"""

from __future__ import annotations

from proxy.core.engine.remedies import GiveUp, Mending
from proxy.core.model import JsonValue, Repair
from proxy.core.policy import RepairPolicy
from proxy.core.repair import MAX_WORK
from proxy.core.respell import respell_integers
from proxy.core.validation import Check


def mended(
    check: Check, value: JsonValue, policy: RepairPolicy, limit: int = MAX_WORK
) -> tuple[JsonValue, tuple[Repair, ...]] | None:
    """The refused value as the schema takes it and the repairs made, or None where it takes more than the obvious.

    `limit` bounds the work, in the units of `work.py`, as it does in `repair`. Never changes `value`; never raises.
    """
    rules = policy.rules
    mend = check.mender(rules)
    if mend is None:
        return None
    # A wrapper has one key that is no plumbing, so most arguments are none at a glance.
    if type(value) is dict and len(value) < 2 + len(policy.drop_keys) and _wraps(value, policy):
        return None
    made: list[Repair] = []
    mending = Mending()
    mending.late, mending.left = False, limit
    try:
        candidate = mend(value, made, mending)
    except (GiveUp, KeyError, ValueError, RecursionError):
        return None
    if not made or not check.accepts(candidate):
        return None
    if mending.late:
        candidate, respelt = respell_integers(check, candidate, policy)
        made += respelt
    return candidate, tuple(made)


def _wraps(value: dict[str, JsonValue], policy: RepairPolicy) -> bool:
    """Whether the arguments may be a wrapper around the real ones, which the repair engine tells."""
    if "unwrap_arguments" not in policy.rules:
        return False
    others = [key for key in value if key not in policy.drop_keys]
    return len(others) == 1 and isinstance(value[others[0]], dict)
