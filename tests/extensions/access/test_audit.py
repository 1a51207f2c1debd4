"""The audit: a line per call, in a file that may be renamed, on disks that are slow, full or away for a while."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.access.audit import FileAudit, find_fault
from proxy.telemetry.logs import Log
from proxy.telemetry.writer import QUEUE_FULL, WRITE_FAILED, QueueWriter
from tests.extensions.access.issuer import OK, Guarded, guarded
from tests.extensions.access.test_access_config import write
from tests.extensions.access.test_rules import AUTH, READER, RULES, TOOLS, call
from tests.serving.proxied import proxied
from tests.serving.wire import replies, tool
from tests.steady import until


def outcomes(file: Path) -> list[Any]:
    """The outcome of each whole line, or what it says is lost."""
    return [line.get("outcome", line.get("lost")) for line in map(json.loads, file.read_text().splitlines())]


def said(there: Guarded, about: str = "Audit lines") -> list[str]:
    """Returns what the log says of the file."""
    lines = map(json.loads, there.proxy.log.getvalue().splitlines())
    return [" ".join(map(str, (line["message"], line.get("lost", "")))).strip() for line in lines if about in str(line)]


def has_told(there: Guarded, lines: int) -> bool:
    return len(said(there)) == lines


def has_denied(file: Path, times: int) -> bool:
    return file.exists() and file.read_text().count("TOKEN_REQUIRED") == times


async def lost(there: Guarded) -> float:
    """Returns how many lines the metrics count as lost."""
    shown = (await there.proxy.ask_admin("/metrics")).body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in shown if line.startswith("toolproxy_audit_lines_dropped_total{"))


async def test_each_call_is_a_line_of_the_audit_without_a_value(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    route = f"  - {{path: '/files/{{tool}}', upstream: tools, auth: {AUTH}, allow: {RULES}}}"
    async with (
        tool(replies(OK)) as server,
        proxied(route, server.url, tools=TOOLS, access=f"{{audit: {file}}}") as proxy,
    ):
        await call(proxy, "read_file", {"path": "/data/secret-value"})
        await call(proxy, "write_file", {"path": "/data/secret-value"})
        await call(proxy, "read_file", {"path": "/etc/secret-value"}, "unknown-token-0123456")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [
        {"token": "reader", "rule": "rule-1", "tool": "read_file", "outcome": "answered"},
        {"token": "reader", "tool": "write_file", "outcome": "denied", "code": "CALL_NOT_ALLOWED"},
        {"outcome": "denied", "code": "TOKEN_REQUIRED"},
    ] == [{key: value for key, value in line.items() if key not in ("time", "route", "request")} for line in lines]
    assert {"/files/{tool}"} == {line["route"] for line in lines}
    assert ("secret-value" in file.read_text(), READER in file.read_text()) == (False, False)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


async def test_the_audit_names_the_subject_of_a_signed_token_and_no_other_claim() -> None:
    async with guarded(access=", audit: log") as there:
        await there.call(there.issuer.sign(email="ada@example.com"))
        lines = [json.loads(line) for line in there.proxy.log.getvalue().splitlines()]
    (line,) = [line for line in lines if "Access decision" in line.values()]
    assert ("main", "ada", "answered") == (line["issuer"], line["subject"], line["outcome"])
    assert "ada@" not in json.dumps(lines)


async def test_a_file_that_was_renamed_is_left_and_a_new_one_begun(tmp_path: Path) -> None:
    file, older = tmp_path / "audit", tmp_path / "audit.1"
    async with guarded(access=f", audit: {file}") as there:
        await there.call(there.issuer.sign())
        await until(lambda: file.exists() and file.stat().st_size > 0)
        file.rename(older)
        await there.call("no-token")
    assert (["answered"], ["denied"]) == (outcomes(older), outcomes(file))


async def test_all_that_is_queued_is_written_in_order_when_the_proxy_ends(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    async with guarded(access=f", audit: {file}") as there:
        for number in range(30):
            await there.call(there.issuer.sign(sub=f"caller-{number}"))
    assert [f"caller-{number}" for number in range(30)] == [
        json.loads(line)["subject"] for line in file.read_text().splitlines()
    ]


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """The system lets no file become larger, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_costs_lines_and_no_call_and_they_are_written_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit"
    async with guarded(access=f", audit: {file}") as there:
        await there.call(there.issuer.sign())
        await until(lambda: file.exists() and file.stat().st_size > 0)
        with no_file_beyond(file.stat().st_size + 10):
            assert [200, 200] == [(await there.call(there.issuer.sign())).status for _ in range(2)]
            await until(lambda: "Audit lines are lost" in there.proxy.log.getvalue())
        await there.call("no-token")
        await until(lambda: "written again" in there.proxy.log.getvalue())
        counted = await lost(there)
    first, cut, *rest = file.read_text().splitlines()
    assert ("answered", 10) == (json.loads(first)["outcome"], len(cut))
    missing = [line["lost"] for line in map(json.loads, rest) if "lost" in line]
    assert [{"write_failed": counted}] == missing
    assert ["Audit lines are lost", f"Audit lines are written again {int(counted)}"] == said(there)


