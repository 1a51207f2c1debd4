"""The sentences of the project: 0 findings in what users read, and in code no more than there were."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent.parent
SCRIPT: Final = ROOT / ".ci" / "language.py"
# The most findings in comments, docstrings and test names of a package, and in docs/evidence. When a change
# removes findings, lower the number (`python .ci/language.py --code` prints all); never raise one.
MOST: Final = {
    "docs/evidence": 23,
    "tests": 5,
}


@pytest.fixture(scope="module")
def language() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("language", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["language"] = module
    spec.loader.exec_module(module)
    return module


def test_user_facing_text_has_no_finding(language: Any) -> None:
    assert [] == list(map(str, language.check_user_facing()))


@pytest.mark.parametrize(
    "page", ["README", "docs/start", "docs/config", "docs/contract", "docs/mcp", "docs/kubernetes"]
)
def test_the_first_pages_have_at_most_25_words_in_a_sentence(
    language: Any, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "LONGEST", 25)
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    assert [] == list(map(str, language.check(page, language.read_markdown(text))))


def test_code_has_no_more_findings_than_before(language: Any) -> None:
    found = language.count_code()
    assert {} == {package: count for package, count in found.items() if count > MOST.get(package, 0)}
    lower = {package: found[package] for package, most in MOST.items() if found[package] < most}
    assert {} == lower, "record the lower numbers in MOST"


@pytest.mark.parametrize(
    "sentence",
    [
        "What came is kept.",
        "It works: Who asks gets an answer.",
        "Where a schema lists a value it is checked.",
        "A call passes where the tool is known.",
        "The model is told to stop.",
        "The call goes on.",
        "This key stands here.",
        "It counts here alone.",
        "The file is read anew.",
        "A worker with a memory of its own.",
        "One " + "word " * 30 + "too many.",
    ],
)
def test_finds_a_sentence_that_is_not_plain(language: Any, sentence: str) -> None:
    assert 1 <= len(list(language.check("x", iter([language.Text(1, sentence, "prose")]))))


@pytest.mark.parametrize(
    "sentence",
    [
        "The proxy keeps the request.",
        "What is a container?",
        "The log line `What came is kept` stays.",
        'It prints "goes on" and stops.',
        "If a schema lists a value, the proxy checks it. The place where calls arrive is a port.",
    ],
)
def test_accepts_a_plain_sentence(language: Any, sentence: str) -> None:
    assert [] == list(language.check("x", iter([language.Text(1, sentence, "prose")])))


def test_reads_each_kind_of_text_in_code(language: Any) -> None:
    code = '''"""What it is."""
# This goes on.
def test_what_stands() -> None:
    """Gives nothing."""
    x = 1  # told
    print(f"it stands at {x} alone")
'''
    found = list(language.check("x.py", language.read_python(code, literals=False)))
    assert [1, 2, 3, 4, 5] == sorted({finding.line for finding in found})
    messages = list(language.check("x.py", language.read_python(code, literals=True)))
    assert [6, 6] == [finding.line for finding in messages]
