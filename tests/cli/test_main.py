"""The frame of the command line: verbs, help, exit codes, and that nothing heavy is imported before it is needed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.__main__ import OWN_VERBS, VERBS, main
from tests.serving.wire import JSON_TYPE, answer, replies, tool

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
    assert set(OWN_VERBS) == {name.rstrip("_") for name, text in texts.items() if "def register(" in text}


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert f"toolcall-proxy {__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["demmo"], ["explain"], ["demo", "--nothing"]])
def test_wrong_usage_ends_with_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: toolcall-proxy" in capsys.readouterr().err


def test_without_a_word_the_whole_help_is_shown() -> None:
    done = run()
    assert (2, "") == (done.returncode, done.stdout)
    assert run("--help").stdout == done.stderr


def test_suggests_the_nearest_verb_for_an_unknown_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serv"])
    said = f"there is no verb 'serv'  (did you mean 'serve'?)\nverbs: {', '.join(VERBS)}\n"
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("serve", "serve: which config?"),
        ("serve a.yaml --config b.yaml", "serve: CONFIG and --config cannot be combined: use one of them\n"),
    ],
)
def test_rejects_words_that_exclude_each_other(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_threshold()
    assert (2, before, True) == (main(words.split()), gc.get_threshold(), gc.isenabled())
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["config.example.yaml"], ["--config", "config.example.yaml"]])
def test_check_takes_the_config_either_way(words: list[str]) -> None:
    done = run("check", *words)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("config.example.yaml: ok, ")


@pytest.mark.parametrize("address", ["foo", "127.0.0.1:99999", "http://127.0.0.1:8081/-/drain"])
def test_an_address_that_cannot_be_asked_to_drain_is_a_usage_error(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["drain", "--admin", address])
    assert f"{address!r} is not HOST:PORT, such as 127.0.0.1:8081, or unix:/PATH" in capsys.readouterr().err


def test_a_drain_that_nobody_answers_says_where_to_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["drain", "--admin", f"unix:{tmp_path}/gone.sock", "--wait", "0"])
    assert "No such file or directory  (is the proxy running" in capsys.readouterr().err


async def test_a_drain_at_another_port_than_the_operators_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async with tool(replies(answer("404 Not Found", b"{}", JSON_TYPE))) as server:
        address = server.url.removeprefix("http://")
        assert 1 == await asyncio.to_thread(main, ["drain", "--admin", address])
    said = f"drain: {address}: no operator's port  (it is where `admin.listen` says)\n"
    assert said == capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from proxy.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('aiohttp', 'jiter', 'jsonschema', 'yaml', 'structlog') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_option_shows_the_usage_of_its_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "--config", "c.yaml", "--route", "/a", "{}", "--jsom"])
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("usage: toolcall-proxy validate ")
    assert "toolcall-proxy validate: error: unrecognized arguments: --jsom" == said[-1]
