"""The plugins of this process: those in `proxy/extensions`, and those of other packages that the config names.

    find_plugins(seam)      the plugins that use a seam of `plugin.py`
    load_named(names)       adds plugins of other packages, by their names in the entry point group

An installed package is not loaded by itself: a security sidecar runs what its operator names.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxy import extensions
from proxy.plugin import AddsKeys, AddsVerbs, ExtendsCalls, KeepsState, Plugin, SpeaksProtocol

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from proxy.config.model import Config, RouteEntry
    from proxy.core.contract.listed_tool import PinnedTools

GROUP: Final = "toolcall_proxy.plugins"
# Verb -> the plugin that adds it, so that only a verb that the user types loads a package.
VERBS: Final = "toolcall_proxy.verbs"
_Seam = TypeVar("_Seam")


class PluginError(Exception):
    """A plugin that does not load; the text names it and says why."""


@cache
def list_plugins() -> list[Plugin]:
    """All plugins, the built-in ones first, in the order of their names. The list is the same object each time."""
    folders = sorted(found.name for found in pkgutil.iter_modules(extensions.__path__) if found.ispkg)
    modules = [import_module(f"{extensions.__name__}.{name}.plugin") for name in folders]
    return [_find_class(vars(module), module.__name__)() for module in modules]


# Seam -> the plugins that use it, while there are so many plugins: configs of many routes ask again and again.
_BY_SEAM: Final[dict[tuple[type, int], list[Any]]] = {}


def find_plugins(seam: type[_Seam]) -> list[_Seam]:
    """The plugins that use a seam."""
    key = (seam, len(list_plugins()))
    if key not in _BY_SEAM:
        _BY_SEAM[key] = [plugin for plugin in list_plugins() if isinstance(plugin, seam)]
    return _BY_SEAM[key]


@cache
def list_keys(plugin: Plugin) -> list[str]:
    """Returns the names of a plugin's keys in the config; `state` for those in that section."""
    attributes = ("sections", "policy_keys", "limit_keys", "other_keys")
    own = [plugin.relay_key] if isinstance(plugin, SpeaksProtocol) and plugin.relay_key else []
    own += ["state"] if isinstance(plugin, KeepsState) else []
    return [*own, *(key for each in attributes for key in getattr(plugin, each, ()))]


def list_askers(config: Config, entry: RouteEntry) -> list[str]:
    """The names of the plugins that admit the requests of a route: by its policy, or by definitions that it pins."""
    return [
        plugin.name
        for plugin in find_plugins(ExtendsCalls)
        if not entry.policy.added.keys().isdisjoint(plugin.asks_callers)
        or (
            not config.sections.keys().isdisjoint(plugin.sections)
            and plugin.find_pinned(config, entry.name) is not None
        )
    ]


def find_requests() -> SpeaksProtocol | None:
    """Returns the plugin that reads calls from HTTP requests; None without one."""
    return next((each for each in find_plugins(SpeaksProtocol) if each.schema_source), None)


def list_used(config: Config) -> list[ExtendsCalls]:
    """Returns the plugins that extend the calls of a config: always, or by one of their sections or policy keys."""
    policies = (policy for route in config.routes for policy in route.list_policies())
    keys = {key for policy in policies for key in policy.added} | config.sections.keys()
    found = find_plugins(ExtendsCalls)
    return [each for each in found if each.always or not keys.isdisjoint((*each.sections, *each.policy_keys))]


def find_pinned(config: Config, route: str) -> PinnedTools | None:
    """Which definitions of a route's listed tools are approved; None if the config pins nothing there."""
    used = (each for each in find_plugins(ExtendsCalls) if not config.sections.keys().isdisjoint(each.sections))
    return next((pinned for each in used if (pinned := each.find_pinned(config, route)) is not None), None)


