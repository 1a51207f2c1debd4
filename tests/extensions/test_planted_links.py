"""Verbs that write files in a folder that somebody else filled: no link there leads them to another file."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.cli.serve_flags import list_no_config
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.access.audit import AuditFile
from proxy.extensions.correction.core.settings import DebugStore
from proxy.extensions.correction.record import DebugLog
from proxy.extensions.kubernetes.pod_serving import PodWatcher
from proxy.extensions.recording.recorder import RecordFile
from proxy.telemetry.logs import Log

CONFIG = """\
version: 1
upstreams: {t: {url: "http://127.0.0.1:9"}}
tools: {x: {schema: {type: object}, request: {method: POST, path: /x}}}
routes: [{path: /x, upstream: t, tool: x}]
%s
"""
DOCUMENT = {
    "openapi": "3.0.0",
    "info": {"title": "x", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {
        "/x": {
            "post": {
                "operationId": "x",
                "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                "responses": {},
            }
        }
    },
}
CLIENT = {"mcpServers": {"files": {"command": "npx", "args": ["x"], "env": {"KEY": "k"}}}}
VERBS = {
    "pin": (["pin", "c.yaml"], "tools.lock"),
    "import openapi": (["import", "openapi", "o.json", "--into", "made", "--force"], "made/config.yaml"),
    "import openapi record": (["import", "openapi", "o.json", "--into", "made", "--force"], "made/imported.json"),
    "import openapi schema": (["import", "openapi", "o.json", "--into", "made", "--force"], "made/schemas/x.yaml"),
    "import mcpservers": (["import", "mcpservers", "m.json", "--into", "made", "--force"], "made/config.yaml"),
    "guidance": (["guidance", "--config", "c.yaml", "--watch", "prompt.txt"], "prompt.txt"),
}
VICTIM = b'{"version": 1, "routes": {}}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a config and documents to import."""
    folder = tmp_path / "clone"
    (folder / "made/schemas").mkdir(parents=True)
    (folder / "c.yaml").write_text(CONFIG % "")
    (folder / "o.json").write_text(json.dumps(DOCUMENT))
    (folder / "m.json").write_text(json.dumps(CLIENT))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_dangling", [False, True], ids=["link", "dangling"])
def test_a_verb_rejects_a_link_in_place_of_its_file(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str, is_dangling: bool
) -> None:
    words, written = VERBS[verb]
    victim = folder.parent / "victim"
    if not is_dangling:
        victim.write_bytes(VICTIM)
    (folder / written).symlink_to(victim)
    before = sorted(folder.rglob("*"))
    assert 2 == main(words)
    assert f"{written}: it is a link" in capsys.readouterr().err
    assert (before, is_dangling) == (sorted(folder.rglob("*")), not victim.exists())
    assert is_dangling or VICTIM == victim.read_bytes()


@pytest.mark.parametrize("verb", ["import openapi", "import mcpservers"])
def test_import_without_force_counts_a_dangling_link_as_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    words, written = VERBS[verb]
    (folder / written).symlink_to("../../victim")
    assert 2 == main(words[:-1])
    assert f"{written} exists: nothing is written" in capsys.readouterr().err
    assert not (folder.parent / "victim").exists()


def test_import_rejects_a_folder_that_leads_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "made/schemas").rmdir()
    (folder / "made/schemas").symlink_to("../..")
    assert 2 == main(["import", "openapi", "o.json", "--into", "made"])
    assert "made/schemas: a link leads out of the folder" in capsys.readouterr().err
    assert ([folder], [folder / "made/schemas"]) == (list(folder.parent.iterdir()), list((folder / "made").iterdir()))


def test_an_imported_client_config_is_private_from_the_start(folder: Path) -> None:
    main(["import", "mcpservers", "m.json", "--into", "made"])
    assert 0o600 == stat.S_IMODE((folder / "made/config.yaml").stat().st_mode)


@pytest.mark.parametrize("name", ["tools.lock.new", "prompt.txt.new"])
def test_pin_writes_through_no_link_next_to_its_file(folder: Path, name: str) -> None:
    (folder / name).symlink_to("../victim")
    assert 0 == main(["pin", "c.yaml"])
    assert not (folder.parent / "victim").exists()
    assert (True, True) == ((folder / name).is_symlink(), (folder / "tools.lock").is_file())


def test_pin_leaves_no_file_if_the_config_is_rejected(folder: Path) -> None:
    (folder / "c.yaml").write_text(CONFIG % "pins: {changed: hide}\nnone_such: 1")
    assert 2 == main(["pin", "c.yaml"])
    assert not (folder / "tools.lock").exists()


def test_evaluate_rejects_a_link_in_place_of_its_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results").symlink_to("../victim")
    assert 2 == main(["evaluate", "--out", "results"])
    assert "results" in capsys.readouterr().err
    assert not (folder.parent / "victim").exists()


