"""`explain --route R` prints the repair rules that are on, each with a value and its result, and the generated code
that checks a route's calls."""

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
# The most characters of the changes of rules that are written below one another.
_WIDEST_CHANGE: Final = 60

EPILOG: Final = """\
examples:
  toolcall-proxy explain --config config.yaml --route /weather
  toolcall-proxy explain --config config.yaml --route '/tools/{tool}' --tool weather

The output shows each repair rule as VALUE -> RESULT with its name, then the code that checks a call. A comment above
each part of the code shows its place in the schema (a JSON Pointer after '#') and that part of the schema. Functions
named A... accept or reject a value. Functions named R... report the errors of a value.

exit codes: 0 success, 2 an error in the config, the route or the tool
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "explain",
        help="show the repair rules and the generated code of a tool",
        description="Print, for each tool of a route, the repair rules that are on and the code that the proxy "
        "generates from the tool's schema.",
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
    if policy.container is not None:
        yield "# a container: it takes no arguments, so there is nothing to judge"
        return
    if policy.check is None:
        yield "# validation: off: every call is forwarded unchanged"
        return
    from proxy.core.rules.rules import RULES

    check, rules = policy.check, policy.repair_in_force.rules
    yield f"# repair rules that are on: {', '.join(sorted(rules)) or 'none'}"
    changes = [(rule.change.replace("`", ""), name) for name, rule in RULES.items() if name in rules]
    width = min(max((len(change) for change, _ in changes), default=0), _WIDEST_CHANGE)
    yield from (f"#   {change:{width}}  {name}" for change, name in changes)
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
