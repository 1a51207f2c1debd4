"""Fetches what the peers need into the cache folder: packages of npm, Rust and Python, and the commit to compare with.

Each part that cannot be had is named and left out; the benchmark then leaves out its peers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from benchmarks.peers.cast import HERE, INTERPRETERS, PARENT_COMMIT, environment, packages, parent_tree, toolguard
from benchmarks.peers.running import ROOT


def install(cache: Path) -> None:
    """Fetches into a folder what is not there yet."""
    _fetch_packages_of_npm(cache)
    _build_toolguard(toolguard(cache))
    _fetch_parent(cache)
    for interpreter in INTERPRETERS:
        found = shutil.which(interpreter)
        if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
            print(f"{interpreter} is not installed: this proxy is not measured on it")
        elif interpreter != "python{}.{}".format(*sys.version_info):
            _make_environment(cache, interpreter, found, ROOT / "requirements.lock")


def _fetch_packages_of_npm(cache: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        print("npm is not installed: its peers are left out")
        return
    subprocess.run(
        [npm, "install", "--no-fund", "--no-audit", "--prefix", str(cache / "node"), *packages()], check=True
    )


def _build_toolguard(folder: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        print("cargo is not installed: its peer is left out")
        return
    shutil.copytree(HERE / "toolguard", folder, dirs_exist_ok=True)
    if subprocess.run([cargo, "build", "--release", "--quiet"], cwd=folder, check=False).returncode:
        print("cargo cannot build toolguard-proxy: it is left out")


def _fetch_parent(cache: Path) -> None:
    """The files of the commit, out of this repository's history, and the packages that it pinned."""
    tree = parent_tree(cache)
    if not tree.is_dir():
        archive = ["git", "-C", str(ROOT), "archive", PARENT_COMMIT]
        found = subprocess.run(archive, capture_output=True, check=False)
        if found.returncode:
            print(f"git has no {PARENT_COMMIT} here: this proxy is not compared with what it was then")
            return
        with tarfile.open(fileobj=BytesIO(found.stdout)) as files:
            files.extractall(tree, filter="data")
    _make_environment(cache, "parent", sys.executable, tree / "requirements.lock")


def _make_environment(cache: Path, name: str, python: str, lock: Path) -> None:
    made = environment(cache, name)
    folder = made.parent.parent
    pip = [str(made), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "-r", str(lock)]
    for words in ([python, "-m", "venv", str(folder)], pip):
        if words is not pip and made.exists():
            continue
        if subprocess.run(words, check=False).returncode:
            print(f"{name}: {words[0]} cannot make the environment, so what needs it is left out")
            shutil.rmtree(folder, ignore_errors=True)
            return
