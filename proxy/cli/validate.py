"""`validate --route R BODY` is a dry run of one call through a route: it prints decision, repairs and answer."""

from __future__ import annotations

import argparse
import json
import os
import sys
from textwrap import indent
from typing import TYPE_CHECKING, Final

from proxy.cli.check_formats import print_unusable
from proxy.cli.options import add_header_option

if TYPE_CHECKING:
    from proxy.cli.dryrun import Verdict
    from proxy.config.model import Config
    from proxy.core.model.values import CheckedCall, Fields, JsonValue
    from proxy.routing import DryTarget, Route, RouteTable

EPILOG: Final = """\
examples:
  toolcall-proxy validate --config config.yaml --route /weather '{"lat": "48.85", "lon": 2.35}'
  toolcall-proxy validate --config config.yaml --route '/tools/{tool}' --tool weather '{"lat": 48.85}'
  toolcall-proxy validate --config config.yaml --route '/trips/7?notify=true' --method PATCH '{"title": "Rome"}'
  echo '{"lat": 48.85}' | toolcall-proxy validate --config config.yaml --route /weather -

Nothing is sent or stored. The call counts as the first of its conversation: an error is attempt 1.
--format json prints one object (schemas/verbs/validate.schema.json), with the same exit codes.

exit codes: 0 the call would be forwarded, 1 it would be rejected, 2 an error in the config or the route
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "validate",
        help="try one call without sending it",
        description="Validate one call as `serve` would, without sending it. Print the decision and repairs,\n"
        "then the request for the tool or the answer for the model.",
        epilog=EPILOG,
    )
    verb.add_argument("-c", "--config", required=True, metavar="CONFIG", help="the config file")
    verb.add_argument(
        "-r", "--route", required=True, metavar="ROUTE", help="the route's name or path, or a request's path and query"
    )
    verb.add_argument("-t", "--tool", metavar="TOOL", help="the tool, if the path of the route contains {tool}")
    verb.add_argument(
        "-X", "--method", metavar="METHOD", default="", help="the request's method, if the path has several"
    )
    add_header_option(verb, "a header of the request, if the operation has header parameters; may be repeated", "-H")
    verb.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    verb.add_argument(
        "body", metavar="BODY", nargs="?", default="", help="the body of the request; - reads it from standard input"
    )


def run(args: argparse.Namespace) -> int:
    """Decides `args.body` on `args.route` of `args.config`, and gives the exit code."""
    from proxy.cli.dryrun import DryRun, ForwardedCall
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError
    from proxy.routing import build_routes

    try:
        config = load(args.config, os.environ).config
        table = build_routes(config)
    except ConfigError as error:
        return print_unusable(args.format, str(error), error.mistakes)
    found = _find_target(table, args.route, args.tool, args.method.upper())
    if isinstance(found, str):
        return print_unusable(args.format, f"validate: {found}")
    body = sys.stdin.buffer.read() if args.body == "-" else args.body.encode("utf-8", "surrogateescape")
    with DryRun() as dry:
        request = found.request(body, {"tool": args.tool} if args.tool else {}, tuple(args.header))
        verdict = dry.judge(request, found.route.adapter, found.route.shape, found.route.tools)
    checked = verdict.checked if isinstance(verdict, ForwardedCall) else None
    added = {} if checked is None else _preview_call(config, found.route, request.headers, checked)
    return (_show_json if args.format == "json" else _show_text)(found.route, verdict, added)


def _preview_call(config: Config, route: Route, headers: Fields, checked: CheckedCall) -> dict[str, JsonValue]:
    """Returns the additions of plugins about a call that would be forwarded, by name. A token of the route names the
    caller, as in `serve`."""
    from proxy.call_record import CallRecord
    from proxy.plugins import list_used
    from proxy.server.http.access import find_holder

    token = "" if route.auth is None or headers.get("authorization") is None else find_holder(route.auth, headers)
    if not isinstance(token, str):
        print(f"validate: note: the route refuses this token: {token.message}", file=sys.stderr)
    record = CallRecord("dry-run", route.name, notes={"client.token": token if isinstance(token, str) else ""})
    previews = [plugin.preview_call(config, record, headers, checked) for plugin in list_used(config)]
    return {name: value for preview in previews for name, value in preview.items()}


def _find_target(table: RouteTable, wanted: str, tool: str | None, method: str) -> DryTarget | str:
    """The route and the request that the arguments mean, or a message about what to write instead."""
    found = find_checking_target(table, wanted, method)
    if isinstance(found, str):
        return found
    route = found.route
    if tool not in (None, route.shape.tool) and not route.shape.tool_param:
        shape = f"always calls {route.shape.tool!r}" if route.shape.tool else "takes the tool from the body"
        return f"the route {route.name!r} {shape}: leave --tool out"
    if route.shape.tool_param and not tool and route.shape.tool_param not in found.params:
        return f"the route {route.name!r} takes the tool from its path: add --tool NAME ({', '.join(route.tools)})"
    return found


def find_checking_target(table: RouteTable, wanted: str, method: str = "") -> DryTarget | str:
    """Finds the route that judges calls by its name, its path or a request target; otherwise returns a remedy."""
    from proxy.config.mistakes import suggest_remark
    from proxy.routing import MethodNotAllowed, find_dry_target

    found = find_dry_target(table, wanted, method)
    if isinstance(found, MethodNotAllowed):
        return f"{wanted.partition('?')[0]} takes {', '.join(found.methods)}: say which with --method"
    if found is None:
        known = list(dict.fromkeys(text for route in table.routes for text in (route.name, route.path)))
        return f"no route {wanted!r}{suggest_remark(wanted, known)}\nroutes: {', '.join(known)}"
    route = found.route
    if route.kind == "passthrough":
        return f"the route {route.name!r} relays everything and judges nothing"
    if route.learn is not None:
        return f"the route {route.name!r} learns its tools while it serves: ask the running proxy (POST /-/validate)"
    return found


def _show_text(route: Route, verdict: Verdict, added: dict[str, JsonValue]) -> int:
    from proxy.adapters import find_adapter
    from proxy.cli.dryrun import ForwardedCall, list_repairs
    from proxy.core.envelope.feedback import write_feedback
    from proxy.core.json.jsontext import dumps

    if isinstance(verdict, ForwardedCall):
        print(f"decision: forward to {route.upstream or 'nobody: the arguments are the answer'}")
        repairs = [f"{rule} at {path or 'the root'}" for rule, path in list_repairs(verdict.repairs)]
        print("repairs:", ", ".join(repairs) or "none")
        print("arguments:", verdict.arguments.decode("utf-8", "replace"))
        for name, value in added.items():
            for each in value if isinstance(value, list) else [value]:
                print(f"{name}: {dumps(each).decode()}")
        return 0
    reply = find_adapter(route.adapter).encode(verdict, route.envelope, route.error_status, detail=route.detail)
    print(f"decision: reject, {verdict.failure.code}")
    print(f"the model reads:\n\n{indent(write_feedback(verdict), '  ', lambda line: bool(line.strip()))}\n")
    print(f"answer: HTTP {reply.status}")
    print(json.dumps(json.loads(reply.body), indent=2, ensure_ascii=False))
    return 1


def _show_json(route: Route, verdict: Verdict, added: dict[str, JsonValue]) -> int:
    """Prints the result as one JSON object (`schemas/verbs/validate.schema.json`) and gives the exit code."""
    from proxy.adapters import find_adapter
    from proxy.cli.dryrun import ForwardedCall, list_repairs, read_answer
    from proxy.core.envelope.feedback import write_feedback
    from proxy.core.json.jsontext import dumps, parse
    from proxy.core.model.values import JsonProblem

    shown: dict[str, JsonValue]
    if isinstance(verdict, ForwardedCall):
        value = parse(verdict.arguments)
        shown = {
            "decision": "forward",
            "route": route.name,
            "upstream": route.upstream or None,
            "arguments": verdict.arguments.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value,
            "repairs": [{"rule": rule, "path": path} for rule, path in list_repairs(verdict.repairs)],
            **({"added": added} if added else {}),
        }
    else:
        reply = find_adapter(route.adapter).encode(verdict, route.envelope, route.error_status, detail=route.detail)
        errors = read_answer(verdict)["error"]["errors"]
        shown = {
            "decision": "reject",
            "route": route.name,
            "code": verdict.failure.code.name,
            "errors": [{key: each[key] for key in ("code", "path", "message")} for each in errors],
            "content": write_feedback(verdict),
            "answer": {"status": reply.status, "body": parse(reply.body)},
        }
    print(dumps(shown).decode())
    return 0 if shown["decision"] == "forward" else 1
