"""The pages in a real browser. Tests named `acceptance_N` are the points of the console's design."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cli import curl
from tests.extensions.console.browser import AXE, need, page, wait_until
from tests.extensions.correction.running import Demo, demo

pytestmark = pytest.mark.large

SECRET: Final = "planted-7b2f9c-planted"
PAGES: Final = ("overview", "calls", "tools", "try", "conversations", "upstreams", "config")
TOOL: Final = "#/tools?route=%2Ftools%2Fweather&tool=weather"


@pytest.fixture(scope="module")
def started() -> Iterator[Demo]:
    with demo() as running:
        for line in running.calls:
            curl.run(line)
        yield running


def link(started: Demo) -> str:
    (line,) = [line for line in started.lines if line.startswith("console ")]
    return line.split()[1]


def call(started: Demo, path: str, body: Any, conversation: str = "c") -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{started.port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-Conversation-Id": conversation},
    )
    try:
        urllib.request.urlopen(request).read()  # noqa: S310
    except urllib.error.HTTPError as error:
        error.read()


def test_acceptance_01_the_demos_link_shows_the_overview_without_typing(started: Demo, running: Any) -> None:
    with page(running) as shown:
        shown.goto(link(started))
        shown.get_by_role("heading", name="Overview").wait_for()
        shown.get_by_text("READY").wait_for()
        assert shown.url.endswith("/ui/#/overview")
        assert link(started).partition("#k=")[2] not in shown.content()


def test_acceptance_02_sample_calls_are_listed_and_a_view_survives_reload_back_and_copy(
    started: Demo, running: Any
) -> None:
    with page(running) as shown:
        shown.goto(link(started))
        shown.get_by_role("link", name="Calls", exact=True).click()
        shown.locator(".call").first.wait_for()
        assert {"delivered", "repaired", "refused 1/3"} <= set(
            shown.locator(".call span:nth-child(3)").all_inner_texts()
        )
        shown.get_by_label("search", exact=True).fill("outcome:repaired")
        shown.keyboard.press("Enter")
        wait_until(shown, "location.hash.includes('outcome=repaired')")
        words = "[...document.querySelectorAll('.call span:nth-child(3)')].map(one => one.textContent)"
        repaired = f"{words}.length > 0 && {words}.every(word => word == 'repaired')"
        wait_until(shown, repaired)
        copied = shown.url
        shown.reload()
        wait_until(shown, repaired)
        assert copied == shown.url
        shown.get_by_role("link", name="Config").click()
        shown.get_by_role("heading", name="Config").wait_for()
        shown.go_back()
        assert copied == shown.url


def test_acceptance_03_a_repaired_call_shows_its_change_and_a_refused_one_what_its_client_got(
    started: Demo, running: Any
) -> None:
    call(started, "/tools/weather", {"lat": "48.85", "lon": 2.35})
    call(started, "/tools/weather", {"lat": SECRET, "lon": 2.35}, "secret")
    with page(running) as shown:
        shown.goto(link(started))
        shown.goto(link(started).partition("#")[0] + "#/calls?outcome=repaired")
        shown.locator(".call").first.click()
        shown.locator(".open").get_by_text("string_to_number").first.wait_for()
        opened = shown.locator(".open").inner_text()
        assert all(word in opened for word in ("/lat", '- "48.85"', "+ 48.85"))
        shown.goto(link(started).partition("#")[0] + "#/calls?outcome=refused")
        shown.locator(".call").first.click()
        told = shown.locator(".open pre").last
        told.wait_for()
        assert f'Actual: "{SECRET}"' in told.inner_text()
        assert "What the model read, values masked" not in shown.content()


def test_an_address_that_changes_while_the_page_starts_is_the_page_that_is_shown(started: Demo, running: Any) -> None:
    with page(running) as shown:
        shown.goto(link(started))
        shown.get_by_role("heading", name="Overview").wait_for()
        # Modules run before this event, the first painting and the effects after it.
        shown.add_init_script("addEventListener('DOMContentLoaded', () => { location.hash = '#/upstreams' })")
        shown.reload()
        shown.get_by_role("heading", name="Upstreams").wait_for()


def test_hides_the_calls_of_the_last_filter_while_the_next_one_loads(started: Demo, running: Any) -> None:
    call(started, "/tools/weather", {"lat": "48.85", "lon": 2.35})
    held: list[Any] = []
    released: list[bool] = []
    with page(running) as shown:
        shown.goto(link(started))
        shown.get_by_role("link", name="Calls", exact=True).click()
        shown.locator(".call").first.wait_for()
        shown.route(
            re.compile("/-/calls.*outcome=repaired"),
            lambda asked: asked.continue_() if released else held.append(asked),
        )
        shown.get_by_label("search", exact=True).fill("outcome:repaired")
        shown.keyboard.press("Enter")
        shown.get_by_text("Asking the proxy.").wait_for()
        assert 0 == shown.locator(".call").count()
        released.append(True)
        for asked in held:
            asked.continue_()
        shown.locator(".call").first.wait_for()
        assert {"repaired"} == set(shown.locator(".call span:nth-child(3)").all_inner_texts())


def test_acceptance_05_a_wrong_token_leads_to_the_login_and_a_closed_tab_forgets(started: Demo, running: Any) -> None:
    base, _, token = link(started).partition("#k=")
    with page(running) as shown:
        shown.goto(f"{base}#k=nonsense-that-is-wrong")
        shown.get_by_text("This token is wrong.").wait_for()
        shown.get_by_label("token").fill(token)
        shown.get_by_role("button", name="log in").click()
        shown.get_by_role("heading", name="Overview").wait_for()
    with page(running) as another:
        another.goto(base)
        another.get_by_role("button", name="log in").wait_for()
        assert 0 == another.get_by_role("heading", name="Overview").count()


def test_sends_a_wrong_token_only_once_so_that_the_right_one_is_not_locked_out(started: Demo, running: Any) -> None:
    base, _, token = link(started).partition("#k=")
    with page(running) as shown:
        shown.clock.install()
        sent: list[str] = []
        shown.on("request", lambda request: sent.append(request.url) if "/-/" in request.url else None)
        shown.goto(f"{base}#k=nonsense-that-is-wrong")
        shown.get_by_text("This token is wrong.").wait_for()
        shown.clock.run_for(60_000)
        shown.evaluate("fetch('/livez').then(answer => answer.text())")
        assert [f"{base.removesuffix('ui/')}-/overview?window=1m"] == sent
        shown.goto(f"{base}#k={token}")
        shown.get_by_role("heading", name="Overview").wait_for()


def test_acceptance_07_text_of_models_appears_as_text(started: Demo, running: Any) -> None:
    hostile = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "left\u202eright", "x" * 100_000]
    for number, key in enumerate(hostile):
        call(started, "/tools/weather", {"lat": "x", "lon": 1, key: key}, f"hostile{number}")
        call(started, "/call", {"tool": key[:200], "arguments": {}}, f"hostile{number}")
    with page(running) as shown:
        shown.on("dialog", lambda dialog: shown.problems.append(f"dialog {dialog.message}"))
        shown.goto(link(started))
        for place in ("#/calls", TOOL, "#/conversations"):
            shown.goto(link(started).partition("#")[0] + place)
            shown.get_by_role("heading").first.wait_for()
            wait_until(shown, "document.querySelector('.call, table') !== null")
            assert 0 == shown.locator("main img, main script").count()
            assert "\u202e" not in shown.locator("main").inner_text()
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_address_that_names_no_page_says_so(started: Demo, running: Any) -> None:
    with page(running) as shown:
        shown.goto(link(started))
        for name in ("__proto__", "constructor", "nothing"):
            shown.goto(link(started).partition("#")[0] + f"#/{name}?toString=1&__proto__=2")
            shown.get_by_role("heading", name="Page not found").wait_for()
        shown.get_by_role("link", name="overview", exact=True).click()
        shown.get_by_role("heading", name="Overview").wait_for()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_acceptance_09_axe_finds_nothing_and_nothing_scrolls_sideways(
    started: Demo, running: Any, width: int, scheme: str
) -> None:
    need("axe-core", there=AXE.exists())
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme, "bypass_csp": True}
    with page(running, **options) as shown:
        shown.goto(link(started))
        shown.get_by_role("heading", name="Overview").wait_for()
        shown.evaluate(AXE.read_text(encoding="utf-8"))
        base, found = link(started).partition("#")[0], {}
        for place in [*(f"#/{name}" for name in PAGES), TOOL]:
            shown.goto(base + place)
            wait_until(shown, "document.querySelector('main h1') !== null")
            shown.wait_for_timeout(300)
            if place == "#/calls":
                shown.locator(".call").first.click()
                shown.locator(".open h2").first.wait_for()
            report = shown.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found[place] = [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in report["violations"]]
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        assert {place: [] for place in found} == found


def test_acceptance_09_the_keyboard_is_enough_to_open_a_call(started: Demo, running: Any) -> None:
    with page(running) as shown:
        shown.goto(link(started))
        shown.get_by_role("link", name="Calls", exact=True).focus()
        shown.keyboard.press("Enter")
        shown.locator(".call").first.wait_for()
        shown.locator(".call").first.focus()
        shown.keyboard.press("Enter")
        shown.locator(".open h2").first.wait_for()
        assert "true" == shown.locator(".call[aria-expanded=true]").get_attribute("aria-expanded")


def test_acceptance_12_an_escalated_conversation_is_shown_and_starts_over_after_its_reset(
    started: Demo, running: Any
) -> None:
    for number in range(3):
        call(started, "/tools/read_file", {"path": [number]}, "waits")
    with page(running) as shown:
        shown.goto(link(started))
        shown.get_by_text(re.compile("waits? for a human")).click()
        shown.get_by_text("Escalated, blocked").first.wait_for()
        shown.get_by_label("what to do").get_by_text("its next call is attempt 1 again").wait_for()
        shown.get_by_label("find conversation ID").fill("waits")
        shown.get_by_role("button", name="find").click()
        shown.get_by_role("button", name="reset").click()
        shown.get_by_text("Nothing is remembered of this conversation.").wait_for()
        call(started, "/tools/read_file", {"path": [9]}, "waits")
        shown.get_by_text("1/3").wait_for()
        assert 0 == shown.get_by_text("Escalated, blocked").count()


def test_an_edited_schema_is_validated_and_a_mistake_in_it_is_named(started: Demo, running: Any) -> None:
    with page(running) as shown:
        shown.goto(link(started))
        shown.goto(link(started).partition("#")[0] + "#/try?route=%2Ftools%2Fweather&tool=weather")
        shown.get_by_label("arguments").fill('{"lat": "north", "lon": 1}')
        shown.get_by_role("button", name="validate").click()
        shown.locator(".card b.warn").wait_for()
        schema = shown.get_by_label(re.compile("schema"))
        schema.fill('{"type": "object"}')
        shown.get_by_role("button", name="validate").click()
        shown.locator(".card b.good").wait_for()
        schema.fill('{"type": "nonsense"}')
        shown.get_by_role("button", name="validate").click()
        shown.get_by_role("alert").wait_for()
        assert "/type" in shown.get_by_role("alert").inner_text()
