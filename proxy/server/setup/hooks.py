"""The hooks of a config, loaded and in a chain. What cannot be loaded is a mistake of the config, with its line.

The room of hooks is loaded for a config that has some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.config.load import Loaded
from proxy.config.mistakes import ConfigError, Mistake
from proxy.config.model import HookEntry
from proxy.interfaces import Clock
from proxy.telemetry.logs import Log

if TYPE_CHECKING:
    from proxy.hooks import HookChain, HookLoadError


def make_hook_chain(loaded: Loaded, log: Log, clock: Clock) -> HookChain | None:
    """The chain of a config's hooks, None where it has none. Raises ConfigError with every hook that cannot be made."""
    if not loaded.config.hooks:
        return None
    from proxy.hooks import HookChain, HookLoadError, load_hook

    made, mistakes = [], []
    for entry in loaded.config.hooks:
        hook = load_hook(entry.use, entry.settings, entry.timeout, strict=entry.on_failure == "refuse")
        if isinstance(hook, HookLoadError):
            mistakes.append(_mistake(loaded, entry, hook))
        else:
            made.append(hook)
    if mistakes:
        raise ConfigError(mistakes)
    return HookChain(made, log.hook_failed, clock.now)


def check_hooks(loaded: Loaded) -> list[Mistake]:
    """What is wrong with a config's hooks, as far as that can be told without making any."""
    if not loaded.config.hooks:
        return []
    from proxy.hooks import HookLoadError, find_hook

    found = [(entry, find_hook(entry.use)) for entry in loaded.config.hooks]
    return [_mistake(loaded, entry, hook) for entry, hook in found if isinstance(hook, HookLoadError)]


def _mistake(loaded: Loaded, entry: HookEntry, found: HookLoadError) -> Mistake:
    return Mistake(str(loaded.files[0]), *entry.at, "hooks", found.message, found.hint)
