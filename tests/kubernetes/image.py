"""The Dockerfile without Docker: its steps in a clean folder. The result is then run as the image would be, and a test
looks through the file system that the Dockerfile lays out for the image.

python -m tests.kubernetes.image    takes half a minute, and asks the package index for what the lock names

Each absolute folder that the file names (`/src`, `/opt/toolcall-proxy` ...) is one below the clean folder, `python` of
a base image is this interpreter's own base. If this machine lets it (root, mount namespaces), the result runs as the
image's user, without any capability, on a root file system that is read-only. Not covered: the base image itself, and
its layers.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.ports import hold_ports

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = ROOT / "Dockerfile"
FOLDERS: Final = ("/src", "/build", "/wheels", "/rootfs", "/opt/toolcall-proxy")

# Runs a command as Kubernetes will: nothing can be written, nothing is allowed.
_CONFINED: Final = """\
mount --make-rprivate / && mount -o remount,bind,ro /
exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""

# A config that serves without anything else; ports by name, to be put in.
CONFIG: Final = """\
version: 1
listen: 127.0.0.1:{calls}
admin: {{listen: 127.0.0.1:{admin}}}
drain: 0
routes: [{{path: /a, upstream: none, tool: a, schema: {{type: object, required: [x]}}}}]
"""


@dataclass(frozen=True)
class Step:
    """One instruction: its name and the rest of its line, continued lines joined."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Its arguments; the items if it is a JSON list."""
        listed = self.rest[self.rest.find("[") :]
        return list(json.loads(listed)) if self.rest.endswith("]") else shlex.split(self.rest)


def steps() -> list[Step]:
    """The instructions of the Dockerfile, in order."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r" *\\\n\s*", " ", "\n".join(lines))
    return [Step(*line.split(" ", 1)) for line in joined.splitlines() if line.strip()]


def context() -> list[Path]:
    """The files of the build's context: what .dockerignore leaves, relative to the root."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    kept = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    dropped = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    files = [path for name in kept for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    found = [path.relative_to(ROOT) for path in files if path.is_file()]
    return [path for path in found if not any(fnmatch.fnmatch(part, rule) for part in path.parts for rule in dropped)]


@dataclass
class Build:
    """A build in a clean folder. `done` are the lines that were run."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    work: Path = Path()
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        base = Path(sys._base_executable)  # type: ignore[attr-defined]  # a base image has no virtual environment
        names = self.folder / "bin"
        names.mkdir()
        (names / "python").symlink_to(base)
        keep = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.environ = keep | {"PATH": f"{names}:{os.defpath}", "HOME": str(self.folder)}

    def here(self, text: str) -> str:
        """A text with the image's folders as folders below the clean one."""
        for name in FOLDERS:
            text = re.sub(rf"(?<![\w./-]){name}(?=[/\s\"':]|$)", str(self.folder) + name, text)
        return text

    def run(self) -> None:
        """All steps. Raises CalledProcessError where a line fails."""
        for step in steps():
            self._step(step)

    def _step(self, step: Step) -> None:
        if step.name == "WORKDIR" and step.rest != "/":
            self.work = Path(self.here(step.rest))
            self.work.mkdir(parents=True)
        elif step.name == "COPY" and "--from" not in step.rest:
            self._copy(*step.words)
        elif step.name == "ENV":
            for pair in step.words:
                name, _, value = self.here(pair).partition("=")
                # Beside the image's own folders those of the programs that try it.
                self.environ[name] = f"{value}:{self.environ['PATH']}" if name == "PATH" else value
        elif step.name == "RUN":
            self.done.append(step.rest)
            words = self.told(*step.words) if step.rest.startswith("[") else ["sh", "-ec", self.here(step.rest)]
            subprocess.run(words, cwd=self.work, env=self.environ, check=True)

    def _copy(self, *names: str) -> None:
        *sources, target = names
        for path in context():
            for source in (source for source in sources if path == Path(source) or Path(source) in path.parents):
                placed = self.work / target / path.name if path == Path(source) else self.work / path
                assert target == "./" or source == target
                placed.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, placed)

    def entry(self, *words: str) -> list[str]:
        """The entry point, from what was built."""
        (step,) = [step for step in steps() if step.name == "ENTRYPOINT"]
        return self.told(*step.words, *words)

    def told(self, python: str, *words: str) -> list[str]:
        """A command of the image as a command here."""
        assert python == "python"
        return [str(self.folder / "opt/toolcall-proxy/bin/python"), *words]

    def installed(self) -> dict[str, str]:
        """Name -> version of what the image has."""
        script = (
            "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"
        )
        told = subprocess.run(
            self.told("python", "-c", script), env=self.environ, cwd="/", capture_output=True, text=True, check=True
        )
        return dict(line.lower().replace("_", "-").split("==") for line in told.stdout.splitlines())