async def test_a_missing_folder_costs_lines_and_is_reported_once_each_time(tmp_path: Path) -> None:
    folder, away = tmp_path / "audits", tmp_path / "away"
    folder.mkdir()
    file = folder / "audit"
    async with guarded(access=f", audit: {file}") as there:
        for times, told in ((1, 1), (2, 3)):
            folder.rename(away)
            for _ in range(2):
                assert 200 == (await there.call(there.issuer.sign())).status
            await until(partial(has_told, there, told))
            away.rename(folder)
            await there.call("no-token")
            # The report of lost lines may come before this line: the folder has been back for a moment.
            await until(partial(has_denied, file, times))
            await until(partial(has_told, there, told + 1))
    lines = outcomes(file)
    assert 4 == sum(line["write_failed"] for line in lines if isinstance(line, dict)) + lines.count("answered")
    assert 2 == lines.count("denied")


def write_to(file: Path) -> FileAudit:
    return FileAudit(file, lambda: 0.0, Log(io.StringIO(), "json", "info", lambda: 0.0), defaultdict(float))


class SlowSink:
    """Implements `Sink` in memory; a write waits until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.busy = threading.Event()
        self.text = b""
        self.told: list[Any] = []

    def prepare(self) -> bool:
        return False

    def write(self, text: bytes) -> int:
        self.busy.set()
        self.go.wait()
        self.text += text
        return len(text)

    def note_loss(self, reason: str, lines: int, why: str) -> None:
        self.told.append((reason, lines, why))

    def note_recovery(self, lost: Any) -> None:
        self.told.append(dict(lost))

    def close(self) -> None:
        self.told.append("closed")


def test_a_queue_that_is_full_drops_the_newest_counts_them_and_says_so_in_their_place() -> None:
    sink = SlowSink()
    made = QueueWriter(sink, lambda lost: b"lost %d\n" % lost[QUEUE_FULL], queue_bytes=8, pause=0)
    made.write(b"0\n")
    sink.busy.wait()
    for number in range(1, 6):  # the first is still being written: there is room for three more
        made.write(b"%d\n" % number)
    sink.go.set()
    made.close(5)

    assert (b"0\n1\n2\n3\nlost 2\n", Counter({QUEUE_FULL: 2})) == (sink.text, made.dropped)
    full = (QUEUE_FULL, 1, "the queue is full")
    assert [full, full, {QUEUE_FULL: 2}, "closed"] == sink.told


def test_a_line_that_was_cut_by_another_process_is_ended_first(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    file.write_text('{"half')
    made = write_to(file)
    made.write({"outcome": "answered"})
    made.close()
    assert ['{"half', "answered"] == [
        file.read_text().splitlines()[0],
        json.loads(file.read_text().splitlines()[1])["outcome"],
    ]


# --- mistakes of a file are reported at load --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none/audit", "the folder {folder}/none does not exist  (make it, or name another: paths start at"),
        ("folder", "it is no regular file  (name a file, or write `log`)"),
        ("link", "it is no regular file"),
        ("pipe", "it is no regular file"),
        ("config.yaml/audit", "the folder {folder}/config.yaml does not exist"),
    ],
)
def test_reports_an_unwritable_file_at_load_with_its_line(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, f"access: {{audit: {name}}}", ""), {})
    (mistake,) = map(str, raised.value.mistakes)
    assert mistake.startswith(f"{tmp_path}/config.yaml:3:17  access  decisions cannot be written there: "), mistake
    assert told.format(folder=tmp_path) in mistake


def test_a_folder_on_another_machine_may_be_missing_with_config_only(tmp_path: Path) -> None:
    path = write(tmp_path, "access: {audit: /var/log/no-such-folder/audit.jsonl}", "")
    assert "/var/log/no-such-folder/audit.jsonl" == load(path, {}, config_only=True).config.sections["access"].audit


def test_a_folder_that_others_own_cannot_be_written() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o555)
    own = os.geteuid()
    try:
        if own == 0:
            os.seteuid(65_534)
        fault = find_fault(folder / "audit")
    finally:
        os.seteuid(own)
        folder.rmdir()
    hint = "name a file in a folder that can be written, or write `log`"
    assert (f"the folder {folder} cannot be written by this user", hint) == fault


FULL = """
import os, sys
from pathlib import Path
from proxy.extensions.access.audit import FileAudit
from proxy.extensions.access.audit import find_fault
from proxy.extensions.access.core.access_rules import Identity
from proxy.telemetry.logs import Log
try:
    with open(sys.argv[1] + "/filling", "wb", buffering=0) as filling:
        while True:
            filling.write(b"x" * 4096)
except OSError:
    print(find_fault(Path(sys.argv[1]) / "audit"))
"""


def test_reports_a_full_disk(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    mount = "mount -t tmpfs -o size=64k none"
    if unshare is None or subprocess.run([unshare, "-rm", "sh", "-c", f"{mount} {tmp_path}"], check=False).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    words = [unshare, "-rm", "sh", "-c", f'{mount} {tmp_path}; exec {sys.executable} -c "$0" {tmp_path}', FULL]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"('the disk of {tmp_path} is full', 'make room, or name a file on another disk')\n" == shown


def test_a_log_that_leaves_the_lines_out_is_noted(tmp_path: Path) -> None:
    top = "access: {audit: log}\ntelemetry: {log: {level: warning}}"
    assert ["`access.audit: log` writes at the level `info`, which `telemetry.log.level` leaves out"] == [
        note for note in load(write(tmp_path, top, ""), {}).config.notes if "audit" in note
    ]


async def test_half_a_character_in_a_name_costs_no_line(tmp_path: Path) -> None:
    made = write_to(tmp_path / "audit")
    made.write({"tool": "a\ud800", "outcome": "refused"})
    made.close()
    assert ["refused"] == outcomes(tmp_path / "audit")
    assert WRITE_FAILED not in (tmp_path / "audit").read_text()
