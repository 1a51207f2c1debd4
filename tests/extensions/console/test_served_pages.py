"""The pages of a proxy in the browser, where it changes: its config, its upstream, its readers, its own end. Tests
named `acceptance_N` are the points of the console's design."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.extensions.console.browser import page, wait_until
from tests.extensions.console.served import ADMIN, READER, ROUTES, SECRET, TOKEN, Served, served
from tests.extensions.console.test_pages import PAGES

PLAIN: Final = "an entirely plain text of somebody"
ROUTE: Final = "route=%2Freminders&tool=add_reminder"


def values(shown: str) -> str:
    return ADMIN.replace("}", f", values: {shown}}}")


def plant(started: Served) -> None:
    """Calls that are right, repaired and refused, each with a planted text and a planted secret."""
    usual = {"text": PLAIN, "at": "2026-12-01T09:00:00Z", "password": SECRET}
    started.call(usual, "right")
    started.call({**usual, "count": "3"}, "repaired")
    started.call({**usual, "at": PLAIN}, "refused")
    started.call({**usual, "password": [SECRET]}, "refused")
    started.call({**usual, "count": PLAIN, "api_key": SECRET}, "refused")


def visit(shown: Any, started: Served) -> str:
    """Opens every page and every call, and gives all that was answered and shown."""
    seen: list[str] = []
    shown.on("response", lambda answer: seen.append(answer.text()) if "/-/" in answer.url else None)
    shown.goto(started.link())
    shown.get_by_role("heading", name="Overview").wait_for()
    views = [f"#/{name}" for name in PAGES]
    views += [f"#/tools?{ROUTE}", *(f"#/calls?open={each['id']}" for each in started.ask("/-/calls")["calls"])]
    for view in views:
        shown.goto(started.link(view=view))
        shown.locator("main h1").wait_for()
        if "open=" in view:
            shown.locator(".open h2").first.wait_for()
        seen.append(shown.content())
    seen.append(json.dumps(started.ask("/-/config")))
    return "\n".join(seen)


def test_acceptance_04_with_values_off_no_planted_value_is_answered_shown_or_logged(
    tmp_path: Path, running: Any
) -> None:
    with served(tmp_path) as (started, _), page(running) as shown:
        plant(started)
        seen = visit(shown, started)
        assert [] == [word for word in (SECRET, PLAIN) if word in seen + started.log]
        assert "add_reminder" in seen


def test_acceptance_04_a_preview_shows_a_plain_value_and_no_secret(tmp_path: Path, running: Any) -> None:
    with served(tmp_path, values("preview")) as (started, _), page(running) as shown:
        plant(started)
        seen = visit(shown, started)
        assert SECRET not in seen + started.log
        assert (True, False) == (PLAIN in seen, PLAIN in started.log)


def test_acceptance_05_readers_see_no_value_and_cannot_reset(tmp_path: Path, running: Any) -> None:
    with served(tmp_path, values("full")) as (started, _), page(running) as shown:
        plant(started)
        shown.goto(started.link(READER))
        shown.get_by_text("reader", exact=True).wait_for()
        shown.goto(started.link(view="#/conversations"))
        shown.get_by_label("conversations").get_by_text("add_reminder").first.wait_for()
        assert 0 == shown.get_by_role("button", name="reset").count()
        shown.goto(started.link(view="#/calls?outcome=refused"))
        shown.locator(".call").first.click()
        shown.locator(".open h2").first.wait_for()
        assert (0, False) == (shown.get_by_role("heading", name="Received").count(), PLAIN in shown.content())
        shown.goto(started.link(view="#/config"))
        shown.get_by_text("config.yaml").wait_for()
        assert 0 == shown.get_by_role("button", name="reload now").count()
        assert "readers change nothing" in started.ask("/-/attempts/reset", {"all": True}, READER)["error"]
        assert 0 < len(started.ask("/-/conversations")["attempts"])


HOSTILE: Final = """<!doctype html><title>next door</title><iframe src="UI"></iframe><script>
const tries = [fetch("BASE/-/calls"), fetch("BASE/-/calls", {headers: {Authorization: "Bearer TOKEN"}}),
  fetch("BASE/-/calls", {mode: "no-cors"}).then((answer) => answer.type === "opaque" ? Promise.reject() : answer),
  fetch("BASE/-/attempts/reset", {method: "POST", body: '{"all": true}', headers: {"Content-Type": "text/plain"}})];
