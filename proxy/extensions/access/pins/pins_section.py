"""The section `pins` of the config: the file of approved definitions, and the treatment of all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, get_args

from proxy.config.context import Context, read_named_text
from proxy.config.files.secrets import reveal
from proxy.config.files.source import Files
from proxy.config.model import Config, UpstreamConfig
from proxy.core.contract.policy import Mode
from proxy.core.model.value_class import value_class
from proxy.extensions.access.pins.approved_calls import WithheldTools
from proxy.extensions.access.pins.lock_file import FILE, Changed, LockProblem, PinnedRoute, Pins, read_lock
from proxy.extensions.access.pins.pinned_operations import find_operations

_CHANGED: Final[Changed] = "hide"
_WRITE: Final = "paths start at the config file's folder; `toolcall-proxy pin CONFIG` writes it"


@value_class
class PinConfig:
    """The approved definitions by route, and the treatment of all others."""

    pins: Pins = field(repr=False)
    changed: Changed = _CHANGED


def read_pins(context: Context, files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> PinConfig | None:
    """Reads which definitions are approved; None where the file cannot be used, which is reported."""
    written = context.mapping("pins")
    at = ("pins", "file") if "file" in written else ("pins",)
    text = read_named_text(context, files, at, written.get("file", FILE), _WRITE)
    if text is None:
        return None
    try:
        pins = read_lock(text.encode())
    except LockProblem as problem:
        hint = "write it anew with `toolcall-proxy pin`, and look at what has changed"
        context.mistake(at, f"the file of pins cannot be used: {problem}", hint)
        return None
    changed = str(reveal(written.get("changed", _CHANGED)))
    return PinConfig(pins, next((known for known in get_args(Changed) if known == changed), _CHANGED))


def find_pinned(config: Config, route: str) -> PinnedRoute | None:
    """The approved definitions of a route; None where the config pins nothing. A report-only route only warns."""
    found: PinConfig | None = config.sections.get("pins")
    if found is None:
        return None
    entries = [entry for entry in config.routes if entry.name == route]
    report = any(entry.policy.mode is Mode.REPORT for entry in entries)
    others = frozenset(name for tools in found.pins.values() for name in tools)
    changed: Changed = "warn" if report else found.changed
    return PinnedRoute.of(found.pins.get(route, {}), changed, find_operations(entries), others)


def find_withheld(config: Config, route: str) -> WithheldTools | None:
    """The operations of a route that may not be called; None where all may be called."""
    pinned = find_pinned(config, route)
    if pinned is None or pinned.changed == "warn" or not (unpinned := pinned.unpinned):
        return None
    return WithheldTools(frozenset(unpinned), pinned.changed == "hide")
