"""The functions that write files: in folders that somebody else filled, and with what they keep of a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.file_writing import SHARED, check_below, open_replacement, open_to_append, overwrite_file, replace_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def append(path: Path) -> None:
    descriptor = open_to_append(path)
    os.write(descriptor, b"new\n")
    os.close(descriptor)


def replace(path: Path) -> None:
    replace_file(path, b"new\n")


def overwrite(path: Path) -> None:
    overwrite_file(path, b"new\n")


WRITERS = pytest.mark.parametrize("write", [replace, append])


@WRITERS
def test_creates_a_file_that_only_its_owner_reads(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "file")
    assert (b"new\n", 0o600) == ((tmp_path / "file").read_bytes(), mode_of(tmp_path / "file"))
    assert [tmp_path / "file"] == list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [replace, append, overwrite])
@pytest.mark.parametrize(
    ("planted", "reason"),
    [("link", "it is a link"), ("dangling", "it is a link"), ("pipe", "it is no regular file")],
)
def test_refuses_a_link_and_a_pipe_by_name(
    tmp_path: Path, write: Callable[[Path], None], planted: str, reason: str
) -> None:
    path, victim = tmp_path / "file", tmp_path / "victim"
    if planted == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("victim")
    if planted == "link":
        victim.write_text("kept")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match=reason) as raised:
        write(path)
    assert str(path) == raised.value.filename
    assert before == sorted(tmp_path.iterdir())
    assert not victim.exists() or "kept" == victim.read_text()


def test_refuses_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is no regular file"):
        replace_file(tmp_path, b"")


@pytest.mark.parametrize("mode", [0o400, 0o644, 0o755])
def test_an_existing_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    replace_file(path, b"new")
    assert (b"new", mode) == (path.read_bytes(), mode_of(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    os.chown(path, 1234, 2345)
    replace_file(path, b"new")
    status = path.stat()
    assert (1234, 2345, 0o640) == (status.st_uid, status.st_gid, mode_of(path))


def test_the_umask_restricts_the_mode_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", b"", SHARED)
    finally:
        os.umask(before)
    assert 0o640 == mode_of(tmp_path / "file")


def test_an_interrupted_replacement_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with suppress(KeyboardInterrupt), open_replacement(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert ("old", [path]) == (path.read_text(), list(tmp_path.iterdir()))


def test_a_file_that_cannot_be_created_is_named_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        replace_file(tmp_path / "none/file", b"")
    assert str(tmp_path / "none/file") == raised.value.filename


def test_appending_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    path.chmod(0o644)
    append(path)
    assert (b"old\nnew\n", 0o644) == (path.read_bytes(), mode_of(path))


def test_overwriting_keeps_the_file_and_creates_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older and longer")
    inode = path.stat().st_ino
    overwrite_file(path, b"new")
    assert (b"new", inode) == (path.read_bytes(), path.stat().st_ino)
    with pytest.raises(FileNotFoundError):
        overwrite_file(tmp_path / "none", b"")
    assert [path] == list(tmp_path.iterdir())


def test_finds_a_path_that_leads_out_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in/there").mkdir(parents=True)
    (tmp_path / "in/out").symlink_to("..")
    (tmp_path / "in/same").symlink_to("there")
    (tmp_path / "in/loop").symlink_to("loop")
    check_below(tmp_path / "in/there/file", tmp_path / "in")
    check_below(tmp_path / "in/same/file", tmp_path / "in")
    check_below(tmp_path / "in/loop", tmp_path / "in")
    for name in ("out/file", "out"):
        with pytest.raises(OSError, match="a link leads out of the folder"):
            check_below(tmp_path / "in" / name, tmp_path / "in")
