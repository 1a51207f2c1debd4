"""Writes requirements.lock and those of the tests, the release and the site from the installed packages.

The closure of pyproject.toml's dependencies (all extras included) is pinned as `name==version`; no download address
is ever written, so every installation uses its own machine's package index.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def closure(wanted: Iterable[str]) -> dict[str, str]:
    """Name -> version of every package that the requirements bring in, as installed here."""
    found: dict[str, str] = {}
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} is not installed: run `make test` first, then `make lock`") from None
        found[name] = installed.version
        waiting += [Requirement(text) for text in installed.requires or ()]
    return found


def write(path: Path, packages: dict[str, str], note: str) -> None:
    """Writes one lock file, sorted by name."""
    lines = [f"{name}=={version}\n" for name, version in sorted(packages.items())]
    path.write_text(f"# {note}: written by `make lock` from pyproject.toml; do not edit.\n" + "".join(lines))


def main() -> None:
    """Writes the lock files; that of the site only if its environment is there (`make site`)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        runtime += extra
    build = [*project["build-system"]["requires"], "editables"]  # hatchling asks for it to install in place
    write(ROOT / "requirements.lock", closure([*runtime, *build]), "To run and to build")
    groups = project["dependency-groups"]
    write(ROOT / "requirements-dev.lock", closure([*runtime, *build, *groups["dev"]]), "To test")
    write(ROOT / "requirements-release.lock", closure(groups["release"]), "To check a release")
    if site := [str(path) for path in (ROOT / ".venv" / "site").glob("lib/python*/site-packages")]:
        sys.path[:0] = site
        write(ROOT / "requirements-docs.lock", closure(groups["docs"]), "To build the site")


if __name__ == "__main__":
    main()
