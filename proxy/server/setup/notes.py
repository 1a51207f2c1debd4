"""What the log says of a config once it is served."""

from __future__ import annotations

from proxy.config.load import Loaded
from proxy.config.watch import find_warnings
from proxy.telemetry.logs import Log


def tell_notes(log: Log, loaded: Loaded, *, watched: bool) -> None:
    """Writes down what the operator should know of a config, and of files whose changes would not be seen."""
    for note in loaded.config.notes:
        log.event("config note", note=note)
    for warning in find_warnings(loaded.files) if watched else ():
        log.event("config note", "warning", note=warning)


def warn_of_addresses(log: Log, calls: int, by_address: int) -> None:
    """Most clients send no conversation id: the operator may not know what that costs."""
    remedy = "send a conversation id (docs/contract.md, Conversations); without one, attempts and caps do little"
    log.event("Most calls carry no conversation id", "warning", calls=calls, by_address=by_address, remedy=remedy)
