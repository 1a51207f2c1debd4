"""A config without call-outs loads nothing of them, and a call on a route without one enters one function of them."""

from __future__ import annotations

import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from tests.extensions.callout.service import FOLDER, PLAIN, asked, says
from tests.extensions.test_locks import PLAIN as CONFIG
from tests.extensions.test_locks import SERVE

LOADED = "\nprint([name for name in sys.modules if name.startswith('proxy.extensions.callout.call')])\n"


def test_a_config_without_call_outs_imports_nothing_of_them(tmp_path: Any) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SERVE + LOADED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (0, "[]") == (done.returncode, done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize(("path", "entered"), [("/plain", {"Callouts.extend.<locals>.begin"}), ("/pay", None)])
async def test_a_call_enters_the_plugin_only_on_a_route_with_a_call_out(path: str, entered: set[str] | None) -> None:
    found: set[str] = set()

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(FOLDER)):
            found.add(frame.f_code.co_qualname)

    async with asked(says({"action": "allow"}), more=", routes: [/pay]", routes=PLAIN) as there:
        await there.proxy.post(path, b'{"amount": 1}')
        sys.setprofile(note)
        try:
            await there.proxy.post(path, b'{"amount": 1}')
        finally:
            sys.setprofile(None)
    assert found == entered if entered is not None else "CalloutHooks.after_decision" in found
