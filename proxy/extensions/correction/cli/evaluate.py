"""`evaluate` sends a fixed set of calls through the proxy without repairs, with them, and with a model's corrections,
and prints the share that arrives right.

The set is bundled; `--file` adds a set of the user's. Every call goes through a real proxy in this process to the tools
of the set; only the model is the operator's. Each result is written to a file at once, so an interrupted run continues
where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from proxy.core.model.value_class import value_class
from proxy.plugin import CommandParser, split_url
from proxy.plugins import list_plugins

if TYPE_CHECKING:
    from proxy.extensions.correction.evaluation import EvaluatedCall, EvaluationTools

# The measured modes, in order: name -> (the policy keys of its routes, the share that the seeds claim for it).
MODES: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "off": ({"repair": "off"}, "70 %"),
    "layer 2": ({"repair": "standard"}, "95 %"),
    "layer 3": ({"repair": "standard", "correct": {"validation_feedback": "on"}}, "99 %"),
    "layer 4": (
        {"repair": "standard", "correct": {"validation_feedback": "on", "semantic_retry": "on", "trajectory": "on"}},
        "–",
    ),
}
_COMPLETIONS: Final = "/chat/completions"
_COLUMNS: Final = (
    "", "arrives right", "took wrong arguments", "questions", "not answered", "tokens per question", "median ms",
    "p95 ms", "the seeds' claim",
)  # fmt: skip
# How long a line of the proxy's log may take, in seconds.
_LINE: Final = 10.0

EPILOG: Final = """\
examples:
  toolcall-proxy evaluate --endpoint http://127.0.0.1:11434/v1 --model qwen3:4b
  toolcall-proxy evaluate --endpoint https://models.example.com/v1 --model small --key-env MODEL_KEY --file mine.jsonl

The endpoint must speak OpenAI's chat completions and needs --model. Without --endpoint, only repairs are measured. Each
line of --file is one case in JSON (docs/correction.md). A second run with the same --out continues the first one.

