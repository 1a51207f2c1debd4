"""The flags of `serve` in place of a config: which there are, and which arguments contradict each other."""

from __future__ import annotations

import argparse
from typing import Final

from proxy.plugin import ExtendsVerbs, NoConfig
from proxy.plugins import find_plugins

# The flags that several of the flags in place of a config share, by their keys.
_SHARED: Final = ("header", "timeout", "null_optional", "admin", "wait")


def name_sharing(shared: str) -> str:
    """The flags in place of a config that share a flag, in words."""
    sharing = [each for each in list_no_config() if shared in each.shares]
    return _join(
        [f"{each.flag.name} URL" if shared == "header" and each.takes_command else each.flag.name for each in sharing]
    )


def _join(words: list[str], last: str = "and") -> str:
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def list_no_config() -> list[NoConfig]:
    """The flags of `serve` in place of a config, in the order of their names."""
    found = [source for plugin in find_plugins(ExtendsVerbs) for source in plugin.list_no_config()]
    return sorted(found, key=lambda source: source.flag.name)


def suggest_command(args: argparse.Namespace) -> str:
    """A hint for a command that is not behind --, or ''."""
    for kind in list_no_config():
        word = getattr(args, kind.flag.key)
        if kind.takes_command and word and "://" not in word and args.command is None:
            command = f"toolcall-proxy serve {kind.flag.name} -- {word} {args.path or '...'}"
            return f"  (write a command after --: {command})"
    return ""


def find_contradiction(args: argparse.Namespace) -> str:
    """The contradiction among the arguments, or ''."""
    kinds = list_no_config()
    sources = {"CONFIG": args.path, "--config": args.config}
    sources |= {kind.flag.name: getattr(args, kind.flag.key) for kind in kinds}
    given = [word for word, value in sources.items() if value is not None]
    if not given:
        others = _join([f"{kind.flag.name} URL" for kind in kinds], "or")
        return f"which config?  (toolcall-proxy serve config.yaml; without one: {others})"
    if len(given) > 1:
        return f"{' and '.join(given)} cannot be combined: use one of them{suggest_command(args)}"
    kind = next((each for each in kinds if each.flag.name == given[0]), None)
    takes_command = kind is not None and kind.takes_command
    if args.command is not None and not takes_command:
        takers = _join([each.flag.name for each in kinds if each.takes_command])
        return f"a command behind -- goes only with {takers}"
    if takes_command and bool(sources[given[0]]) == bool(args.command):
        return f"which server?  ({given[0]} URL, or {given[0]} -- COMMAND ARGUMENT ...: one of the two)"
    for key in _SHARED:
        shares = kind is not None and key in kind.shares and not (key == "header" and args.command)
        if getattr(args, key) and not shares:
            says = "" if key in ("header", "wait") else f"; a config says `{key}`"
            return f"--{key.replace('_', '-')} goes only with {name_sharing(key)}{says}"
    for each in kinds:
        for flag in each.flags:
            if getattr(args, flag.key) not in (None, False, flag.default) and each is not kind:
                return f"{flag.name} goes only with {each.flag.name}"
    return ""
