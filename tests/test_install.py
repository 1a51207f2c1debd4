"""Each line of docs/install.md that installs the proxy, tried in a clean environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from proxy import __version__

ROOT: Final = Path(__file__).parents[1]
LINES: Final = re.search(r"```sh\n(.*?)```", (ROOT / "docs" / "install.md").read_text(), re.DOTALL)

SERVED: Final = """\
version: 1
listen: 0.0.0.0:8080
routes: [{path: /a, upstream: none, tool: a, schema: {type: object, required: [x]}}]
"""

pytestmark = pytest.mark.large


def run(*words: str, folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    if "No matching distribution" in done.stderr or "Temporary failure in name resolution" in done.stderr:
        pytest.skip("the package index cannot be reached, which pip needs for the dependencies")
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as git has it, without what was installed or made beside it."""
    folder = tmp_path_factory.mktemp("clone") / "toolcall-proxy"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(clone: Path) -> tuple[Path, Path]:
    """The wheel and the source archive that the recipe of `make dist` writes."""
    run(sys.executable, "-m", "hatchling", "build", "-d", "dist", folder=clone)
    (made,), (source,) = (clone / "dist").glob("*.whl"), (clone / "dist").glob("*.tar.gz")
    return made, source


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[0]


def make_environment(folder: Path) -> Path:
    """Makes a new virtual environment and returns its folder of programs."""
    run(sys.executable, "-m", "venv", str(folder / "env"), folder=folder)
    return folder / "env" / "bin"


def install(programs: Path, *what: str, folder: Path) -> None:
    run(str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install", *what, folder=folder)


def judge_example(clone: Path, folder: Path, *program: str) -> None:
    """The installed command says its version and judges the example, away from the clone."""
    assert f"toolcall-proxy {__version__}\n" == run(*program, "--version", folder=folder)
    shown = run(*program, "check", str(clone / "config.example.yaml"), folder=folder)
    assert f"{clone / 'config.example.yaml'}: ok, " in shown


def test_the_page_names_these_lines() -> None:
    assert LINES is not None
    assert [
        "pip install .",
        "make wheel",
        "docker build -t toolcall-proxy .",
        'docker run -p 8080:8080 -v "$PWD:/etc/toolcall-proxy:ro" toolcall-proxy',
    ] == [line.partition("#")[0].strip() for line in LINES[1].splitlines()]


def test_pip_installs_the_clone(clone: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path)
    install(programs, str(clone), folder=tmp_path)
    judge_example(clone, tmp_path, str(programs / "toolcall-proxy"))


def test_pip_installs_the_wheel_elsewhere(wheel: Path, clone: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path)
    install(programs, str(wheel), folder=tmp_path)
    judge_example(clone, tmp_path, str(programs / "toolcall-proxy"))


def test_pip_installs_the_source_archive(built: tuple[Path, Path], clone: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path)
    install(programs, str(built[1]), folder=tmp_path)
    judge_example(clone, tmp_path, str(programs / "toolcall-proxy"))


def test_the_package_index_would_take_both(built: tuple[Path, Path], tmp_path: Path) -> None:
    programs = make_environment(tmp_path)
    install(programs, "-r", str(ROOT / "requirements-release.lock"), folder=tmp_path)
    said = run(str(programs / "twine"), "--no-color", "check", "--strict", *map(str, built), folder=tmp_path)
    assert 2 == said.count("PASSED")
    assert [f"toolcall_proxy-{__version__}-py3-none-any.whl", f"toolcall_proxy-{__version__}.tar.gz"] == [
        path.name for path in built
    ]


def test_uvx_runs_the_wheel(wheel: Path, clone: Path, tmp_path: Path) -> None:
    uvx = shutil.which("uvx")
    if uvx is None:
        pytest.skip("no uvx here: install uv")
    judge_example(
        clone, tmp_path, uvx, "--no-config", "--python", sys.executable, "--from", str(wheel), "toolcall-proxy"
    )


def test_the_client_needs_the_wheel_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path)
    install(programs, "--no-deps", str(wheel), folder=tmp_path)
    words = "from toolcall_proxy.client import Answer, Blocked, Retry, read; print(read.__name__)"
    assert "read\n" == run(str(programs / "python"), "-c", words, folder=tmp_path)


def test_pipx_installs_the_wheel(wheel: Path, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = make_environment(tmp_path)
    install(programs, "pipx", folder=tmp_path)
    monkeypatch.setenv("PIPX_HOME", str(tmp_path / "pipx"))
    monkeypatch.setenv("PIPX_BIN_DIR", str(tmp_path / "bin"))
    run(str(programs / "pipx"), "install", "--python", sys.executable, str(wheel), folder=tmp_path)
    judge_example(clone, tmp_path, str(tmp_path / "bin" / "toolcall-proxy"))
    judge_example(
        clone,
        tmp_path,
        str(programs / "pipx"),
        "run",
        "--python",
        sys.executable,
        "--spec",
        str(wheel),
        "toolcall-proxy",
    )


def test_docker_builds_the_image_and_runs_it(clone: Path, tmp_path: Path) -> None:
    """Without a daemon `python -m tests.kubernetes.image` tries the Dockerfile's steps."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no docker daemon: install docker, or try the steps by `python -m tests.kubernetes.image`")
    run(docker, "build", "-t", "toolcall-proxy:test", ".", folder=clone)
    (tmp_path / "config.yaml").write_text(SERVED)
    mounted = f"{tmp_path}:/etc/toolcall-proxy:ro"
    name = run(docker, "run", "-d", "--rm", "-p", "127.0.0.1::8080", "-v", mounted, "toolcall-proxy:test", folder=clone)
    try:
        address = run(docker, "port", name.strip(), "8080", folder=clone).strip()
        words = ["curl", "-s", "--retry", "60", "--retry-all-errors", f"http://{address}/a", "-d", "{}"]
        assert "VAL-001" in run(*words, "-H", "Content-Type: application/json", folder=clone)
    finally:
        run(docker, "rm", "-f", name.strip(), folder=clone)
