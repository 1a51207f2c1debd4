"""The frame of the command line: verbs, help, exit codes, and that nothing heavy is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.__main__ import VERBS, main

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxy", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_shows_every_verb_and_how_to_begin() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f"\n    {verb} " in done.stdout for verb in VERBS)
    assert "toolcall-proxy demo" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_teaches_by_example_or_rule(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"usage: toolcall-proxy {verb}" in capsys.readouterr().out


def test_every_file_of_a_verb_is_registered() -> None:
    texts = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "proxy" / "cli").glob("*.py")}
    assert set(VERBS) == {name.rstrip("_") for name, text in texts.items() if "def register(" in text}


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert f"toolcall-proxy {__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["demmo"], ["replay"], ["demo", "--nothing"]])
def test_wrong_usage_ends_with_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: toolcall-proxy" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from proxy.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('aiohttp', 'jiter', 'jsonschema_rs', 'yaml', 'structlog') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": 1, "schema": {}, "sent": "{}"}\n' * 20_000)
    script = f"{sys.executable} -m proxy replay {cases} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{"id":1,"decision":"forward"')