def test_a_full_recording_moves_a_planted_link_and_does_not_follow_it(folder: Path) -> None:
    victim = folder.parent / "victim"
    victim.write_bytes(VICTIM)
    path, counts = folder / "calls", defaultdict[tuple[str, ...], float](float)
    (folder / "calls.1.gz").symlink_to("../victim")
    file = RecordFile(path, 20, 2, counts)
    for line in (b"first 9012345678\n", b"second 012345678\n"):
        file.add(lambda line=line: line, 17)  # type: ignore[misc]
    file.close()
    assert (2.0, VICTIM) == (counts["written",], victim.read_bytes())
    assert b"first 9012345678\n" == gzip.decompress((folder / "calls.1.gz").read_bytes())
    assert Path("../victim") == (folder / "calls.2.gz").readlink()


async def test_a_full_debug_store_replaces_a_planted_link_and_does_not_follow_it(folder: Path) -> None:
    victim, lost = folder.parent / "victim", list[OSError]()
    victim.write_bytes(VICTIM)
    (folder / "debug.1").symlink_to("../victim")
    log = DebugLog(DebugStore(str(folder / "debug"), 2000), lost.append)
    for number in range(20):
        await log.add({"at": number, "text": "x" * 80})
    assert ([], VICTIM, False) == (lost, victim.read_bytes(), (folder / "debug.1").is_symlink())


# --- sections ---------------------------------------------------------------------------------------------------------
async def write_audit(path: Path) -> None:
    """Writes a line as the thread of the audit does: it prepares the file before each batch."""
    log = Log(io.StringIO(), "json", "info", lambda: 0.0)
    file = AuditFile(path, log, defaultdict(float))
    try:
        file.prepare()
        file.write(b"a line\n")
    finally:
        file.close()
        log.close()


async def write_record(path: Path) -> None:
    """Records a call; a failure is counted."""
    counts = defaultdict[tuple[str, ...], float](float)
    file = RecordFile(path, 1000, 2, counts)
    file.add(lambda: b"a line\n", 7)
    file.close()
    if counts["failed",]:
        raise OSError(f"{path.name}: it is a link")


async def write_debug_store(path: Path) -> None:
    """Writes an entry; a failure is reported."""
    lost = list[OSError]()
    await DebugLog(DebugStore(str(path), 2000), lost.append).add({"at": 1})
    if lost:
        raise lost[0]


async def write_termination_message(path: Path) -> None:
    """Shows a trouble in the pod's status, if that is possible."""
    PodWatcher(path).show_open(["a trouble"])
    if path.is_symlink():
        raise OSError(f"{path.name}: it is a link")


WRITERS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "audit": write_audit,
    "record": write_record,
    "debug store": write_debug_store,
    "termination message": write_termination_message,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("is_dangling", [False, True], ids=["link", "dangling"])
async def test_a_section_writes_through_no_link(folder: Path, writer: str, is_dangling: bool) -> None:
    path, victim = folder / "file", folder.parent / "victim"
    if not is_dangling:
        victim.write_bytes(VICTIM)
    path.symlink_to("../victim")
    with pytest.raises(OSError, match="it is a link"):
        await WRITERS[writer](path)
    assert (is_dangling, Path("../victim")) == (not victim.exists(), path.readlink())
    assert is_dangling or VICTIM == victim.read_bytes()


def test_the_termination_message_waits_for_no_reader_of_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    PodWatcher(folder / "pipe").show_open(["a trouble"])
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


def test_check_rejects_an_audit_that_is_a_link(folder: Path) -> None:
    (folder / "audit").symlink_to("../victim")
    (folder / "c.yaml").write_text(CONFIG % "access: {audit: audit}")
    with pytest.raises(ConfigError, match="it is no regular file"):
        load(folder / "c.yaml", {})
    assert not (folder.parent / "victim").exists()


# --- configs that a flag of `serve` makes -----------------------------------------------------------------------------
MADE: dict[str, dict[str, Any]] = {
    "model": {"model": "http://127.0.0.1:9", "text_calls": "off", "connections": 256},
    "mcp": {"mcp": "http://127.0.0.1:9/mcp", "command": [], "header": []},
    "openapi": {"openapi": "o.json", "relay": False, "serve_as": "http", "upstream": ""},
}
USUAL = {"timeout": None, "repair": None, "null_optional": None}


def test_each_flag_that_makes_a_config_is_tried_here() -> None:
    assert MADE.keys() == {source.flag.key for source in list_no_config()}


@pytest.mark.parametrize("flag", MADE)
def test_a_made_config_is_in_a_new_folder_that_only_its_owner_enters(
    folder: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    shared = folder / "shared"
    shared.mkdir()
    (shared / "toolcall-proxy-").symlink_to("../../victim")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    source = next(each for each in list_no_config() if each.flag.key == flag)
    before = set(shared.iterdir())
    with ExitStack() as kept:
        path = source.make_file(argparse.Namespace(**USUAL, **MADE[flag]), kept)
        assert path is not None
        (made,) = set(shared.iterdir()) - before
        assert (made, 0o700) == (path.parent, stat.S_IMODE(made.lstat().st_mode))
        assert all(stat.S_ISREG(file.lstat().st_mode) for file in made.rglob("*") if not file.is_dir())
    assert (before, False) == (set(shared.iterdir()), (folder.parent / "victim").exists())
