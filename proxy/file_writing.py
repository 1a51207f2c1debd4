"""Writes files in folders that somebody else may have filled, such as a cloned repository.

    open_replacement   replaces a file as a whole: a reader finds the old file or the new one
    open_to_append     opens a file that only grows: an audit, a recording
    move_file          gives a full file another name
    overwrite_file     changes a file in place, if it is a mount and cannot be replaced

None of them follows a link at the file's name, and no other module of `proxy/` writes files. New files have mode 0600.
Each error is an OSError that names the file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

PRIVATE: Final = 0o600
# For files without secrets, which other users may read if the umask lets them.
SHARED: Final = 0o666
# Windows has O_BINARY only.
_SAFE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# O_NONBLOCK: a pipe without a reader is an error at once.
_IN_PLACE: Final = _SAFE | os.O_RDWR | getattr(os, "O_NONBLOCK", 0)


def replace_file(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replaces a file as a whole (see `open_replacement`)."""
    with open_replacement(path, mode) as stream:
        stream.write(content)


@contextmanager
def open_replacement(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Opens a new file in the same folder. It takes the name `path` when the context ends without an exception.

    An existing file keeps its mode and its owner; a new one gets `mode`, which the umask restricts.

    Raises:
        OSError: `path` is a link or no regular file, or cannot be replaced.
    """
    beside = path.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        before = check_regular(path)
        flags = _SAFE | os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(beside, flags, mode if before is None else PRIVATE)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                if before is not None and os.name == "posix":
                    new = os.fstat(descriptor)
                    if (new.st_uid, new.st_gid) != (before.st_uid, before.st_gid):
                        os.fchown(descriptor, before.st_uid, before.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
                os.fsync(descriptor)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def open_to_append(path: Path) -> int:
    """Opens a file to append to it and to read it. Creates it if it does not exist.

    Raises:
        OSError: `path` is a link or no regular file, or cannot be written.
    """
    return _open_in_place(path, _IN_PLACE | os.O_APPEND | os.O_CREAT)


def move_file(path: Path, target: Path) -> None:
    """Renames a file within its folder. A link at either name is moved or replaced, never followed."""
    path.replace(target)


def overwrite_file(path: Path, content: bytes) -> None:
    """Overwrites an existing file in place.

    Raises:
        OSError: `path` is a link or no regular file, does not exist, or cannot be written.
    """
    with os.fdopen(_open_in_place(path, _IN_PLACE), "wb") as stream:
        stream.truncate()
        stream.write(content)


def _open_in_place(path: Path, flags: int) -> int:
    """Opens a regular file. Changes nothing if it is none."""
    try:
        descriptor = os.open(path, flags, PRIVATE)
    except OSError:
        check_regular(path)  # which may know a clearer reason
        raise
    try:
        _refuse_other_kinds(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def check_below(path: Path, folder: Path) -> None:
    """Raises OSError if `path` leads out of `folder` through a link."""
    target = Path(os.path.realpath(path))  # `Path.resolve` raises RuntimeError for a circle of links
    if not target.is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.ELOOP, f"a link leads out of the folder, to {target}", str(path))


def check_regular(path: Path) -> os.stat_result | None:
    """The status of a file; None if it does not exist. Raises OSError if it is a link or no regular file."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    _refuse_other_kinds(path, status)
    return status


def _refuse_other_kinds(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a link (remove the link, or name another file)", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file (name another file)", str(path))
