"""Finds out whether the files of a config have changed, and reads them while they may be changing.

No file events are used, because NFS and bind mounts send none. Contents are hashed and compared instead, every
`reload.interval` (2 s by default). Each reading follows the path again: kubelet replaces the folder behind a symbolic
link (`..data`) and removes the old one, and editors rename files. A mount can hide changes; `find_warnings` reports
such files at the start.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from proxy.config.files.source import UNREADABLE, read_file
from proxy.config.load import Loaded, load
from proxy.config.mistakes import ConfigError, Mistake

MOUNTINFO: Final = Path("/proc/self/mountinfo")

# The most readings of one load. Replacing files takes milliseconds; the next check finds what takes longer.
READINGS: Final = 5
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def hash_files(paths: Iterable[Path]) -> dict[Path, str]:
    """The hash of each file as it is now, '' where it cannot be read, for comparison with `Loaded.seen`."""
    found = {}
    for path in paths:
        try:
            found[path] = hashlib.sha256(read_file(path)).hexdigest()
        except (OSError, ValueError):
            found[path] = UNREADABLE
    return found


def load_settled(path: Path, environ: Mapping[str, str], known: Iterable[Path] = ()) -> Loaded:
    """Does as `load`, but never returns a mixture of two versions. It reads again when a file, or a link on the way to
    one of the `known` files, has changed during the reading.

    Raises ConfigError, also if the files keep changing.
    """
    paths = (path, *known)
    for _ in range(READINGS):
        before = [each.resolve() for each in paths]
        try:
            loaded = load(path, environ)
        except ConfigError as error:
            if hash_files(error.seen) == error.seen and before == [each.resolve() for each in paths]:
                raise
        else:
            if hash_files(loaded.seen) == loaded.seen and before == [each.resolve() for each in paths]:
                return loaded
    raise ConfigError([Mistake(str(path), 1, 1, "", "the files change faster than they can be read")])


def find_mounts(paths: Iterable[Path], mountinfo: str) -> list[Path]:
    """The files that are their own mounts (a `subPath` volume, a bind mount of one file).

    Such a mount keeps its first file. An update of a ConfigMap replaces the folder, and an editor replaces the file by
    renaming; neither is visible through the mount (kubernetes.io, "mounted ConfigMaps are updated automatically").
    `mountinfo` is the text of /proc/self/mountinfo (proc(5): the fifth field is the mount point, with octal escapes).
    """
    points = {_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in mountinfo.splitlines()}
    return [path for path in paths if {str(path.absolute()), str(path.resolve())} & points]


def find_warnings(paths: Iterable[Path], mountinfo: Path = MOUNTINFO) -> list[str]:
    """Warnings about files whose changes will not be seen; none on systems other than Linux."""
    try:
        text = mountinfo.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return [
        f"{path} is a separate mount (subPath?): its changes will not be seen; mount its folder instead"
        for path in find_mounts(paths, text)
    ]
