"""A certificate authority for the tests, made by the openssl command line, and what it signs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

# Elliptic curves: an RSA key takes up to a second to make.
_KEY: Final = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


def openssl(folder: Path, arguments: str) -> None:
    """Runs one command in a folder."""
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)  # noqa: S607 - wherever it is


def certificate(folder: Path, name: str, names: str) -> None:
    """`name.pem` and `name.key`, signed by the authority of the folder."""
    openssl(folder, f"req {_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}")
    (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
    signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
    openssl(folder, f"x509 -req -in {name}.csr {signed} -extfile {name}.ext -out {name}.pem")


def authority(folder: Path) -> Path:
    """A folder with an authority (`ca.pem`). Skips the test where there is no openssl; under CI it fails."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the TLS tests need the openssl command line")
        pytest.skip("needs the openssl command line to make a certificate authority")
    usage = "-addext keyUsage=critical,keyCertSign,cRLSign"
    openssl(folder, f"req -x509 {_KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN=tests {usage}")
    return folder
