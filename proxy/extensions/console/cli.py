"""`toolcall-proxy calls` shows the last calls of a running proxy, and with --follow the next ones.

A slow reader sees how many calls it missed (`... 312 calls missed`). After a restart of the proxy the stream continues.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from proxy.cli.drain import TOKEN_VARIABLE, OperatorPort, add_operator_arguments, write_refusal
from proxy.plugin import suggest_remark
from proxy.telemetry.console_log import format_call

EXIT_UNREACHABLE: Final = 1
EXIT_USAGE: Final = 2
# Seconds until a broken stream is opened again.
_AGAIN_AFTER: Final = 1.0

# The filters of `CallFilter`, each with its placeholder and its explanation.
FILTERS: Final = {
    "tool": ("NAME", "only calls of this tool; may be repeated"),
    "model": ("NAME", "only calls in the answers of this model; may be repeated"),
    "route": ("NAME", "only calls of this route; may be repeated"),
    "outcome": ("OUTCOME", "only calls with this outcome: delivered, repaired, refused ...; may be repeated"),
    "code": ("CODE", "only calls with this error code, such as VAL-010"),
    "path": ("POINTER", "only calls with an error or a repair at this JSON Pointer, such as /at"),
    "rule": ("RULE", "only calls with this repair, such as string_to_number"),
    "conversation": ("HASH", "only calls of this conversation; the log and the console show its hash"),
    "request_id": ("ID", "only the call with this request id"),
    "trace_id": ("ID", "only calls of this trace"),
    "text": ("TEXT", "only calls that contain all of these words, in upper or lower case"),
    "since": ("TIME", "only calls that are not older than TIME, such as 10m"),
}

EPILOG: Final = f"""\
examples:
  toolcall-proxy calls                                  the last 20 calls
  toolcall-proxy calls --follow --outcome refused       rejected calls as they arrive
  toolcall-proxy calls --since 10m --tool weather --json | jq .errors

If the config has an `admin.token`, pass it with --token-file or in the variable {TOKEN_VARIABLE}.

exit codes: 0 success, 1 no proxy answers at the address, or a wrong token, 2 usage error
"""


def register(subparsers: Any) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "calls",
        help="show the last calls of a running proxy, or follow them",
        description="Show the last calls that a running proxy has answered, one line each.",
        epilog=EPILOG,
    )
    verb.add_argument("-f", "--follow", action="store_true", help="also show new calls, until Ctrl-C")
    for name, (metavar, explanation) in FILTERS.items():
        how = "append" if explanation.endswith("may be repeated") else "store"
        verb.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, action=how, help=explanation)
    verb.add_argument(
        "-n", "--limit", metavar="N", type=int, default=20, help="show the last N calls first (default 20)"
    )
    verb.add_argument("--json", action="store_true", help="one JSON object per line")
    add_operator_arguments(verb)


def run(args: argparse.Namespace) -> int:
    """Shows the calls and gives the exit code."""
    try:
        port = OperatorPort(args.admin, args.token_file)
    except (OSError, ValueError) as error:
        print(f"calls: cannot read {args.token_file}: {error}", file=sys.stderr)
        return EXIT_USAGE
    query = {name: value for name in FILTERS if (value := getattr(args, name))}
    from proxy.plugin import OUTCOMES  # `--help` does without it

    if unknown := [name for name in args.outcome or () if name not in OUTCOMES and not name.startswith("~")]:
        hint = f"{suggest_remark(unknown[0], OUTCOMES)}\noutcomes: {', '.join(OUTCOMES)}"
        print(f"calls: unknown outcome {unknown[0]!r}{hint}", file=sys.stderr)
        return EXIT_USAGE
    try:
        status, found = port.ask("GET", f"/-/calls?{urlencode({**query, 'limit': args.limit}, doseq=True)}")
        if status != 200 or "calls" not in found:
            print(f"calls: {write_refusal(status, found)}", file=sys.stderr)
            return EXIT_USAGE if status == 400 else EXIT_UNREACHABLE
        for entry in reversed(found["calls"]):
            _show(entry, as_json=args.json)
        if args.tool and not found["calls"]:
            _explain_nothing(port, args.tool)
        if args.follow:
            query.pop("since", None)
            _follow(port, f"/-/calls?{urlencode(query, doseq=True)}", found["cursor"], as_json=args.json)
    except BrokenPipeError:  # the reader of our output has closed it
        raise
    except OSError as error:
        reason = f"{error.strerror or error}  (is the proxy running, and is this its operator's port, `admin.listen`?)"
        print(f"calls: {args.admin}: {reason}", file=sys.stderr)
        return EXIT_UNREACHABLE
    return 0


def _explain_nothing(port: OperatorPort, tools: list[str]) -> None:
    """Names on standard error the tools that no route serves. No route names tools that a server lists."""
    status, found = port.ask("GET", "/-/routes")
    known = {name for route in found.get("routes", ()) for name in route["tools"]} if status == 200 else set()
    for tool in tools:
        if known and tool not in known:
            print(f"calls: no route names a tool {tool!r}{suggest_remark(tool, known)}", file=sys.stderr)


def _show(entry: dict[str, Any], *, as_json: bool) -> None:
    print(
        json.dumps(entry, ensure_ascii=False) if as_json else format_call(entry, colors=sys.stdout.isatty()), flush=True
    )


def _follow(port: OperatorPort, path: str, place: str, *, as_json: bool) -> None:
    """Shows events until Ctrl-C. Opens the stream again when it ends, because the proxy may be restarting."""
    while True:
        try:
            answer = port.follow(path, place)
            if answer.status != 200:
                raise ConnectionError(f"the stream is refused with status {answer.status}")
            for event in read_events(answer):
                place = event.get("id", place)
                _show_event(event, as_json=as_json)
        except BrokenPipeError:  # the reader of our output has closed it
            raise
        except (http.client.HTTPException, ConnectionError) as error:
            print(f"calls: {str(error) or 'the stream broke off'}; reconnecting", file=sys.stderr)
        time.sleep(_AGAIN_AFTER)


def _show_event(event: dict[str, str], *, as_json: bool) -> None:
    data = json.loads(event.get("data", "{}"))
    match event.get("event"):
        case "call":
            _show(data, as_json=as_json)
        case "lost":
            missed = data.get("missed")
            print(f"... {missed if missed is not None else 'some'} calls missed", file=sys.stderr)
        case "bye":
            print("... the proxy shuts down", file=sys.stderr)
        case "reload" | "breaker" | "drain":
            fields = " ".join(f"{name}={value}" for name, value in data.items() if value and name != "at")
            print(f"... {event['event']} {fields}", file=sys.stderr)
        case _:  # an event of a later version
            pass


def read_events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """The events in the lines of a stream, each as its fields; comments are left out."""
    event: dict[str, str] = {}
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            if event:
                yield event
            event = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(":")
            event[name] = value.removeprefix(" ")
