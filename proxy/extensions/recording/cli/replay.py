"""`replay CASES.jsonl` judges calls by the serving code: each by the schema in its own line, or, with `--config`,
recorded calls by a config, through their own routes.

Lines are read, judged and written one by one, so the input may have any length. Equal schemas are compiled once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from proxy.core.model.value_class import value_class
from proxy.extensions.recording.cli.recorded_input import RecordedLines, ReplayInput, load_tools, open_input
from proxy.plugin import ExtendsVerbs
from proxy.plugins import find_plugins

if TYPE_CHECKING:
    from proxy.cli.dryrun import DryRun, Verdict
    from proxy.config.model import RepairSettings
    from proxy.core.model.values import JsonValue
    from proxy.core.schema.drafts import SchemaError
    from proxy.extensions.recording.comparing import ServedTools
    from proxy.extensions.recording.line import RecordedLine
    from proxy.extensions.second_judge.cli import SecondOpinions
    from proxy.routing import Route


LEVELS: Final = ("off", "basic", "standard", "lenient")
_ON: Final = {"on": True, "off": False}

EPILOG: Final = """\
each line of the input is one call:
  {"id": 1, "schema": {"properties": {"lat": {"type": "number"}}}, "sent": "{\\"lat\\": \\"48.85\\"}"}
`sent` is the raw text of the arguments, exactly as the model wrote it. `tool` (a name for the answer) is optional.

each line of the output is a result:
  {"id": 1, "decision": "forward", "arguments": {"lat": 48.85},
   "repairs": [{"rule": "string_to_number", "path": "/lat"}], "errors": [], "content": null}
If the call is rejected, `arguments` is null, and `content` is the text for the model.

examples:
  toolcall-proxy replay calls.jsonl > results.jsonl
  toolcall-proxy replay --level lenient --rule yes_no=off calls.jsonl.gz
  zcat calls.jsonl.gz | toolcall-proxy replay - | grep '"reject"'

with --second-opinion, a result has `second_opinion` if jsonschema or fastjsonschema disagrees with the proxy on `sent`:
  {"verdict": "invalid", "judge": "jsonschema", "place": "/properties/lat/maximum"}

with --config, each line is a call that `record` has written. It is validated through its route, as the first call of
its conversation, without hooks and corrections. The config decides, so --level, --rule and --second-opinion are errors:
  toolcall-proxy replay --config config.yaml calls.jsonl > results.jsonl

--format text prints a readable line for each call. With --config, a table of all results goes to stderr. Lines without
a call are also reported there. schemas/verbs/replay.schema.json describes the lines of JSON.

exit codes: 0 success, 1 a result differs from the recorded one, or the validators differ, 2 usage or config error, or
a line without a call
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "replay",
        help="validate calls from a file, one JSON line each",
        description="Validate calls, each with the schema in its line, and print one line of JSON for each.",
        epilog=EPILOG,
    )
    verb.add_argument("cases", metavar="CASES.jsonl", help="the calls, also gzipped; - for standard input")
    verb.add_argument("--level", choices=LEVELS, help="the repair level (default: standard)")
    verb.add_argument(
        "--rule",
        metavar="NAME=on|off",
        action="append",
        default=[],
        help="switch one repair rule on or off at every level; may be repeated",
    )
    verb.add_argument("--config", metavar="CONFIG", help="validate calls that `record` has written, with this config")
    verb.add_argument(
        "--format", choices=("text", "json"), default="json", help="JSON lines, or readable lines (default: json)"
    )
    verb.add_argument(
        "--second-opinion",
        action="store_true",
        help="also validate with jsonschema or fastjsonschema, and report where they disagree",
    )


