"""Fetches the console's two libraries with npm, and writes them as files that a browser loads without a build.

    python .ci/vendor.py     `make vendor`

The one bare import (`preact`, in its hooks) becomes a path, because an import map would be an inline script. The file
vendor.json says name, version, licence and sha256 of each file; a test of the console holds the files against it.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent / "proxy" / "extensions" / "console" / "ui" / "vendor"
# Package with version, licence, and of each file: where it lies in the package, and its name here.
PACKAGES: list[tuple[str, str, dict[str, str]]] = [
    ("preact@11.2.0", "MIT", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"}),
    ("htm@3.1.1", "Apache-2.0", {"dist/htm.mjs": "htm.js"}),
]


def main() -> None:
    """Writes the files, their licences and vendor.json."""
    HERE.mkdir(parents=True, exist_ok=True)
    written: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for package, licence, files in PACKAGES:
            packed = subprocess.run(  # noqa: S603
                ["npm", "pack", "--silent", package],  # noqa: S607
                cwd=folder,
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            with tarfile.open(Path(folder) / packed) as archive:
                name, _, version = package.partition("@")
                licence_file = f"LICENSE-{name}"
                (HERE / licence_file).write_bytes(read(archive, "LICENSE"))
                for source, target in files.items():
                    text = read(archive, source).decode()
                    text = re.sub(r"""(from\s*)["']preact["']""", r'\1"./preact.js"', text)
                    text = re.sub(r"//# sourceMappingURL=.*\n?", "", text).rstrip() + "\n"
                    (HERE / target).write_text(text, encoding="utf-8")
                    written.append({"file": target, "name": name, "version": version, "licence": licence,
                                    "licence_file": licence_file,
                                    "sha256": hashlib.sha256(text.encode()).hexdigest()})  # fmt: skip
    (HERE / "vendor.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def read(archive: tarfile.TarFile, name: str) -> bytes:
    """One file of a package."""
    member = archive.extractfile(f"package/{name}")
    if member is None:
        raise SystemExit(f"the package has no {name}")
    return member.read()


if __name__ == "__main__":
    main()