def confinement(folder: Path) -> list[str]:
    """The words that confine a command, none where this machine does not let us."""
    (user,) = {step.rest.partition(":")[0] for step in steps() if step.name == "USER"}
    words = ["unshare", "--mount", "sh", "-ec", _CONFINED.format(user=user), "sh"]
    try:
        # `touch` has to fail and to be there; what it would touch is a folder that everybody may write to.
        script = f"! touch {folder}/x 2>/dev/null && test ! -e {folder}/x && id -u"
        told = subprocess.run([*words, "sh", "-c", script], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return words if told.stdout.strip() == user else []


def health(build: Build, ports: tuple[int, int], confined: list[str]) -> list[int]:
    """The health check's exit codes before the image's command runs and while it does, the command's own after its
    SIGTERM, and the check's after that."""
    calls, admin = ports
    config = build.folder / "config.yaml"
    config.write_text(CONFIG.format(calls=calls, admin=admin))
    (check,) = [step for step in steps() if step.name == "HEALTHCHECK"]
    words = build.told(*(word.replace("8081", str(admin)) for word in check.words))

    def code() -> int:
        return subprocess.run(words, env=build.environ, cwd="/", stderr=subprocess.DEVNULL, check=False).returncode

    seen = [code()]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*confined, *build.entry("serve", str(config))], env=build.environ, cwd="/", **quiet)
    until = time.monotonic() + 20
    while (now := code()) != 0 and time.monotonic() < until:
        time.sleep(0.1)
    process.terminate()
    return [*seen, now, process.wait(20), code()]


def look_through(root: Path) -> list[str]:
    """Returns what must not be in an image: shells, package managers, and files that change the user."""
    unwanted = {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "perl", "pip", "pip3"}
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    found = [path for path in files if path.name in unwanted or path.stat().st_mode & 0o6000]
    return [str(path.relative_to(root)) for path in found]


# Imports every extension module that it finds.
_LOADING: Final = """
import importlib, pathlib, sys
for base in map(pathlib.Path, sys.path):
    for path in base.rglob("*.so"):
        steps = path.relative_to(base).parts
        if not {"site-packages", "lib-dynload"} & set(steps):
            importlib.import_module(".".join((*steps[:-1], steps[-1].partition(".")[0])))
            print(path)
"""


def load_extensions(build: Build, root: Path) -> int:
    """Returns how many extension modules the file system of the image loads, which are without symbols there; 0 if this
    machine lets nobody change the root."""
    if os.geteuid():
        return 0
    words = ["chroot", str(root), *build.told("python", "-I", "-c", _LOADING)]
    return len(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())


def measure(root: Path) -> float:
    """The size of the files below a folder, in MB. Two names of one file count once."""
    files = {(each.stat().st_dev, each.stat().st_ino): each for each in root.rglob("*") if not each.is_symlink()}
    return sum(each.stat().st_size for each in files.values() if each.is_file()) / 1e6


def main() -> None:
    """Builds, looks, says what was seen."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        build = Build(Path(name))
        build.run()
        installed = build.installed()
        lock = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line)
        other = {key: version for key, version in installed.items() if lock.get(key, version) != version}
        calls, admin = hold_ports(2)
        confined = confinement(build.folder)
        seen = health(build, (calls, admin), confined)
        found = look_through(build.folder / "rootfs")
        loaded, size = load_extensions(build, build.folder / "rootfs"), measure(build.folder / "rootfs")
    assert not other, f"not the version of the lock: {other}"
    assert not {"pip", "hatchling", "setuptools"} & set(installed), "build tools came along"
    assert seen == [1, 0, 0, 1], f"health check before, while, end, after: {seen}"
    assert not found, f"not for an image: {found}"
    how = "as its user, on a read-only root" if confined else "(not confined: no root, or no mount namespaces here)"
    print(f"{len(build.done)} RUN lines done, {len(installed)} packages; the entry point serves {how}")
    print(f"the image's files have {size:.0f} MB; {loaded} extension modules load there")


if __name__ == "__main__":
    main()
