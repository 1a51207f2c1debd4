"""Verbs that write files in a folder that somebody else filled: no link there leads them to another file."""

from __future__ import annotations

import gzip
import json
import stat
from collections import defaultdict
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.extensions.correction.core.settings import DebugStore
from proxy.extensions.correction.record import DebugLog
from proxy.extensions.recording.record_file import RecordFile

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
def test_pin_writes_through_no_link_beside_its_file(folder: Path, name: str) -> None:
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