def run(args: argparse.Namespace) -> int:
    """Decides every case of the input and gives the exit code."""
    if args.config is not None:
        flags = {"--level": args.level, "--rule": args.rule, "--second-opinion": args.second_opinion}
        if given := [flag for flag, value in flags.items() if value]:
            print(f"replay: {given[0]} does not go with --config, which decides it: leave one out", file=sys.stderr)
            return 2
        return replay_recorded(args.config, args.cases, args.format)
    if args.second_opinion and not any(
        "second-opinion" in each.list_check_flags() for each in find_plugins(ExtendsVerbs)
    ):
        print("replay: --second-opinion needs the plugin `second_judge`, which is not installed", file=sys.stderr)
        return 2
    from proxy.cli.dryrun import DryRun
    from proxy.config.model import RepairSettings

    switches = _read_switches(args.rule)
    if isinstance(switches, str):
        print(f"replay: {switches}", file=sys.stderr)
        return 2
    try:
        source = open_input(args.cases)
    except OSError as error:
        print(f"replay: cannot read {args.cases}: {error.strerror}", file=sys.stderr)
        return 2
    with DryRun() as dry:
        replayer = Replayer(dry, RepairSettings(args.level or "standard", switches))
        if not args.second_opinion:
            return _replay(source, replayer, sys.stdout.buffer, args.format)
        from proxy.extensions.second_judge.cli import SecondOpinions

        with SecondOpinions() as replayer.second:
            code = _replay(source, replayer, sys.stdout.buffer, args.format)
        print(f"replay: the judges differ on {replayer.differing} of the calls", file=sys.stderr)
        return code or int(replayer.differing > 0)


def _read_switches(words: list[str]) -> dict[str, bool] | str:
    """Rule -> whether it is on, as the `--rule` arguments say, or a message about a wrong one."""
    from proxy.core.rules.rules import RULES
    from proxy.plugin import explain_rule

    switches = {}
    for word in words:
        name, _, state = word.partition("=")
        if state not in _ON:
            return f"--rule {word}: write NAME=on or NAME=off"
        if name not in RULES:
            message, hint = explain_rule(name, f"there is no rule {name!r}", "")
            return f"--rule {word}: {message}" + (f"  ({hint})" if hint else "")
        switches[name] = _ON[state]
    return switches


# --- reading ----------------------------------------------------------------------------------------------------------
@value_class
class RecordedCall:
    """One call to judge. `identity` is the line's `id`, any JSON value."""

    identity: Any
    schema: Any
    sent: bytes
    tool: str