def load_named(names: Iterable[str]) -> None:
    """Adds the plugins of other packages with these names, each once. Raises PluginError for the first that does not
    load."""
    loaded = {plugin.name for plugin in list_plugins()}
    for name in names:
        if name not in loaded:
            list_plugins().append(_load_named(name))


def find_foreign_verb(verb: str) -> AddsVerbs | None:
    """Returns the plugin of another package that adds a verb, and loads no other one. Raises PluginError if it does not
    load."""
    named = [entry for entry in _list_entry_points(VERBS) if entry.name == verb]
    plugin = _make(named[0], verb) if named else None
    return plugin if isinstance(plugin, AddsVerbs) and verb in plugin.verbs else None


def _list_entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points  # a plain start does not need it

    return entry_points(group=group)


def _load_named(name: str) -> Plugin:
    found = [entry for entry in _list_entry_points(GROUP) if entry.name == name]
    if not found:
        known = ", ".join(sorted(entry.name for entry in _list_entry_points(GROUP))) or "none"
        raise PluginError(f"no installed package has a plugin {name!r}; installed: {known}")
    made = _make(found[0], name)
    if not isinstance(made, Plugin) or made.name != name:
        raise PluginError(f"plugin {name!r} does not load: {found[0].value} is not a Plugin with that name")
    taken = {key for other in find_plugins(AddsKeys) for key in list_keys(other)}
    if isinstance(made, AddsKeys) and (twice := sorted(taken.intersection(list_keys(made)))):
        raise PluginError(f"plugin {name!r} does not load: another plugin has the key {twice[0]!r} already")
    return made


def _make(entry: EntryPoint, name: str) -> object:
    try:
        made: object = entry.load()()
    except Exception as error:
        raise PluginError(f"plugin {name!r} does not load: {type(error).__name__}: {error}") from error
    if isinstance(made, Plugin) and (missing := find_missing(type(made))):
        raise PluginError(f"plugin {name!r} does not load: {entry.value} lacks {', '.join(missing)}")
    return made


# Method that a seam needs only with one of these keys -> their attributes.
_NEEDED_WITH: Final = {
    "declare_keys": ("sections", "policy_keys", "limit_keys", "other_keys", "state_keys", "relay_key"),
    "read_upstream": ("upstream_keys",),
    "make_upstreams": ("upstream_keys",),
    **dict.fromkeys(("make_reader", "make_handler", "make_lists"), ("protocol",)),
    **dict.fromkeys(("read_relay", "make_relay"), ("relay_key",)),
    **dict.fromkeys(("read_request", "read_channels", "read_operation", "bind"), ("schema_source",)),
    "make_tracer": ("traces",),
    "read_state": ("state_keys",),
    "run_workers": ("runs_workers",),
}


def find_missing(plugin: type[Plugin]) -> list[str]:
    """The attributes and methods that a class lacks of the seams that it inherits, as `Seam.name`."""
    missing: dict[str, str] = {}
    for seam in (each for each in plugin.__mro__ if each.__module__ == Plugin.__module__):
        for name in (*seam.__annotations__, *vars(seam)):
            found = getattr(plugin, name, None)
            is_open = "NotImplementedError" in getattr(getattr(found, "__code__", None), "co_names", ())
            keys = _NEEDED_WITH.get(name)
            if (is_open or not hasattr(plugin, name)) and (
                keys is None or any(getattr(plugin, key, ()) for key in keys)
            ):
                missing.setdefault(name, f"{seam.__name__}.{name}")
    unlimited = ExtendsCalls.make_limiter
    if getattr(plugin, "limit_keys", ()) and getattr(plugin, "make_limiter", unlimited) is unlimited:
        missing["make_limiter"] = "ExtendsCalls.make_limiter"
    return list(missing.values())


def _find_class(names: Mapping[str, object], module: str) -> type[Plugin]:
    """The class of a plugin that a module defines. Raises StopIteration if there is none."""
    classes = (each for each in names.values() if isinstance(each, type) and each.__module__ == module)
    return next(each for each in classes if issubclass(each, Plugin))
