"""config.example.yaml shows in comments what the seeds ask for; without the comment sign, each is a config."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from proxy.config.load import Loaded, load

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "config.example.yaml").read_text(encoding="utf-8")
KEYS = (
    "feedback", "caps", "envelope", "wrap_success", "guidance", "hooks", "on_escalation", "tool_errors",
    "finalize_output_retries",
)  # fmt: skip


def _load(folder: Path, text: str) -> Loaded:
    """Loads a config beside the bundled schemas. Raises ConfigError."""
    shutil.copytree(ROOT / "schemas", folder / "schemas", dirs_exist_ok=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    return load(folder / "config.yaml", {"ESCALATION_SECRET": "s3cret"})


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_a_comment_can_be_used_unchanged(key: str, tmp_path: Path) -> None:
    (shown,) = re.findall(rf"^ *# {key}: .*$", TEXT, re.MULTILINE)
    text = TEXT.replace(shown, shown.replace("# ", "", 1))
    assert _load(tmp_path, text).config.written != _load(tmp_path, TEXT).config.written


def test_all_of_them_together_can_be_taken(tmp_path: Path) -> None:
    text = re.sub(rf"^( *)# ({'|'.join(KEYS)}): ", r"\1\2: ", TEXT, flags=re.MULTILINE)
    assert len(KEYS) == sum(line not in TEXT.splitlines() for line in text.splitlines())
    _load(tmp_path, text)


def test_the_schemas_show_each_of_our_own_keywords_once() -> None:
    shown = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "schemas").glob("*.yaml")))
    assert [1, 1, 1] == [len(re.findall(rf"^ *(?:# )?{name}:", shown, re.MULTILINE)) for name in (
        "x-hint", "x-severity", "x-sensitive",
    )]  # fmt: skip


@pytest.mark.parametrize("name", ["x-severity", "x-sensitive"])
def test_a_keyword_in_a_comment_can_be_used_unchanged(name: str, tmp_path: Path) -> None:
    _load(tmp_path, TEXT)
    path = tmp_path / "schemas" / "read_file.yaml"
    text = path.read_text()
    path.write_text(text.replace(f"# {name}:", f"{name}:"))
    assert text != path.read_text()
    notes = load(tmp_path / "config.yaml", {}).config.notes
    assert not any(name in note for note in notes)
