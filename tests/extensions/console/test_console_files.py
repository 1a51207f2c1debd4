"""The pages' files: what the vendored ones are, what none may hold, and how they are served."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from proxy.extensions.console.pages import FOLDER, list_files
from tests.serving.proxied import WEATHER, proxied

VENDOR: Final = FOLDER / "vendor"
OWN: Final = sorted(path for path in FOLDER.glob("*.js"))


def test_the_vendored_files_are_those_that_vendor_json_names() -> None:
    rows = json.loads((VENDOR / "vendor.json").read_text())
    assert {row["file"]: row["sha256"] for row in rows} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")
    }
    assert all((VENDOR / row["licence_file"]).is_file() for row in rows)


def test_own_javascript_is_short_and_turns_no_text_into_code() -> None:
    texts = {path.name: path.read_text() for path in OWN}
    assert sum(text.count("\n") for text in texts.values()) <= 1500
    forbidden = re.compile(r"innerHTML|dangerouslySetInnerHTML|\beval\(|new Function|document\.write|\son[a-z]+=\"")
    assert [] == [name for name, text in texts.items() if forbidden.search(text)]


def test_acceptance_18_no_file_names_another_host() -> None:
    named = re.compile(r"https?://(?!www\.w3\.org/)")
    own = [path for path in list_files().values() if path.parent == FOLDER]
    assert [] == [path.name for path in own if named.search(path.read_text())]


async def test_files_have_a_strict_policy_and_are_not_sent_again_to_a_client_that_has_them() -> None:
    async with proxied(WEATHER, admin="{listen: 127.0.0.1:0, token: a-token-of-the-operator}") as proxy:
        shown = await proxy.ask_admin("/ui/")
        tag = shown.header("etag") or ""
        again = await proxy.ask_admin("/ui/", f"If-None-Match: {tag}")
        outside = [await proxy.ask_admin(path) for path in ("/ui/../api.py", "/ui/console_files.py", "/ui/vendor/")]
        start = await proxy.ask_admin("/", "Accept: text/html")
        bare = [await proxy.ask_admin(path) for path in ("/", "/ui")]
        data = await proxy.ask_admin("/-/overview")

    assert [303, 303] == [seen.status for seen in bare]
    assert (200, 304, 303, 401) == (shown.status, again.status, start.status, data.status)
    assert "require-trusted-types-for 'script'" in (shown.header("content-security-policy") or "")
    assert [404] * 3 == [seen.status for seen in outside]


def test_the_folder_is_part_of_the_package() -> None:
    assert Path(__file__).parents[3] / "proxy" in FOLDER.parents


def test_acceptance_16_serving_loads_no_module_of_the_pages() -> None:
    code = "import sys, proxy.server.lifecycle; print([name for name in sys.modules if '.extensions.' in name])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == told.stdout