exit codes: 0 success, 2 an error in the arguments, the file of cases or the endpoint's address
"""


@value_class
class EvaluationResult:
    """The result of one case in one mode. `right`: the tool received only right arguments, or nothing if no
    arguments are right; `wrong`: it received arguments that are not right."""

    key: str
    mode: str
    case: str
    kind: str
    right: bool
    wrong: bool
    questions: int
    unanswered: int
    tokens: int
    milliseconds: float


def register(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "evaluate",
        help="measure the benefit of repairs and corrections",
        description="Send sample calls through repairs and a model's corrections; print how many arrive correctly.",
        epilog=EPILOG,
    )
    verb.add_argument("--endpoint", metavar="URL", help="the model for corrections, such as http://127.0.0.1:11434/v1")
    verb.add_argument("--model", metavar="NAME", default="", help="the model's name at the endpoint")
    verb.add_argument("--key-env", metavar="NAME", help="the environment variable that holds the endpoint's key")
    verb.add_argument("--kind", metavar="KIND", action="append", help="only cases with this `kind`; may be repeated")
    verb.add_argument("--file", metavar="CASES", type=Path, help="add the cases of this file")
    verb.add_argument(
        "--out", metavar="FILE", type=Path, help="write results to this file (default: evaluation.results.jsonl)"
    )
    sides = _list_sides()
    verb.add_argument(
        "--side", choices=("tools", *sides), default="tools",
        help="measure calls on their way to tools (the default), or a model's calls on their way to the agent",
    )  # fmt: skip
    verb.add_argument("--timeout", metavar="SECONDS", type=int, default=60, help="per model answer (default: 60)")


@runtime_checkable
class MeasuresCalls(Protocol):
    """A plugin that measures calls at another side."""

    def list_evaluations(self) -> Mapping[str, Callable[[argparse.Namespace], int]]:
        """Side -> what measures it and returns the exit code."""


def _list_sides() -> dict[str, Callable[[argparse.Namespace], int]]:
    plugins = [plugin for plugin in list_plugins() if isinstance(plugin, MeasuresCalls)]
    return {side: run for plugin in plugins for side, run in plugin.list_evaluations().items()}


def run(args: argparse.Namespace) -> int:
    """Measures what has not been measured yet, prints the table and gives the exit code."""
    from proxy.extensions.correction.evaluation import read_bundled_cases, read_cases

    if args.side != "tools":
        return _list_sides()[args.side](args)
    try:
        cases = read_bundled_cases() + (read_cases(args.file) if args.file else [])
        cases = [case for case in cases if args.kind is None or case.kind in args.kind]
    except (OSError, ValueError) as error:
        return _complain(str(error))
    if args.endpoint and (not args.model or split_url(args.endpoint).scheme not in ("http", "https")):
        return _complain("say --endpoint http(s)://... together with --model NAME")
    if args.key_env and not os.environ.get(args.key_env):
        return _complain(f"the environment variable {args.key_env} is not set")
    if not cases or len({case.id for case in cases}) < len(cases):
        return _complain("there is no case of this kind" if not cases else "two cases have the same id")
    modes = list(MODES) if args.endpoint else ["off", "layer 2"]
    out = args.out or Path("evaluation.results.jsonl")
    done = read_results(out)
    left = [(mode, case) for mode in modes for case in cases if _make_key(args, mode, case) not in done]
    try:
        asyncio.run(_measure(args, cases, left, out, done))
    except KeyboardInterrupt:
        print(f"\nevaluate: stopped; the same command continues from here ({out})", file=sys.stderr)
        return 130
    except OSError as error:
        return _complain(str(error))
    found = [done[key] for mode in modes for case in cases if (key := _make_key(args, mode, case)) in done]
    print(write_table(found, args.model))
    return 0


def _complain(why: str) -> int:
    print(f"evaluate: {why}", file=sys.stderr)
    return 2


def _make_key(args: argparse.Namespace, mode: str, case: EvaluatedCall) -> str:
    """A hash over everything a result depends on: mode, case, and in modes with corrections endpoint and model."""
    endpoint = (args.endpoint, args.model) if "correct" in MODES[mode][0] else ()
    text = json.dumps([mode, asdict(case), *endpoint], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_results(path: Path) -> dict[str, EvaluationResult]:
    """The results of earlier runs by key. A line that was cut off is left out, and its case is measured again."""
    found: dict[str, EvaluationResult] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            result = EvaluationResult(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[result.key] = result
    return found


# --- measuring --------------------------------------------------------------------------------------------------------
async def _measure(
    args: argparse.Namespace,
    cases: Sequence[EvaluatedCall],
    left: Sequence[tuple[str, EvaluatedCall]],
    out: Path,
    done: dict[str, EvaluationResult],
) -> None:
    from proxy.extensions.correction.evaluation import EvaluationTools
    from proxy.extensions.correction.samples.server import run_server
    from proxy.file_writing import open_to_append, replace_file
    from proxy.plugin import load
    from proxy.server import start_serving

    if not left:
        return
    with (
        os.fdopen(open_to_append(out), "ab") as kept,
        run_server(EvaluationTools(cases)) as tools,
        TemporaryDirectory() as folder,
    ):
        config = Path(folder) / "config.yaml"
        replace_file(config, json.dumps(make_config(args, cases, tools.url)).encode())
        log = io.StringIO()
        serving = await start_serving(load(config, os.environ), log_to=log)
        try:
            for number, (mode, case) in enumerate(left):
                _show_progress(number, len(left), mode, case.id)
                port = split_url(serving.url).port or 0
                result = await _measure_case(_make_key(args, mode, case), mode, case, tools, port, log)
                done[result.key] = result
                kept.write(json.dumps(asdict(result)).encode() + b"\n")
                kept.flush()
            _show_progress(len(left), len(left), "", "")
        finally:
            await serving.stop(grace=1.0)


async def _measure_case(
    key: str, mode: str, case: EvaluatedCall, tools: EvaluationTools, port: int, log: io.StringIO
) -> EvaluationResult:
    tools.received.pop(case.id, None)
    conversation = f"X-Conversation-Id: {key}"
    for number, step in enumerate(case.steps):
        await _post(
            port, f"{_make_path(mode, case)}/{number}", step["arguments"], conversation, _make_wish_header(case)
        )
    log.seek(0)
    log.truncate()
    started = perf_counter()
    await _post(port, _make_path(mode, case), case.sent, conversation, _make_wish_header(case))
    milliseconds = (perf_counter() - started) * 1000
    line = await _await_line(log, _make_path(mode, case))
    questions = line.get("correction.questions", [])
    received = tools.received.get(case.id, [])
    wrong = any(not case.is_right(arguments) for arguments in received)
    right = not wrong and bool(received) == bool(case.expected)
    unanswered = sum(question["outcome"] in ("timeout", "endpoint_error", "busy", "budget") for question in questions)
    tokens = sum(question.get("tokens", 0) for question in questions)
    return EvaluationResult(
        key, mode, case.id, case.kind, right, wrong, len(questions), unanswered, tokens, milliseconds
    )


def _make_wish_header(case: EvaluatedCall) -> str:
    return f"X-User-Query: {case.query}"


async def _await_line(log: io.StringIO, route: str) -> dict[str, Any]:
    """The call's line in the proxy's log."""
    async with asyncio.timeout(_LINE):
        while True:
            for text in log.getvalue().splitlines():
                line = json.loads(text) if text.startswith("{") else {}
                if line.get("http.route") == route:
                    return dict(line)
            await asyncio.sleep(0.001)


async def _post(port: int, path: str, arguments: object, *headers: str) -> None:
    """Sends one call and reads its answer to the end."""
    body = json.dumps(arguments).encode()
    fields = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "Connection: close"]
    head = "\r\n".join([*fields, f"Content-Length: {len(body)}", *headers, "", ""])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    await reader.read()
    writer.close()


def _make_path(mode: str, case: EvaluatedCall) -> str:
    return f"/{mode.replace(' ', '-')}/{case.id}"


def make_config(args: argparse.Namespace, cases: Sequence[EvaluatedCall], tools_url: str) -> dict[str, Any]:
    """The config that the calls are measured with; YAML takes JSON as it is."""
    modes = list(MODES) if args.endpoint else ["off", "layer 2"]
    routes = [route for mode in modes for case in cases for route in _make_routes(mode, case)]
    config: dict[str, Any] = {
        "version": 1,
        "listen": "127.0.0.1:0",
        "admin": "off",
        "telemetry": {"log": {"format": "json"}},
        "upstreams": {"tools": {"url": tools_url}},
        "routes": routes,
    }
    if args.endpoint:
        base, path = split_endpoint(args.endpoint)
        model: dict[str, Any] = {"url": base}
        if args.key_env:
            model["headers"] = {"set": {"authorization": f"Bearer ${{{args.key_env}}}"}}
        config["upstreams"]["model"] = model
        config["correction"] = {
            "upstream": "model", "model": args.model, "path": path,
            "timeout": f"{args.timeout}s", "deadline": f"{4 * args.timeout}s",
            "budget": {"per_conversation": 1000, "per_hour": 1_000_000},
        }  # fmt: skip
    return config


def _make_routes(mode: str, case: EvaluatedCall) -> Iterator[dict[str, Any]]:
    rules = MODES[mode][0]
    yield {
        "path": _make_path(mode, case), "upstream": "tools", "upstream_path": f"/{case.id}", "tool": case.tool,
        "description": case.description, "schema": case.schema, **rules,
    }  # fmt: skip
    for number, step in enumerate(case.steps):
        yield {
            "path": f"{_make_path(mode, case)}/{number}", "upstream": "tools", "upstream_path": f"/{case.id}/{number}",
            "tool": step["tool"], "schema": {"type": "object"}, **rules,
        }  # fmt: skip


def split_endpoint(url: str) -> tuple[str, str]:
    """An endpoint's address as an upstream's URL and the path of its chat completions."""
    parts = split_url(url)
    path = parts.path.rstrip("/")
    if not path.endswith(_COMPLETIONS):
        path = f"{path or '/v1'}{_COMPLETIONS}"
    return f"{parts.scheme}://{parts.netloc}", path


# --- output -----------------------------------------------------------------------------------------------------------
def _show_progress(number: int, total: int, mode: str, case: str) -> None:
    """Rewrites one line on a terminal; elsewhere writes a line after each tenth."""
    text = f"{number} of {total}  {mode}  {case}".rstrip()
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}" + ("\r\x1b[K" if number == total else ""))
    elif total >= 10 and number % (total // 10) == 0:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write_table(results: Sequence[EvaluationResult], model: str) -> str:
    """Two Markdown tables with one row per mode: the figures, and the share of right calls of each kind."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for mode, (_, claim) in MODES.items():
        rows = [result for result in results if result.mode == mode]
        if rows:
            lines.append(_write_row(mode, rows, claim))
    kinds = dict.fromkeys(result.kind for result in results)
    lines += ["", f"| right, by kind | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for mode in MODES:
        rows = [result for result in results if result.mode == mode]
        shares = [_share([result for result in rows if result.kind == kind]) for kind in kinds]
        lines += [f"| {mode} | {' | '.join(shares)} |"] if rows else []
    model_line = f"model: {model}" if model else "no model was asked: layers 3 and 4 need --endpoint"
    return "\n".join([*lines, "", model_line])


def _write_row(mode: str, rows: Sequence[EvaluationResult], claim: str) -> str:
    questions = sum(row.questions for row in rows)
    tokens = f"{sum(row.tokens for row in rows) / questions:.0f}" if questions else "–"
    times = [row.milliseconds for row in rows]
    late = quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    wrong, lost = sum(row.wrong for row in rows), sum(row.unanswered for row in rows)
    cells = [
        mode,
        _share(rows),
        str(wrong),
        str(questions),
        str(lost),
        tokens,
        f"{median(times):.1f}",
        f"{late:.1f}",
        claim,
    ]
    return f"| {' | '.join(cells)} |"


def _share(rows: Sequence[EvaluationResult]) -> str:
    right = sum(row.right for row in rows)
    return f"{right} of {len(rows)} ({right / len(rows):.0%})" if rows else "–"
