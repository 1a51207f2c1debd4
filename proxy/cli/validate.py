"""`validate --route R BODY`: a dry run of one call through a configured route: decision, repairs, answer."""

from __future__ import annotations

import argparse
import json
import os
import sys
from textwrap import indent
from typing import TYPE_CHECKING, Final

from proxy.cli.helptext import HelpText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.cli.dryrun import Verdict
    from proxy.routing import Route, RouteTable

EPILOG: Final = """\
examples:
  toolcall-proxy validate --config config.yaml --route /weather '{"lat": "48.85", "lon": 2.35}'
  toolcall-proxy validate --config config.yaml --route '/tools/{tool}' --tool weather '{"lat": 48.85}'
  echo '{"lat": 48.85}' | toolcall-proxy validate --config config.yaml --route /weather -

Nothing is sent and nothing is remembered: the call is judged as the first of its conversation.

exit codes: 0 the call would be forwarded, 1 it would be refused, 2 the config or the route is wrong
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "validate",
        help="dry run of one call: what would be sent, or what the model would be told",
        description="Judges one call as the server would, without sending it: prints decision and repairs, then "
        "what would be sent, or the answer the model would get.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    verb.add_argument("-c", "--config", required=True, metavar="CONFIG", help="the config file")
    verb.add_argument("-r", "--route", required=True, metavar="ROUTE", help="the route's name or path")
    verb.add_argument("-t", "--tool", metavar="TOOL", help="the tool, where the route's path holds {tool}")
    verb.add_argument("body", metavar="BODY", help="the body of the request; - reads it from standard input")


def run(args: argparse.Namespace) -> int:
    """Judges `args.body` on `args.route` of `args.config` and gives the exit code."""
    from proxy.cli.dryrun import DryRun
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError
    from proxy.core.model import RawRequest
    from proxy.routing import build_routes

    try:
        table = build_routes(load(args.config, os.environ).config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    found = _route(table, args.route, args.tool)
    if isinstance(found, str):
        print(f"validate: {found}", file=sys.stderr)
        return 2
    route, params = found
    body = sys.stdin.buffer.read() if args.body == "-" else args.body.encode("utf-8", "surrogateescape")
    headers = (("content-type", "application/json"), ("x-conversation-id", "dry-run"))
    with DryRun() as dry:
        request = RawRequest("POST", route.path, "", headers, body, params, "")
        verdict = dry.judge(request, route.adapter, route.shape, route.tools)
    return _show(route, verdict)


def _route(table: RouteTable, wanted: str, tool: str | None) -> tuple[Route, Mapping[str, str]] | str:
    """The route that is meant and its path parameters, or what to write instead."""
    found = judging_route(table, wanted)
    if isinstance(found, str):
        return found
    route, params = found[0], {**found[1], **({"tool": tool} if tool else {})}
    if tool not in (None, route.shape.tool) and not route.shape.tool_param:
        told = f"always calls {route.shape.tool!r}" if route.shape.tool else "takes the tool from the body"
        return f"the route {route.name!r} {told}: leave --tool out"
    if route.shape.tool_param and route.shape.tool_param not in params:
        return f"the route {route.name!r} takes the tool from its path: add --tool NAME ({', '.join(route.tools)})"
    return route, params


def judging_route(table: RouteTable, wanted: str) -> tuple[Route, Mapping[str, str]] | str:
    """The route of this name or path that judges calls, with the parameters in the path, or what to write instead."""
    from proxy.config.mistakes import remark
    from proxy.routing import Match

    params: Mapping[str, str] = {}
    route = next((route for route in table.routes if wanted in (route.name, route.path)), None)
    if route is None and isinstance(match := table.match("POST", wanted), Match):
        route, params = match.route, match.params
    if route is None:
        known = list(dict.fromkeys(text for route in table.routes for text in (route.name, route.path)))
        return f"no route {wanted!r}{remark(wanted, known)}\nroutes: {', '.join(known)}"
    if route.kind == "passthrough":
        return f"the route {route.name!r} relays everything and judges nothing"
    if route.learn is not None:
        return f"the route {route.name!r} learns its tools while it serves: ask the running proxy (POST /-/validate)"
    return route, params


def _show(route: Route, verdict: Verdict) -> int:
    """Prints what became of the call and gives the exit code."""
    from proxy.adapters import ADAPTERS
    from proxy.cli.dryrun import Forwarded, pairs
    from proxy.core.sentence import compose

    if isinstance(verdict, Forwarded):
        print(f"decision: forward to {route.upstream or 'nobody: the arguments are the answer'}")
        print(
            "repairs:", ", ".join(f"{rule} at {path or 'the root'}" for rule, path in pairs(verdict.repairs)) or "none"
        )
        print("arguments:", verdict.arguments.decode("utf-8", "replace"))
        return 0
    reply = ADAPTERS[route.adapter].encode(verdict, route.envelope, route.error_status)
    print(f"decision: reject, {verdict.failure.code}")
    print(f"the model reads:\n\n{indent(compose(verdict), '  ', lambda line: bool(line.strip()))}\n")
    print(f"answer: HTTP {reply.status}")
    print(json.dumps(json.loads(reply.body), indent=2, ensure_ascii=False))
    return 1
