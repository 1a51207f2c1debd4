"""Finds the hooks that a config names: `module:attribute`, or the name of an entry point of `GROUP`.

A hook is a subclass of `Hook`, which is created with the config's `settings` as keyword arguments, or a ready instance
in a module. Every mistake is reported in one sentence. The operator's code runs here, so any exception from it is
caught.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.hooks.api import POINTS, Hook

GROUP: Final = "toolcall_proxy.hooks"


@value_class
class HookLoadError:
    """Why a hook cannot be used, and what to write instead."""

    message: str
    hint: str = ""


@value_class
class LoadedHook:
    """A hook that is ready to run. `timeout` is in seconds per point; with `strict`, a call whose hook fails is
    refused."""

    name: str
    hook: Hook
    timeout: float
    strict: bool

    def listens(self, point: str) -> bool:
        """Whether the hook overrides a point."""
        return getattr(type(self.hook), point) is not getattr(Hook, point)


def find_hook(use: str) -> Hook | type[Hook] | HookLoadError:
    """The hook or the class of hooks that `use` names; nothing is created."""
    try:
        if ":" in use:
            module, path = use.split(":", 1)
            found: Any = attrgetter(path)(import_module(module))
        else:
            installed = {entry.name: entry for entry in entry_points(group=GROUP)}
            if use not in installed:
                known = f"installed: {', '.join(sorted(installed))}" if installed else "none is installed"
                hint = f"write `module:Class`, or install a package with an entry point in {GROUP} ({known})"
                return HookLoadError(f"no hook is installed under the name {use!r}", hint)
            found = installed[use].load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: importing it runs it
        hint = "write `module:Class`" if isinstance(error, AttributeError | ValueError) else ""
        if isinstance(error, ModuleNotFoundError):
            hint = "the module has to be installed, or its folder be in PYTHONPATH"
        return HookLoadError(f"{use!r} cannot be loaded ({_name_error(error)})", hint)
    cls = found if isinstance(found, type) else type(found)
    if not issubclass(cls, Hook):
        return HookLoadError(f"{use!r} is not a hook", "write a class that inherits from `proxy.hooks.Hook`")
    if not any(getattr(cls, point) is not getattr(Hook, point) for point in POINTS):
        return HookLoadError(f"{use!r} has none of a hook's methods", f"define one of: {', '.join(POINTS)}")
    for point in POINTS:
        if not inspect.iscoroutinefunction(getattr(cls, point)):
            return HookLoadError(f"`{point}` of {use!r} is not a coroutine", f"write `async def {point}`")
    return found  # type: ignore[no-any-return]  # a Hook or a class of hooks by now


def load_hook(
    use: str, settings: Mapping[str, JsonValue], timeout: float, *, strict: bool
) -> LoadedHook | HookLoadError:
    """A hook created with its settings, or why it cannot be used."""
    found = find_hook(use)
    if isinstance(found, HookLoadError):
        return found
    if isinstance(found, Hook):
        if settings:
            message = f"{use!r} is an instance already and takes no settings"
            return HookLoadError(message, "name the class, or drop `settings`")
        return LoadedHook(use, found, timeout, strict)
    try:
        return LoadedHook(use, found(**settings), timeout, strict)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
        message = f"{use!r} cannot be instantiated ({_name_error(error)})"
        return HookLoadError(message, "its `settings` are its keyword arguments")


def _name_error(error: BaseException) -> str:
    """The kind of an exception, with its message only where Python itself wrote it: others may quote a setting."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, ImportError | AttributeError | SyntaxError) else kind
