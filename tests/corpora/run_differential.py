"""Every recorded call through two served versions of the proxy: are their bytes the same?

    python -m tests.corpora.run_differential COMMIT [DATA_FOLDER] [--every N]

The version of a commit (its own git worktree) and this one are served next to each other, each with its own tool. The
calls of the corpora go through both over real sockets, some of them four times in a conversation, in the words of each
envelope. The run compares the answers (heads and bodies), the requests at the tool, the log lines, the metrics, and the
kept calls with the texts for the model. It leaves out times, random ids and ports. Prints the numbers and the first
differences; exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.core.envelope import FORMATS
from proxy.core.schema.dialects import normalise
from proxy.core.schema.drafts import SchemaError
from proxy.extensions.recording.comparing import rewrite_numeric_bounds
from tests.corpora.calls import check_of, known_calls, rows
from tests.corpora.run_repair import DAMAGES, damaged
from tests.ports import hold_port
from tests.serving.wire import JSON_TYPE, Tool, answer, exchange, post, read_message, replies, tool

ROOT: Final = Path(__file__).parent.parent.parent
LEVELS: Final = ("standard", "lenient")
CONNECTIONS: Final = 8
# The kept calls are read after so many cases: with their repetitions as many as one page of calls shows.
_CHUNK: Final = 250
# One of so many cases is sent four times: the text says that the model repeats itself, and then has it stop.
_REPEATED: Final = 5
_PAGE: Final = 500
_SHOWN: Final = 5
# The differences from one run to the next: times, and names and ports that a process gives.
_OF_RUN: Final = re.compile(r"[Dd]ate: [^\r]*|\('date', '[^']*'\)|toolcall-proxy-[0-9a-f]{8}|127\.0\.0\.1:\d+")
_OF_TIME: Final = re.compile(r"timestamp|.*_ms|duration.*|overhead.*|.*seconds|at|started|stages|boot|id|seq|took|time")
_SERIES: Final = re.compile(r"toolproxy_(?!.*(_bucket|_seconds_sum|_lag|info|config|uptime|start|memory|idle)).*")


@dataclass(frozen=True)
class Case:
    """One recorded call: the name and schema of its tool, and its body."""

    tool: str
    schema: Any
    body: bytes


@dataclass
class Served:
    """A version that is served, and what all parties saw of it, by kind."""

    port: int
    admin: int
    log: Path
    tool: Tool
    last: int = 0  # the number of the last kept call that was read
    seen: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def note(self, kind: str, *shown: Any) -> None:
        """Notes an observation, without the values that differ between runs."""
        self.seen[kind] += [_OF_RUN.sub("*", one if isinstance(one, str) else _write(one)) for one in shown]

    async def ask(self, path: str) -> bytes:
        """Asks the operator's port."""
        return (await exchange(self.admin, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())).body


def _write(value: Any) -> str:
    return json.dumps(_without_times(value), sort_keys=True, default=repr)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(inner) for name, inner in value.items() if not _OF_TIME.fullmatch(name)}
    return [_without_times(inner) for inner in value] if isinstance(value, list) else value


# --- the calls --------------------------------------------------------------------------------------------------------
def collect_cases(data: Path) -> list[Case]:
    """Every recorded call that HTTP can carry, valid calls and damaged ones too, and damaged JSON."""
    found: list[Case] = []
    for tool_name, schema, body in _list_calls(data):
        with contextlib.suppress(SchemaError):
            check_of(schema)
            spelt = rewrite_numeric_bounds(normalise(schema)[0])
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", tool_name)[:60].strip("_.-") or "tool"
            found.append(Case(name, spelt, body if isinstance(body, bytes) else json.dumps(body).encode()))
    return [case for case in found if case.body and isinstance(case.schema, dict)]


def _list_calls(data: Path) -> Iterator[tuple[str, Any, Any]]:
    for row in known_calls(data):
        sent = row["raw_arguments"] if "raw_arguments" in row else row["sent"]
        body = sent.encode("utf-8", "surrogatepass") if isinstance(sent, str) else sent
        yield row["tool"], row["json_schema"] if "json_schema" in row else row["schema"], body
    for name in ("bfcl/calls", "model_calls/valid_calls"):
        for row in rows(data / f"{name}.jsonl.gz"):
            schema, arguments = row["json_schema"], row["arguments"]
            yield row["tool"], schema, arguments
            with contextlib.suppress(SchemaError):
                yield row["tool"], schema, damaged(schema, arguments, DAMAGES["all"])
                yield row["tool"], schema, {f"x_{key}": [value] for key, value in arguments.items()}
    for row in rows(data / "malformed-json/pairs.jsonl.gz"):
        yield "parse", {"type": "object"}, row["text"].encode("utf-8", "surrogatepass")


def write_config(path: Path, cases: list[Case], level: str, listen: int, admin: int, url: str) -> None:
    """A config with one route for each case, each envelope in turn."""
    names = list(FORMATS)
    routes = [
        {"path": f"/{number}", "upstream": "tools", "tool": case.tool, "schema": case.schema,
         "envelope": names[number % len(names)], "detail": "full" if number % 4 == 3 else "compact",
         **({"feedback": {"marks": True}} if number % 7 == 6 else {})}
        for number, case in enumerate(cases)
    ]  # fmt: skip
    config = {
        "version": 1,
        "listen": f"127.0.0.1:{listen}",
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "second_judge": "off",  # it judges only a few calls, by chance
        "defaults": {"repair": level},
        "upstreams": {"tools": {"url": url, "pool": {"idle": "600s"}}},  # a dropped connection is counted
        "routes": routes,
    }
    path.write_text(json.dumps(config))