Promise.allSettled(tries).then((found) => { document.title = found.map((one) => one.status).join(); });
</script>"""


@pytest.fixture
def next_door() -> Iterator[Any]:
    """A page of another origin on this machine: what it says is set by a test."""

    class Handler(BaseHTTPRequestHandler):
        text = ""

        def do_GET(self) -> None:
            body = type(self).text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server, Handler
    server.shutdown()
    server.server_close()


def test_acceptance_06_a_page_of_another_origin_reads_changes_and_frames_nothing(
    tmp_path: Path, running: Any, next_door: Any
) -> None:
    server, handler = next_door
    with served(tmp_path, "{listen: 127.0.0.1:0}") as (started, _):
        plant(started)
        before = started.ask("/-/conversations")["attempts"]
        base = started.ui.removesuffix("/ui/")
        handler.text = HOSTILE.replace("BASE", base).replace("UI", started.ui).replace("TOKEN", TOKEN)
        context = running.new_context()
        try:
            shown = context.new_page()
            shown.goto(f"http://127.0.0.1:{server.server_port}/")
            wait_until(shown, "document.title.includes('rejected')")
            assert "rejected,rejected,rejected,rejected" == shown.title()
            (frame,) = shown.main_frame.child_frames
            assert "toolcall-proxy" not in frame.content()
            rebound = shown.goto(started.ui.replace("127.0.0.1", "rebound.test"))
            assert (403, False) == (rebound.status, "<script" in rebound.text())
        finally:
            context.close()
        assert before == started.ask("/-/conversations")["attempts"] != []


def test_acceptance_08_ten_tabs_load_and_update_while_calls_come(tmp_path: Path, running: Any) -> None:
    calls, kept, bound = 150, 100, 100e6
    right = {"text": "tea", "at": "2026-12-01T09:00:00Z"}
    with served(tmp_path, ADMIN.replace("}", ", keep: {calls: 100}}")) as (started, _), page(running) as first:
        first.goto(started.link())
        first.get_by_role("heading", name="Overview").wait_for()
        token = first.evaluate("sessionStorage.getItem('toolcall-proxy token')")
        tabs = [first, *(first.context.new_page() for _ in range(9))]
        for tab in tabs:
            tab.goto(started.ui)
            tab.evaluate("token => sessionStorage.setItem('toolcall-proxy token', token)", token)
            tab.goto(started.link(view="#/calls"))
            tab.reload()
        for tab in tabs:
            tab.bring_to_front()
            tab.get_by_text("No call here yet").wait_for()
        sender = threading.Thread(target=lambda: [started.call(right, f"c{number}") for number in range(calls)])
        sender.start()
        for tab in tabs:
            tab.bring_to_front()
            tab.locator(".call").first.wait_for()
        tabs[-1].get_by_role("button", name="pause").click()
        tabs[-1].get_by_role("button", name="resume").click()
        sender.join()
        for tab in tabs:
            tab.bring_to_front()
            wait_until(
                tab, f"document.querySelector('main').textContent.includes('{kept} calls kept (at most {kept})')"
            )
            heap = tab.context.new_cdp_session(tab).send("Runtime.getHeapUsage")["usedSize"]
            assert (True, True) == (0 < tab.locator(".call").count() <= 200, heap < bound)


def test_acceptance_10_the_tool_names_what_was_planted_and_a_change_is_tried_and_compared(
    tmp_path: Path, running: Any
) -> None:
    with served(tmp_path, values("full")) as (started, upstream), page(running) as shown:
        for number in range(7):
            started.call({"text": "tea", "at": f"0{number + 1}.12.2026, 09:00"}, f"c{number}")
        for number in range(6):
            started.call({"text": "tea", "when": "2026-12-01T09:00:00Z"}, f"d{number}")
        shown.goto(started.link())
        shown.goto(started.link(view=f"#/tools?{ROUTE}"))
        change = shown.locator(".card", has_text="format date-time")
        change.get_by_text("tried on 13 kept calls: fixes 7").wait_for()
        told = change.inner_text()
        assert all(word in told for word in ("at missed", "in 7 calls", "00.00.0000, 00:00"))
        assert ["at"] == change.locator("code").all_inner_texts()
        renamed = shown.locator(".card", has_text="came 6 times")
        assert "when came 6 times" in renamed.inner_text()
        assert ["when", "at"] == renamed.locator("code").all_inner_texts()
        assert "! 54 % refused" in shown.locator(".schema-line.hit").inner_text()
        change.get_by_role("button", name="try this change").click()
        shown.get_by_text("schema (edited)").wait_for()
        shown.get_by_role("button", name="compare over kept calls").click()
        compared = shown.locator(".card[role=status]")
        compared.wait_for()
        assert (
            "13 calls: same 0, newly accepted 7, newly refused 0, other arguments 0, other answer 6"
            in compared.inner_text()
        )
        compared.get_by_role("link", name="see them").first.click()
        wait_until(shown, "document.querySelectorAll('.call').length === 7")
        assert [] == upstream.bodies


def test_acceptance_11_a_broken_config_shows_its_place_and_clears(tmp_path: Path, running: Any) -> None:
    with served(tmp_path) as (started, _), page(running) as shown:
        good = started.text
        shown.goto(started.link())
        shown.goto(started.link(view="#/config"))
        shown.get_by_text("config.yaml").first.wait_for()
        started.write(good.replace("    upstream: tools\n", "    upstrem: tools\n"))
        place = shown.get_by_label("not in use").get_by_role("listitem").first
        place.wait_for()
        assert re.search(r"/config\.yaml:\d+:\d+ route '/reminders' ", place.inner_text())
        shown.get_by_role("link", name="NOT IN USE").wait_for()
        started.write(good)
        shown.get_by_role("link", name="NOT IN USE").wait_for(state="detached")
        shown.get_by_label("not in use").wait_for(state="detached")


def test_acceptance_11_a_killed_upstream_shows_open_and_closed_again(tmp_path: Path, running: Any) -> None:
    right = {"text": "tea", "at": "2026-12-01T09:00:00Z"}
    with served(tmp_path) as (started, upstream), page(running) as shown:
        shown.goto(started.link())
        shown.goto(started.link(view="#/upstreams"))
        shown.get_by_text("CLOSED", exact=True).wait_for()
        upstream.kill()
        for number in range(3):
            started.call(right, f"c{number}")
        shown.get_by_text(re.compile("^OPEN$|^HALF-OPEN$")).wait_for()
        shown.get_by_text(re.compile("destination_unavailable [0-9]")).wait_for()
        shown.goto(started.link(view="#/overview"))
        shown.get_by_text("the breaker of tools is").wait_for()
        upstream.start()
        shown.goto(started.link(view="#/upstreams"))
        closed = threading.Event()

        def go_on() -> None:
            while not closed.wait(0.1):
                started.call(right, "again")

        calling = threading.Thread(target=go_on)
        calling.start()
        try:
            shown.get_by_text("CLOSED", exact=True).wait_for()
        finally:
            closed.set()
            calling.join()


def test_the_overview_shows_an_outage_and_shares_that_add_up_to_100(tmp_path: Path, running: Any) -> None:
    right = {"text": "tea", "at": "2026-12-01T09:00:00Z"}
    with served(tmp_path) as (started, upstream), page(running) as shown:
        for number in range(3):
            started.call({"text": "tea"}, f"refused{number}")
        upstream.kill()
        for number in range(4):
            started.call(right, f"failed{number}")
        shown.goto(started.link())
        shown.get_by_label("needs attention").get_by_text(re.compile("4 of 7 calls failed")).wait_for()
        titles = shown.locator("table[aria-label=tools] th").all_inner_texts()
        cells = dict(zip(titles, shown.locator("table[aria-label=tools] tbody td").all_inner_texts(), strict=True))
        assert ("57 %", "43 %") == (cells["Failed"], cells["Refused"])
        assert 100 == sum(int(text.removesuffix(" %")) for text in cells.values() if re.fullmatch("[0-9]+ %", text))
        shown.locator(".legend").get_by_text("upstream error").wait_for()
        shown.get_by_text(re.compile("4 of 7 calls failed")).click()
        wait_until(shown, "document.querySelectorAll('.call').length === 4")


@pytest.mark.parametrize("counts", [[1, 1, 1], [1, 999], [2, 2, 2, 1], [1, 1, 1, 1, 1, 1], [995, 1, 1, 1, 1, 1]])
def test_shares_add_up_to_100(counts: list[int], tmp_path: Path, running: Any) -> None:
    script = """async counts => {
        const { shares } = await import("./parts.js");
        return Object.values(shares(Object.fromEntries(counts.map((count, index) => [index, count]))));
    }"""
    with served(tmp_path) as (started, _), page(running) as shown:
        shown.goto(started.link())
        shown.get_by_role("heading", name="Overview").wait_for()
        found = shown.evaluate(script, counts)
    assert len(counts) == len(found)
    assert 100 == sum(0 if text == "<1 %" else int(text.removesuffix(" %")) for text in found)


def test_acceptance_13_a_page_says_that_the_proxy_drains_or_is_gone_and_reconnects(
    tmp_path: Path, running: Any
) -> None:
    with served(tmp_path) as (started, _), page(running) as shown:
        shown.goto(started.link())
        shown.goto(started.link(view="#/calls"))
        started.call({"text": 1}, "before")
        shown.locator(".call").first.wait_for()
        started.ask("/-/drain", {"seconds": 0})
        shown.get_by_text("The proxy is draining").wait_for()
        started.stop()
        shown.get_by_text("This page reconnects by itself").wait_for()
        shown.get_by_text("DOES NOT ANSWER", exact=True).wait_for()
        started.start()
        shown.get_by_text("READY", exact=True).wait_for()
        started.call({"text": "x", "at": "soon"}, "after")
        shown.locator(".call", has_text="/at").wait_for()
        wait_until(shown, "document.querySelector('[role=alert]') === null")


FOCUSABLE: Final = "main a[href], main button:not([disabled]), main input, main select, main textarea, main summary"
# The elements that Tab reaches from the top of the page until it begins again.
MISSED: Final = "one => one.checkVisibility() && !one.dataset.reached"
FOCUSED: Final = "document.activeElement.dataset.reached = 'yes', document.activeElement === document.body"


@pytest.mark.parametrize("width", [390, 1280])
def test_acceptance_09_everything_on_every_page_is_reached_by_keyboard(
    tmp_path: Path, running: Any, width: int
) -> None:
    with served(tmp_path) as (started, _), page(running, viewport={"width": width, "height": 800}) as shown:
        plant(started)
        shown.goto(started.link())
        shown.get_by_role("heading", name="Overview").wait_for()
        for view in (*(f"#/{name}" for name in PAGES), f"#/tools?{ROUTE}"):
            shown.goto(started.link(view=view))
            wait_until(shown, "document.querySelector('main table, main textarea, main .call') !== null")
            for _ in range(200):
                shown.keyboard.press("Tab")
                if shown.evaluate(FOCUSED):
                    break
            missed = f"[...document.querySelectorAll('{FOCUSABLE}')].filter({MISSED})"
            assert [] == shown.evaluate(f"{missed}.map(one => one.outerHTML)"), view


def test_the_first_stop_of_the_keyboard_leads_to_the_content(tmp_path: Path, running: Any) -> None:
    with served(tmp_path, routes=ROUTES) as (started, _), page(running) as shown:
        shown.goto(started.link())
        shown.get_by_role("heading", name="Overview").wait_for()
        shown.keyboard.press("Tab")
        assert "to the content" == shown.evaluate("document.activeElement.textContent")
        shown.keyboard.press("Enter")
        wait_until(shown, "document.activeElement.id === 'main'")
