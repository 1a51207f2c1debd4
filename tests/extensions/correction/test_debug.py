"""The debug store: whole prompts and answers as JSON lines, readable only for their owner, bounded, without secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from proxy.extensions.correction.core.settings import DebugStore
from proxy.extensions.correction.record import DebugLog
from tests.extensions.correction.model import rig, says
from tests.serving.wire import JSON_TYPE, answer, replies

ROUTE = """
  - path: /w
    upstream: tools
    tool: weather
    schema: {type: object, properties: {unit: {enum: [kelvin]}, password: {type: string}}, required: [unit]}
    correct: {validation_feedback: on, semantic_retry: on, scope: failing}
"""
FIXED = {
    "can_fix": True,
    "analysis": "the key is ghp_0123456789abcdefghijABCDEFGHIJ0123",
    "corrected_payload": {"unit": "x"},
}
OK = answer("200 OK", b"{}", JSON_TYPE)


async def test_a_question_and_its_answer_are_kept_whole_but_for_secrets(tmp_path: Path) -> None:
    file = tmp_path / "debug.jsonl"
    async with rig(says("no", FIXED, "no"), replies(OK), ROUTE, endpoint=f"debug: {{file: {file}}}") as it:
        await it.proxy.post("/w", b'{"unit": "x", "password": "hunter2"}', "X-Request-ID: r1", "X-Tool-Call-Id: c1")

    first, second, _ = (json.loads(line) for line in file.read_text().splitlines())
    assert ["validation_feedback", "semantic_retry"] == [first["site"], second["site"]]
    assert [("unusable", "not_json"), ("out_of_scope", None)] == [
        (entry["outcome"], entry["unusable"]) for entry in (first, second)
    ]
    assert ("r1", "weather", "c1", "tiny") == tuple(
        first[key] for key in ("correlation_id", "tool", "call_id", "model")
    )
    assert it.asked()[0]["messages"] == first["messages"]
    assert "the key is ***" in second["answer"]
    assert "hunter2" not in file.read_text()
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


async def test_writes_nothing_unless_it_is_switched_on(tmp_path: Path) -> None:
    async with rig(says("no"), replies(OK), ROUTE) as it:
        await it.proxy.post("/w", b'{"unit": "x"}')
    assert [] == list(tmp_path.iterdir())


async def test_the_file_and_its_older_half_stay_within_their_size(tmp_path: Path) -> None:
    file, lost = tmp_path / "d.jsonl", list[OSError]()
    log = DebugLog(DebugStore(str(file), 2000), lost.append)
    for number in range(50):
        await log.add({"at": number, "text": "x" * 80})
    sizes = [path.stat().st_size for path in (file, tmp_path / "d.jsonl.1")]
    assert all(0 < size <= 1000 for size in sizes)
    assert [0o600, 0o600] == [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.iterdir())]
    assert 49 == json.loads(file.read_text().splitlines()[-1])["at"]
    await log.add({"at": 50, "text": "x" * 5000})
    assert {"at": 50, "left_out_bytes": 5020} == json.loads(file.read_text().splitlines()[-1])
    assert [] == lost


async def test_a_link_is_not_followed_and_a_file_that_cannot_be_written_costs_no_call(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "d.jsonl").symlink_to(tmp_path / "elsewhere")
    async with rig(says("no"), replies(OK), ROUTE, endpoint=f"debug: {{file: {tmp_path / 'd.jsonl'}}}") as it:
        seen = await it.proxy.post("/w", b'{"unit": "x"}')
    assert (400, "") == (seen.status, (tmp_path / "elsewhere").read_text())
    assert "debug store cannot be written" in it.proxy.log.getvalue()
