"""`toolcall-proxy`, or `python -m proxy`: finds the verb and runs it.

Exit codes: 0 success, 1 a finding (the call would be refused, the check found a mistake), 2 a usage or configuration
error, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import signal
import socket
import sys


def _end_process(number: int, _frame: object) -> None:
    """Ends the process by a signal, with the exit code that shells give it."""
    raise SystemExit(128 + number)


# The imports below take a second. In the meantime a container's first process would ignore SIGTERM, which has no
# default for it, and refuse kubelet's first probes. Each refused probe is a Warning event. A held probe waits.
# `serve` and `demo` put their own handlers in place of this one.
HELD: socket.socket | None = None
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end_process)
    try:  # the pod's port for probes is named by `--pod-ports CALLS,PROBES,ADMIN`
        port = int(sys.argv[sys.argv.index("--pod-ports") + 1].split(",")[1])
        HELD = socket.create_server(("", port), backlog=128)  # kubelet and a few scrapers
    except (ValueError, IndexError, OSError, OverflowError):  # none is named, or it cannot be opened: reported later
        pass

import argparse
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from proxy import __version__
from proxy.cli.options import CommandParser
from proxy.plugin import AddsVerbs, Verb
from proxy.plugins import PluginError, find_foreign_verb, find_plugins

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as in shells

# The verbs of the main job, in the order in which they are needed; each is a file of the same name under cli/.
OWN_VERBS: Final = ("check", "serve", "drain", "validate", "explain", "schema", "completion")
# Verbs that a newcomer needs first, where what they belong to is installed.
FIRST_STEPS: Final = ("demo", "import")
_ADDED: Final = {verb: plugin for plugin in find_plugins(AddsVerbs) for verb in plugin.verbs}
VERBS: Final = tuple(dict.fromkeys((*filter(_ADDED.__contains__, FIRST_STEPS), *OWN_VERBS, *_ADDED)))

# Verbs that take the command of an MCP server only after `--`. `stdio` takes one as its last arguments.
TAKE_A_COMMAND: Final = ("serve",)

EPILOG: Final = """\
first steps:
  toolcall-proxy demo                          try it: sample tools and the proxy, with calls to paste
  toolcall-proxy import openapi URL            write a config for an HTTP API with an OpenAPI description
  toolcall-proxy check config.yaml             check a config; list each error with line and fix
  toolcall-proxy serve --config config.yaml    run the proxy

exit codes: 0 success, 1 problems found, 2 usage or configuration error
help on one verb: toolcall-proxy VERB --help
"""


def make_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """The argument parser with the given verbs registered."""
    top = CommandParser(
        prog="toolcall-proxy",
        description="Check the calls that LLM agents send to tools. Forward valid calls byte for byte, repair calls\n"
        "with only one possible meaning, and reject all others with an answer that the model can act on.",
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in verbs:
        load_verb(verb).register(subparsers)
        own = subparsers.choices[verb]
        own.set_defaults(verb_parser=own)
    return top


def load_verb(verb: str) -> Verb:
    """The module of a verb."""
    if verb in _ADDED:
        return _ADDED[verb].load_verb(verb)
    made: Verb = import_module(f"proxy.cli.{verb}")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (by default the process's own); gives its exit code. Raises SystemExit on wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # the installed command comes here without the first lines
        # Other verbs end at once. An exception would wait for the thread that reads the standard input of `stdio`.
        has_handler = words[:1] in (["serve"], ["demo"])
        signal.signal(signal.SIGTERM, _end_process if has_handler else signal.SIG_DFL)
    if words[:1] and words[0] not in VERBS and not words[0].startswith("-"):
        try:
            plugin = find_foreign_verb(words[0])
        except PluginError as error:
            make_parser(()).error(str(error))
        if plugin is not None:
            _ADDED[words[0]] = plugin
    declared = words[:1] if words[:1] and words[0] in (*VERBS, *_ADDED) else VERBS
    top = make_parser(declared)
    if not words:
        top.print_help(sys.stderr)
        raise SystemExit(EXIT_USAGE)
    if declared is VERBS and not words[0].startswith("-"):
        from proxy.config.mistakes import suggest_remark

        top.error(f"there is no verb {words[0]!r}{suggest_remark(words[0], VERBS)}\nverbs: {', '.join(VERBS)}")
    command = None
    if words[0] in TAKE_A_COMMAND and "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    args, unknown = top.parse_known_args(words, argparse.Namespace(command=command, held=HELD))
    if unknown:
        from proxy.cli.serve_flags import suggest_command

        hint = suggest_command(args) if words[0] in TAKE_A_COMMAND else ""
        args.verb_parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    try:
        return load_verb(args.verb).run(args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still buffered at the exit
        return 0


if __name__ == "__main__":
    sys.exit(main())
