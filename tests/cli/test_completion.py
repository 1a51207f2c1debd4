"""Shell completion: the scripts complete verbs, options and choices, where a shell loads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.__main__ import VERBS, main
from proxy.cli.completion import SHELLS

BASH = shutil.which("bash")

# Loads the script, and prints what a line completes to.
COMPLETE = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=()
_shtab_toolcall_proxy
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_names_every_verb(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["completion", shell])
    script = capsys.readouterr().out
    assert set() == {verb for verb in VERBS if verb not in script}
    assert "--listen" in script


@pytest.mark.skipif(BASH is None, reason="there is no bash: install it to try its completion")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["che"], {"check"}),
        (["serve", "--lis"], {"--listen"}),
        (["completion", ""], set(SHELLS)),
        (["check", "con"], {"config.yaml"}),
    ],
)
def test_bash_completes_a_line(
    words: list[str], completed: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "config.yaml").touch()
    line = [str(BASH), "-c", COMPLETE, "bash", "./script", "toolcall-proxy", *words]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert completed == set(done.stdout.split()), done.stderr


def test_a_shell_that_is_not_known_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "csh"])
    assert "choose from" in capsys.readouterr().err


def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError\n")
    line = [sys.executable, "-m", "proxy", "completion", "bash"]
    folders = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        line, env={**os.environ, "PYTHONPATH": folders}, capture_output=True, text=True, timeout=600, check=False
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert "completion: a library is missing: pip install '.[completion]' in a clone\n" == done.stderr
