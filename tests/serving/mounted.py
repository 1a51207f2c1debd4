"""A folder as kubelet mounts a ConfigMap: files are links into `..data`, which is exchanged as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


class Mounted:
    """The mount. `update` does what kubelet does (pkg/volume/util/atomic_writer.go): a new folder with the new files, a
    link `..data_tmp` to it, renamed over `..data`; the old folder goes."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder
        self._version = 0
        self.update(files)

    def update(self, files: Mapping[str, str]) -> None:
        """Exchanges all files; those that are not among them are gone."""
        self._version += 1
        data = self.folder / "..data"
        old = self.folder / data.readlink() if data.is_symlink() else None
        new = self.folder / f"..2026_01_05_00_00_{self._version:02d}"
        for name, text in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_text(text)
        (self.folder / "..data_tmp").symlink_to(new.name)
        (self.folder / "..data_tmp").rename(data)
        for name in {Path(name).parts[0] for name in files}:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        if old is not None:
            shutil.rmtree(old)