def read_case(line: bytes) -> RecordedCall | str:
    """The case in a line, or the reason why it has none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(found, dict):
        return 'an object is wanted: {"id": ..., "schema": ..., "sent": "..."}'
    if "fate" in found and "schema" not in found:
        return "`record` wrote this line: judge it by the config that served it, with --config CONFIG"
    lacking = [key for key in ("id", "schema", "sent") if key not in found]
    if lacking:
        return f"{' and '.join(map(repr, lacking))} missing"
    if not isinstance(found["sent"], str):
        return "'sent' must be the text of the arguments, as a JSON string"
    if not isinstance(found.get("tool", ""), str):
        return "'tool' must be a name"
    # A lone surrogate, which JSON text can spell, becomes the invalid UTF-8 that the server would refuse.
    return RecordedCall(
        found["id"], found["schema"], found["sent"].encode("utf-8", "surrogatepass"), found.get("tool", "tool")
    )


def _replay(source: ReplayInput, replayer: Replayer, output: BinaryIO, form: str) -> int:
    lines = RecordedLines(source, "replay", read_case)
    for number, case in lines:
        output.write(_write_row(replayer.judge(case), number, form))
    output.flush()
    if lines.bad and lines.found_any:
        skipped = f"{lines.bad} of {lines.number} lines are not cases and were left out"
        print(f"replay: {skipped}  (toolcall-proxy replay --help shows one)", file=sys.stderr)
    return 2 if lines.has_failed else 0


def _write_row(row: Mapping[str, Any], number: int, form: str) -> bytes:
    """Returns a judged call as a line of output. It is JSON, or text with the number of the input's line, the decision
    and each error's or repair's code and place."""
    from proxy.core.json.jsontext import dumps

    if form == "json":
        return dumps(row) + b"\n"
    # Cases have objects, recorded calls pairs.
    found = [
        tuple(each.values()) if isinstance(each, dict) else each for each in row.get("errors") or row.get("repairs", ())
    ]
    parts = [f"line {number}", row.get("tool", ""), row["decision"] or "not judged"]
    parts.append(", ".join(f"{each[0]} at {each[1] or 'the root'}" for each in found))
    if "second_opinion" in row:
        parts.append(f"second opinion: {row['second_opinion']['verdict']} by {row['second_opinion']['judge']}")
    if row.get("differs"):
        parts.append("differs from the recorded verdict")
    return "  ".join(filter(None, parts)).encode("utf-8", "replace") + b"\n"


# --- judging ----------------------------------------------------------------------------------------------------------
class Replayer:
    """Judges cases at one repair level. `second`, if set, judges each case as sent, too; `differing` counts its other
    verdicts."""

    def __init__(self, dry: DryRun, repair: RepairSettings) -> None:
        self._dry = dry
        self.second: SecondOpinions | None = None
        self.differing = 0
        self._route = lru_cache(maxsize=4096)(lambda schema, tool: _make_route(json.loads(schema), tool, repair))

    def judge(self, case: RecordedCall) -> dict[str, Any]:
        """Judges a case; gives the JSON object of its output line."""
        from proxy.core.model.values import Fields, RawRequest
        from proxy.core.schema.drafts import SchemaError

        try:
            route = self._route(json.dumps(case.schema), case.tool)
        except SchemaError as error:
            return _describe_unusable(case, error)
        headers = (("content-type", "application/json"), ("x-conversation-id", "replay"))
        request = RawRequest("POST", "/", "", Fields(headers), case.sent, {}, "")
        row = _make_row(case, self._dry.judge(request, route.adapter, route.shape, route.tools))
        return row if self.second is None else row | self._second_opinion(self.second, case, route)

    def _second_opinion(self, second: SecondOpinions, case: RecordedCall, route: Route) -> dict[str, Any]:
        """The second judge's verdict on the sent arguments, where it differs."""
        from proxy.core.json.jsontext import parse
        from proxy.core.model.values import JsonProblem

        value, check = parse(case.sent), route.tools[case.tool].check
        if isinstance(value, JsonProblem) or check is None or (opinion := second.find_difference(check, value)) is None:
            return {}
        self.differing += 1
        difference = {"verdict": opinion.verdict.value, "judge": opinion.judge, "place": opinion.place}
        return {"second_opinion": difference}


def _make_route(schema: Any, tool: str, repair: RepairSettings) -> Route:
    """A route with one tool. Raises SchemaError for an unusable schema."""
    from proxy.config.model import Config, Policy, RouteEntry, ToolConfig, ToolSchema
    from proxy.config.policies import make_repair_policy
    from proxy.core.rules.rules import TEXT_RULES
    from proxy.core.schema.dialects import normalise
    from proxy.extensions.recording.comparing import rewrite_numeric_bounds
    from proxy.plugin import CallShape, compile_check
    from proxy.routing import build_routes

    value = rewrite_numeric_bounds(normalise(schema)[0])
    policy = Policy(repair=repair)
    served = ToolConfig(tool, "", ToolSchema(value, compile_check(value), "replay"), None, policy)
    shape = CallShape(tool=tool, text_repairs=make_repair_policy(policy).rules & TEXT_RULES)
    entry = RouteEntry("replay", "/", ("POST",), "call", "plain", shape, policy, {tool: served})
    return build_routes(Config((entry,))).routes[0]


def _make_row(case: RecordedCall, verdict: Verdict) -> dict[str, Any]:
    from proxy.cli.dryrun import ForwardedCall, list_repairs, read_answer
    from proxy.core.json.jsontext import parse

    if isinstance(verdict, ForwardedCall):
        repairs = [{"rule": rule, "path": path} for rule, path in list_repairs(verdict.repairs)]
        return _make_line(case, "forward", arguments=parse(verdict.arguments), repairs=repairs)
    answer = read_answer(verdict)
    errors = [{key: error[key] for key in ("code", "path", "message")} for error in answer["error"]["errors"]]
    return _make_line(case, "reject", errors=errors, content=answer["content"])


