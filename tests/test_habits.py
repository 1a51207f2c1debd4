"""The habits that tools hold: messages of commits, the hooks that run before one, and the records of decisions."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent
SCRIPT: Final = ROOT / ".ci" / "commit_message.py"


def check_message(message: str, folder: Path) -> tuple[int, str]:
    """The exit code and the errors of the script for one message."""
    (folder / "message").write_text(message, encoding="utf-8")
    words = [sys.executable, str(SCRIPT), str(folder / "message")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "" == done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "docs: explain reload",
        "core/json: keep numbers exact\n\nTwo readers disagree otherwise.\n",
        "pre-commit: pass names with spaces",
        "mcp: embed the list",
        "chat: need no second pass",
        "tests: bring a server up",
        "config: alias the key",
        "fixup! docs: explain reload",
        "docs: explain reload\n# Please enter the commit message\n# On branch main\n",
        "docs: explain reload\n\n# ------------------------ >8 ------------------------\ndiff\n" + "x" * 200,
        "x: " + "y" * 69,
    ],
)
def test_accepts_a_message(message: str, tmp_path: Path) -> None:
    assert (0, "") == check_message(message, tmp_path)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("explain reload", "write `scope: imperative subject`"),
        ("Docs: explain reload", "write `scope: imperative subject`"),
        ("docs:explain reload", "write `scope: imperative subject`"),
        ("docs: ", "write `scope: imperative subject`"),
        ("", "write `scope: imperative subject`"),
        ("Merge branch 'main' into habits", "write `scope: imperative subject`"),
        ("docs: Explain reload", "begin with a verb in lower case"),
        ("docs: explains reload", "'explains' is not imperative"),
        ("docs: explained reload", "'explained' is not imperative"),
        ("docs: explaining reload", "'explaining' is not imperative"),
        ("docs: explain reload.", "leave it out"),
        ("docs: explain reload\nIt was short.", "leave a blank line after the subject"),
        ("x: " + "y" * 70, "the subject has 73 characters: use at most 72"),
    ],
)
def test_rejects_a_message_and_says_how_to_fix_it(message: str, error: str, tmp_path: Path) -> None:
    code, errors = check_message(message, tmp_path)
    assert 1 == code
    assert error in errors
    assert 1 == errors.count("commit message: ")


def test_git_keeps_a_commit_out_whose_message_the_hook_rejects(tmp_path: Path) -> None:
    def git(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.defpath, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(
            ["git", *who, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False  # noqa: S607
        )  # fmt: skip

    assert 0 == git("init", "-q").returncode
    hook = tmp_path / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(SCRIPT))} "$1"\n')
    hook.chmod(0o755)
    rejected = git("commit", "--allow-empty", "-m", "Changes")
    assert rejected.returncode != 0
    assert "write `scope: imperative subject`" in rejected.stderr
    assert 0 == git("commit", "--allow-empty", "-m", "docs: explain reload").returncode
    assert "docs: explain reload\n" == git("log", "--format=%s").stdout


def test_the_hooks_run_the_tools_that_the_lock_pins() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repo,) = config["repos"]
    assert "local" == repo["repo"]  # nothing is fetched: one version of each tool
    entries = {hook["id"]: shlex.split(hook["entry"]) for hook in repo["hooks"]}
    locked = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    for words in entries.values():
        folder, _, tool = words[0].rpartition("/")
        assert ".venv/bin" == folder
        assert tool == "python" or f"\n{tool}==" in locked
        assert [] == [word for word in words[1:] if word.startswith(".") and not (ROOT / word).is_file()]
    assert {"ruff-format", "ruff-check", "mypy", "commit-message"} == set(entries)
    assert {"pre-commit", "commit-msg"} == set(config["default_install_hook_types"])


# --- records of decisions ---------------------------------------------------------------------------------------------
FOLDER: Final = ROOT / "docs" / "adr"
RECORDS: Final = sorted(FOLDER.glob("0*.md"))
SECTIONS: Final = ["Status", "Context", "Decision", "Consequences"]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_has_its_sections_and_fits_one_page(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert SECTIONS == re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert text.startswith(f"# {int(record.name[:4])}. ")
    assert 150 <= len(re.sub(r"\]\([^)]*\)", "", text).split()) <= 300


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_names_files_that_exist(record: Path) -> None:
    named = re.findall(r"`((?:proxy|tests)/[\w./]+|(?:call|server)/[\w./]+)`", record.read_text(encoding="utf-8"))
    planned = {"proxy/plugin.py"} if record.name.startswith("0005") else set[str]()
    found = [name for name in named if (ROOT / name).exists() or (ROOT / "proxy" / name).exists()]
    assert [] == sorted(set(named) - set(found) - planned)


def test_the_index_lists_each_record_with_its_status() -> None:
    rows = re.findall(
        r"^\| \[(\d+)\]\((0\S+)\) \| (.+) \| (.+) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert [record.name for record in RECORDS] == [name for _, name, _, _ in rows]
    for number, name, title, status in rows:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {number}. {title}\n")
        (said,) = re.findall(r"^## Status\n\n(.*?)\.", text, re.MULTILINE)
        assert status == ("accepted, not built" if "Not built" in text else said.lower())