def drop_refused(cases: list[Case]) -> list[Case]:
    """The cases without those whose schema a config refuses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        write_config(path, cases, "off", 0, 0, "http://127.0.0.1:9")
        try:
            load(path, {})
        except ConfigError as error:
            wrong = {mistake.where for mistake in error.mistakes}
            return [case for number, case in enumerate(cases) if f"route '/{number}'" not in wrong]
    return cases


# --- one version ------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def serve(tree: Path, folder: Path, name: str, cases: list[Case], level: str) -> AsyncIterator[Served]:
    """A version as it is served, with its own tool."""
    async with tool(replies(answer("200 OK", b'{"a": 1}', JSON_TYPE))) as behind:
        served = Served(hold_port(), hold_port(), folder / f"{name}.log", behind)
        config = folder / f"{name}.yaml"
        write_config(config, cases, level, served.port, served.admin, behind.url)
        environ = {**os.environ, "PYTHONPATH": str(tree)}
        with served.log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "proxy", "serve", str(config), cwd=tree, env=environ, stdout=out, stderr=out
            )
        try:
            while process.returncode is None:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await served.ask("/readyz")
                    break
                await asyncio.sleep(0.2)
            else:
                sys.exit(f"{tree} does not serve:\n{served.log.read_text()[-2000:]}")
            yield served
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def send_cases(served: Served, cases: list[Case], numbers: range) -> None:
    """Sends some of the cases, each from its own conversation, over several connections."""
    answers: dict[str, str] = {}

    async def client(start: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for number in numbers[start::CONNECTIONS]:
            for attempt in range(4 if number % _REPEATED == 0 else 1):
                ids = (
                    f"X-Request-Id: r-{number}-{attempt}",
                    f"X-Conversation-Id: c-{number}",
                    f"X-Tool-Call-Id: t-{number}",
                )
                writer.write(post(f"/{number}", cases[number].body, *ids))
                async with asyncio.timeout(300):
                    said = await read_message(reader)
                answers[f"{number:06}-{attempt}"] = repr(said)
                if said.header("connection") == "close":
                    writer.close()
                    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.close()

    await asyncio.gather(*(client(start) for start in range(CONNECTIONS)))
    served.note("answers", *(text for _, text in sorted(answers.items())))


async def read_kept(served: Served) -> None:
    """Reads the calls that are kept of the last cases, each in full."""
    listed = json.loads(await served.ask(f"/-/calls?limit={_PAGE}&after={served.last}"))["calls"]
    served.last = max(call["seq"] for call in listed)
    for call in sorted(listed, key=_write):
        served.note("kept calls", call)
        if call.get("errors") or call.get("repairs") or call.get("reason"):
            served.note("opened calls", json.loads(await served.ask(f"/-/calls/{call['id']}")))


async def play(served: Served, cases: list[Case]) -> None:
    """Sends all cases and notes what all parties saw."""
    for start in range(0, len(cases), _CHUNK):
        await send_cases(served, cases, range(start, min(start + _CHUNK, len(cases))))
        await read_kept(served)
    served.note("tool's requests", *sorted(map(repr, served.tool.seen)))
    page = (await served.ask("/metrics")).decode()
    served.note("metrics", *sorted(line for line in page.splitlines() if _SERIES.fullmatch(line)))


async def compare(trees: tuple[Path, Path], cases: list[Case], level: str) -> int:
    """Plays the cases before two versions; prints what was compared, and gives how many things differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            serve(trees[0], folder, "before", cases, level) as before,
            serve(trees[1], folder, "now", cases, level) as now,
        ):
            await asyncio.gather(play(before, cases), play(now, cases))
        for served in (before, now):
            lines = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
            served.note("log lines", *sorted(map(_write, lines)))
    return sum(tell(kind, before.seen[kind], now.seen[kind], level) for kind in now.seen | before.seen)


def tell(kind: str, before: list[str], now: list[str], level: str) -> int:
    """Prints how many things of a kind were compared, and the first that differ; gives how many do."""
    gone, new = ((Counter(one) - Counter(other)).elements() for one, other in ((before, now), (now, before)))
    differing = list(zip_longest(gone, new, fillvalue="nothing"))
    print(f"{level:10} {kind:16} {len(now):6} compared, {len(differing)} differ", flush=True)
    for one, other in differing[:_SHOWN]:
        at = next((at for at, signs in enumerate(zip(one, other, strict=False)) if signs[0] != signs[1]), 0)
        print(f"  before: ...{one[max(at - 80, 0) : at + 200]}\n  now:    ...{other[max(at - 80, 0) : at + 200]}")
    return len(differing)


def main() -> None:
    """Plays all cases at both levels of repair."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpora.run_differential", description="Two versions, byte for byte."
    )
    parser.add_argument("commit")
    parser.add_argument("data", nargs="?", type=Path, default=ROOT / "tests" / "data")
    parser.add_argument("--every", type=int, default=1, help="one of so many cases")
    options = parser.parse_args()
    cases = collect_cases(options.data)[:: options.every]
    cases = drop_refused(cases)
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), options.commit], check=True, capture_output=True)
        try:
            count = sum(asyncio.run(compare((tree, ROOT), cases, level)) for level in LEVELS)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