def _describe_unusable(case: RecordedCall, error: SchemaError) -> dict[str, Any]:
    from proxy.core.json.jsontext import format_pointer
    from proxy.core.schema.dialects import suggest_remedy

    path = format_pointer(error.path)
    where = f" (at {path})" if path else ""
    hint = suggest_remedy(case.schema, error.path)
    content = f"The schema of tool '{case.tool}' cannot be used{where}: {error.message}{f' ({hint})' if hint else ''}"
    errors = [{"code": "INVALID_SCHEMA", "path": path, "message": error.message}]
    return _make_line(case, "reject", errors=errors, content=content)


def _make_line(case: RecordedCall, decision: str, **found: Any) -> dict[str, Any]:
    return {
        "id": case.identity,
        "decision": decision,
        "arguments": found.get("arguments"),
        "repairs": found.get("repairs", []),
        "errors": found.get("errors", []),
        "content": found.get("content"),
    }


# --- recorded calls of a config (`--config`) --------------------------------------------------------------------------
EXIT_DIFFERS: Final = 1
EXIT_USAGE: Final = 2
_FEW: Final = 20


def replay_recorded(config: str, name: str, form: str) -> int:
    """Judges every recorded line by a config; gives the exit code: 1 where a verdict differs from the recorded one."""
    from proxy.extensions.recording.line import read_line
    from proxy.plugin import ConfigError

    try:
        tools, source = load_tools(config), open_input(name)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"replay: cannot read {name}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    lines, counts = RecordedLines(source, "replay", read_line), Counter[tuple[str, str, str]]()
    for number, line in lines:
        row, what, place = judge_line(line, tools)
        counts[line.tool, what, place] += 1
        sys.stdout.buffer.write(_write_row({"line": number, **row}, number, form))
    sys.stdout.buffer.flush()
    print(write_table(counts), file=sys.stderr)
    differing = sum(times for (_, what, _), times in counts.items() if what.startswith("now "))
    return EXIT_USAGE if lines.has_failed else EXIT_DIFFERS if differing else 0


def judge_line(line: RecordedLine, tools: ServedTools) -> tuple[dict[str, JsonValue], str, str]:
    """Judges a recorded call: the object of its output line, its fate in words, and the first place with an error or a
    repair."""
    from proxy.core.model.values import Reject
    from proxy.extensions.recording.line import decide_sent, differs, explain_refusal, reduce_decision, show_fate
    from proxy.plugin import write_feedback

    shown: dict[str, JsonValue] = {"route": line.route, "tool": line.tool}
    known = tools.get((line.route, line.tool))
    if known is None:
        return {**shown, "decision": None}, "no route", ""
    if line.sent is None:
        return {**shown, "decision": None}, "lost", ""
    decision = decide_sent(line.sent, *known)
    fate = reduce_decision(decision)
    shown |= show_fate(fate)
    shown["content"] = None
    if isinstance(decision, Reject):
        shown["content"] = write_feedback(explain_refusal(decision.failure, known[1]))
    what = "refused" if not fate.forwarded else "repaired" if fate.repairs else "forwarded"
    place = next((f"{path or 'arguments'} {code}" for code, path in fate.errors or fate.repairs), "")
    if differs(line.fate, fate):
        shown["differs"] = True
        what = f"now {what}"
    return shown, what, place


def write_table(counts: Counter[tuple[str, str, str]]) -> str:
    """The closing table: tool, fate and place of calls with their number, the most frequent first."""
    rows = [("tool", "fate", "place", "calls")]
    rows += [(tool, what, place, f"{times:,}") for (tool, what, place), times in counts.most_common(_FEW)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    left = len(counts) - _FEW
    return "\n".join(lines + ([f"... and {left} more"] if left > 0 else []) + [f"{counts.total():,} calls"])
