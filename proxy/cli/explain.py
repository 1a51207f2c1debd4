"""`explain --route R` prints the generated code that checks a route's calls, and the repair rules that are on."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.check.validation import Check
    from proxy.core.contract.policy import ToolPolicy

# The most characters of a schema shown after its place.
_WIDEST: Final = 100

EPILOG: Final = """\
examples:
  toolcall-proxy explain --config config.yaml --route /weather
  toolcall-proxy explain --config config.yaml --route '/tools/{tool}' --tool weather

The code is what runs. A comment above each part names the place in the schema it was written from, as a JSON Pointer
behind '#', and what the schema says there. Functions A judge a value, R report what is wrong with one, `repair` repairs
the obvious cases.

exit codes: 0 all well, 2 the config, the route or the tool is wrong
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "explain",
        help="the code generated from a tool's schema, and the repair rules that are on",
        description="Prints, for each tool of a route, the repair rules that are on and the code generated from its "
        "schema, with the place in the schema above each part.",
        epilog=EPILOG,
    )
    verb.add_argument("-c", "--config", required=True, metavar="CONFIG", help="the config file")
    verb.add_argument("-r", "--route", required=True, metavar="ROUTE", help="the route's name or path")
    verb.add_argument("-t", "--tool", metavar="TOOL", help="one tool of the route (default: all of them)")


def run(args: argparse.Namespace) -> int:
    """Explains `args.tool` on `args.route` of `args.config` and gives the exit code."""
    from proxy.cli.validate import find_checking_target
    from proxy.config.load import load
    from proxy.config.mistakes import ConfigError, suggest_remark
    from proxy.routing import build_routes

    try:
        found = find_checking_target(build_routes(load(args.config, os.environ).config), args.route)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if isinstance(found, str):
        print(f"explain: {found}", file=sys.stderr)
        return 2
    route = found.route
    wanted = args.tool or found.params.get(route.shape.tool_param or "")
    if wanted is not None and wanted not in route.tools:
        problem = f"no tool {wanted!r} on route {route.name!r}{suggest_remark(wanted, route.tools)}"
        print(f"explain: {problem}\ntools: {', '.join(route.tools)}", file=sys.stderr)
        return 2
    for name in [wanted] if wanted is not None else route.tools:
        print(f"# === route {route.name}, tool {name}")
        print(*_explain_tool(route.tools[name]), sep="\n")
    return 0


def _explain_tool(policy: ToolPolicy) -> Iterator[str]:
    """The explanation of one tool, as comments and code."""
    if policy.container is not None:
        yield "# a container: it takes no arguments, so there is nothing to judge"
        return
    if policy.check is None:
        yield "# validation: off: every call goes on as it came"
        return
    check, rules = policy.check, policy.repair_in_force.rules
    yield f"# repair rules that are on: {', '.join(sorted(rules)) or 'none'}"
    if policy.repair.drop_keys:
        yield f"# keys that drop_unknown may remove: {', '.join(sorted(policy.repair.drop_keys))}"
    yield f"\n# --- judge and report\n{_add_keywords(check, check.source())}"


def _add_keywords(check: Check, code: str) -> str:
    """The code, with the keywords of the schema that hold no subschemas appended to each comment that names a place in
    it, as shortened JSON."""
    from proxy.core.json.jsontext import dumps
    from proxy.core.schema.drafts import LISTS, MAPS, SINGLE

    elsewhere = {*LISTS, *MAPS, *SINGLE, "description", "title"}
    keywords: dict[str, str] = {}
    for node in check.schemas.nodes():
        own = {keyword: item for keyword, item in node.keywords.items() if keyword not in elsewhere}
        text = dumps(own).decode() if own else ""
        keywords[node.uri] = text if len(text) <= _WIDEST else text[:_WIDEST] + " ..."
    lines = []
    for line in code.splitlines():
        head, mark, uri = line.partition("# ")
        words = keywords.get(uri, "") if mark and not head.strip() else ""
        lines.append(f"{line}: {words}" if words else line)
    return "\n".join(lines) + "\n" if lines else ""
