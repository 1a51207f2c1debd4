"""The console as an installed copy serves it, with no network: built as a wheel, installed into a fresh environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.extensions.console.browser import page
from tests.extensions.console.test_pages import PAGES, link
from tests.extensions.correction.running import ROOT, demo


def install(folder: Path) -> Path:
    """Builds the wheel, installs it without an index, and returns the interpreter. Dependencies come from the
    environment of the tests, whose own copy of this package is invisible to the interpreter."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    own = Path(_ask(python, "import sysconfig; print(sysconfig.get_path('purelib'))", folder))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(own), str(wheel)], check=True, capture_output=True)
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert Path(_ask(python, "import proxy; print(proxy.__file__)", folder)).is_relative_to(own)
    return python


def _ask(python: Path, code: str, cwd: Path) -> str:
    done = subprocess.run([str(python), "-c", code], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_acceptance_18_the_installed_wheel_serves_every_page_and_asks_no_other_host(
    tmp_path: Path, running: Any
) -> None:
    python, asked = install(tmp_path), set[str]()
    (tmp_path / "elsewhere").mkdir()
    with (
        demo(cwd=tmp_path / "elsewhere", path=tmp_path / "elsewhere", python=python) as started,
        page(running) as shown,
    ):
        shown.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
        shown.goto(link(started))
        shown.get_by_role("heading", name="Overview").wait_for()
        for name in PAGES:
            shown.goto(link(started).partition("#")[0] + f"#/{name}")
            shown.locator("main h1").wait_for()
        assert {urlsplit(link(started)).netloc} == asked
