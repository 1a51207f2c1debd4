"""Recorded calls of real models and reported failures (tests/data), put into turns for `evaluate --side model`.

`python -m tests.extensions.chat.recorded_turns > turns.jsonl` writes them; a folder behind it is read in place of
tests/data. Each call becomes an answer with one call of the only tool that the request has. A recorded call that was
valid is `clean`. Of the recorded invalid calls, the turns hold those whose right arguments are known to differ only in
types (`same up to types`). Of the reported failures, they hold all but two kinds, which need more than arguments and a
schema: those about tools' names, and those whose schema says nothing.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from proxy.extensions.chat.cli.evaluate_model import make_call_message

DATA: Final = Path(__file__).parents[2] / "data"
_OTHER: Final = ("tool_name", "untyped_schema")


def list_recorded_turns(folder: Path = DATA) -> Iterator[dict[str, Any]]:
    """The turns, as `EvaluatedAnswer` has them."""
    for call in _read_packed(folder / "model_calls" / "valid_calls.jsonl.gz"):
        text = json.dumps(call["arguments"], ensure_ascii=False)
        yield _make_turn(call["id"], "clean", call["tool"], call["json_schema"], text, call["arguments"])
    for call in _read_packed(folder / "model_calls" / "invalid_calls.jsonl.gz"):
        if call["expected_note"] == "same up to types":
            text = json.dumps(call["raw_arguments"], ensure_ascii=False)
            meant = call["expected_arguments"]
            yield _make_turn(call["id"], "recorded, invalid", call["tool"], call["json_schema"], text, meant)
    for name in ("real-failures/cases.jsonl", "real-failures-2026/failures.jsonl"):
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if not any(word in case["kind"] for word in _OTHER):
                kind = "clean" if case["suggested_level"] == "pass" else "reported failure"
                yield _make_turn(case["id"], kind, case["tool"], case["schema"], case["sent"], case["expected"])


def _read_packed(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _make_turn(turn: str, kind: str, tool: str, schema: Any, text: str, meant: Any) -> dict[str, Any]:
    expected = None if meant is None else [[tool, meant]]
    return {"id": turn, "kind": kind, "tools": {tool: schema}, "message": make_call_message(tool, text),
            "expected": expected}  # fmt: skip


if __name__ == "__main__":
    for each in list_recorded_turns(*map(Path, sys.argv[1:])):
        sys.stdout.write(json.dumps(each, ensure_ascii=False) + "\n")
