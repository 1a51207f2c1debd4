"""Finding calls, in a real browser: older ones, fragments and words, order, threads, copies, and keys."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import pytest

from tests.extensions.console.browser import page, wait_until
from tests.extensions.console.served import READER, ROUTES, TOKEN, Served, served

pytestmark = pytest.mark.large

MANY: Final = 203
FULL: Final = f"{{listen: 127.0.0.1:0, token: {TOKEN}, readers: {READER}, values: full}}"
ROWS: Final = "document.querySelectorAll('.call').length"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Path(tmp_path_factory.mktemp("finding")), FULL) as (running, _):
        running.call({"text": "first", "at": "soon"}, "thread")
        running.call({"text": "first", "at": "2026-12-01T09:00:00Z"}, "thread")
        for number in range(MANY):
            running.call({"text": "tea", "at": "2026-12-01T09:00:00Z"}, f"c{number}")
        yield running


def open_page(shown: Any, started: Served, view: str) -> None:
    shown.goto(started.link())
    shown.get_by_role("heading", name="Overview").wait_for()
    shown.goto(started.link(view=view))


def test_every_kept_call_is_reached_by_older_calls_and_the_way_back_leads_to_the_newest(
    started: Served, running: Any
) -> None:
    with page(running) as shown:
        open_page(shown, started, "#/calls")
        wait_until(shown, f"{ROWS} === 200")
        shown.get_by_role("link", name="older calls").click()
        wait_until(shown, f"{ROWS} === {MANY + 2 - 200}")
        assert 0 == shown.get_by_role("link", name="older calls").count()
        assert "refused 1/3" == shown.locator(".call span:nth-child(3)").last.inner_text()
        shown.get_by_role("link", name="newest").click()
        wait_until(shown, f"{ROWS} === 200")


# The typed text, the filters in the address, and the number of calls found.
SEARCHES: Final = [
    ("tool:add_reminder outcome:refused /at", {"tool": "add_reminder", "outcome": "refused", "path": "/at"}, 1),
    ("tool:rem ref", {"tool": "~rem", "text": "ref"}, 1),
    ("code:val-01", {"code": "~val-01"}, 1),
    ("refused /AT", {"text": "refused", "path": "~/AT"}, 1),
    ('"refused" format', {"text": "refused format"}, 1),
    ("outcome:ref since:1h", {"outcome": "refused", "since": "1h"}, 1),
    ("outcome:failed", {"outcome": "upstream_error"}, 0),
    ("tol:weather", {"text": "tol:weather"}, 0),
]


@pytest.mark.parametrize(("typed", "filters", "found"), SEARCHES)
def test_one_search_holds_all_filters(
    started: Served, running: Any, typed: str, filters: dict[str, str], found: int
) -> None:
    with page(running) as shown:
        open_page(shown, started, "#/calls")
        wait_until(shown, f"{ROWS} === 200")
        shown.get_by_label("search", exact=True).fill(typed)
        shown.keyboard.press("Enter")
        address = f"location.hash === {json.dumps('#/calls?' + urlencode(filters))}"
        wait_until(shown, f"[...new URLSearchParams(location.hash.split('?')[1])].length === {len(filters)}")
        assert filters == dict(parse_qsl(shown.evaluate("location.hash.split('?')[1]"))), address
        wait_until(shown, f"{ROWS} === {found} && document.querySelector('[aria-busy]') === null")
        again = shown.get_by_label("search", exact=True).input_value()
        shown.get_by_label("search", exact=True).press("Enter")
        assert filters == dict(parse_qsl(shown.evaluate("location.hash.split('?')[1]"))), again


def test_a_search_is_completed_by_names_and_values(started: Served, running: Any) -> None:
    with page(running) as shown:
        open_page(shown, started, "#/calls")
        wait_until(shown, f"{ROWS} === 200")
        search = shown.get_by_label("search", exact=True)
        options = shown.locator("#suggestions option")
        for typed, wanted in (
            ("out", "outcome:"),
            ("outcome:refused tool:rem", "outcome:refused tool:add_reminder"),
            ("code:010", "code:VAL-010"),
            ("outcome:err", "outcome:tool_error"),
            ("rem", "tool:add_reminder"),
        ):
            search.fill(typed)
            assert wanted in options.evaluate_all("all => all.map(one => one.value)"), typed


def test_a_link_of_another_page_is_shown_in_the_search(started: Served, running: Any) -> None:
    with page(running) as shown:
        open_page(shown, started, "#/calls?since=15m&tool=add_reminder&route=%2Freminders&outcome=failed")
        search = shown.get_by_label("search", exact=True)
        search.wait_for()
        assert "tool:add_reminder outcome:failed route:/reminders since:15m" == search.input_value()
        shown.get_by_text("No call here with this filter.").wait_for()


SORTED: Final = {
    "time": "seq",
    "tool": "gen_ai.tool.name",
    "outcome": "outcome",
    "attempts": "retry_attempt",
    "duration": "duration_ms",
}


@pytest.mark.parametrize("column", SORTED)
def test_sorts_calls_by_every_column_either_way_and_equal_ones_newest_first(started: Served, column: str) -> None:
    newest = started.ask("/-/calls?limit=500")["calls"]
    default = 0 if column == "attempts" else ""
    for sort, turned in ((column, False), (f"-{column}", True)):
        listed = started.ask(f"/-/calls?sort={sort}&limit=500")["calls"]
        assert sorted(newest, key=lambda call: call.get(SORTED[column], default), reverse=turned) == listed
    assert "`sort` is one of: " in started.ask("/-/calls?sort=nonsense")["error"]


def test_a_click_on_a_column_head_sorts_the_list_and_the_keyboard_does_too(started: Served, running: Any) -> None:
    first = "document.querySelector('.call span:nth-child(3)').textContent"
    with page(running) as shown:
        open_page(shown, started, "#/calls")
        wait_until(shown, f"{ROWS} === 200")
        assert "Parameter and reason" in shown.locator(".heads").inner_text()
        shown.get_by_role("button", name="attempts", exact=True).click()
        wait_until(shown, f"location.hash.includes('sort=-attempts') && {ROWS} === 200 && {first} === 'refused 1/3'")
        head = shown.get_by_role("button", name="outcome")
        head.focus()
        shown.keyboard.press("Enter")
        wait_until(shown, f"location.hash.includes('sort=outcome') && {ROWS} === 200 && {first} === 'delivered'")
        shown.keyboard.press("Enter")
        wait_until(shown, f"location.hash.includes('sort=-outcome') && {ROWS} === 200 && {first} === 'refused 1/3'")
        assert ("true", "Outcome ↓") == (head.get_attribute("aria-pressed"), head.inner_text())
        shown.keyboard.press("Enter")
        wait_until(shown, f"!location.hash.includes('sort=') && {ROWS} === 200 && {first} === 'delivered'")
        shown.locator("main").focus()
        shown.keyboard.press("s")
        assert "filter-sort" == shown.evaluate("document.activeElement.id")
        shown.locator("#filter-sort").select_option("slowest first")
        wait_until(shown, f"location.hash.includes('sort=-duration') && {ROWS} === 200")


def test_a_conversation_is_read_as_a_thread(started: Served, running: Any) -> None:
    (refused,) = started.ask("/-/calls?outcome=refused")["calls"]
    with page(running) as shown:
        open_page(shown, started, f"#/calls?conversation={refused['conversation']}")
        shown.get_by_role("link", name="as a thread").click()
        wait_until(shown, "document.querySelectorAll('.thread h2').length >= 4")
        text = shown.locator(".thread").inner_text()
        order = [text.index(word) for word in ('"soon"', "What the model read", '"2026-12-01T09:00:00Z"')]
        assert sorted(order) == order
        head = shown.locator("main > p", has_text="the last one").inner_text()
        assert re.fullmatch(r"2 calls, [\d:]+ to [\d:]+, the last one delivered\.", head)


def test_a_thread_opened_from_the_slowest_calls_is_chronological(started: Served, running: Any) -> None:
    (refused,) = started.ask("/-/calls?outcome=refused")["calls"]
    filtered = f"#/calls?conversation={refused['conversation']}&sort=-duration"
    calls = started.ask(f"/-/calls?conversation={refused['conversation']}")["calls"]
    asked: list[str] = []
    with page(running) as shown:
        open_page(shown, started, filtered)
        wait_until(shown, f"{ROWS} === {len(calls)}")
        shown.on("request", lambda request: asked.append(request.url))
        shown.get_by_role("link", name="as a thread").click()
        wait_until(shown, "document.querySelectorAll('.thread h2').length >= 4")
        assert "sort=" not in shown.evaluate("location.hash")
        open_page(shown, started, f"{filtered}&thread=1")
        wait_until(shown, "document.querySelectorAll('.thread h2').length >= 4")
    lists = [url for url in asked if "/calls?" in url and "conversation=" in url]
    assert (True, []) == (bool(lists), [url for url in lists if "sort=" in url])


def test_the_curl_command_has_the_method_of_the_call_and_quotes_its_address(running: Any, tmp_path: Path) -> None:
    routes = ROUTES.replace("path: /reminders", "path: /it's\n    methods: [PUT]")
    with served(tmp_path, FULL, routes) as (proxy, _):
        request = urllib.request.Request(
            f"http://127.0.0.1:{proxy.port}/it's", b'{"text": "it\'s", "at": "soon"}',
            {"Content-Type": "application/json"}, method="PUT",
        )  # fmt: skip
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request)  # noqa: S310 - loopback
        with page(running, permissions=["clipboard-read", "clipboard-write"]) as shown:
            open_page(shown, proxy, "#/calls")
            shown.locator(".call").first.click()
            shown.get_by_role("button", name="copy as curl").click()
            shown.get_by_role("button", name="copied").wait_for()
            words = shlex.split(shown.evaluate("navigator.clipboard.readText()"))
        answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert ["curl", "-s", "-X", "PUT", f"http://127.0.0.1:{proxy.port}/it's"] == words[:5]
    assert "Validation failed for tool 'add_reminder'" in answer


def test_a_call_is_copied_as_a_replay_line_a_test_case_and_a_curl_command_with_its_address(
    started: Served, running: Any
) -> None:
    copied = {}
    with page(running, permissions=["clipboard-read", "clipboard-write"]) as shown:
        open_page(shown, started, "#/calls?outcome=refused")
        shown.locator(".call").first.click()
        for form in ("replay line", "test case", "curl"):
            shown.get_by_role("button", name=f"copy as {form}").click()
            shown.get_by_role("button", name="copied").wait_for()
            copied[form] = shown.evaluate("navigator.clipboard.readText()")
            shown.get_by_role("button", name=f"copy as {form}").wait_for()
    line, case = json.loads(copied["replay line"]), json.loads(copied["test case"])
    assert ("add_reminder", {"text": "first", "at": "soon"}) == (line["tool"], json.loads(line["sent"]))
    assert ["text", "at"] == line["schema"]["required"]
    assert {**line, "expected": None} == case
    answer = subprocess.run(shlex.split(copied["curl"]), capture_output=True, text=True, check=True).stdout
    assert "Validation failed for tool 'add_reminder'" in answer
    judged = subprocess.run(
        [sys.executable, "-m", "proxy", "replay", "-"], input=copied["test case"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ("reject", 0) == (json.loads(judged.stdout)["decision"], judged.returncode)


def test_a_delivered_call_expects_the_arguments_that_went_to_the_tool(started: Served) -> None:
    started.call({"text": "tea", "at": "2026-12-01T09:00:00Z", "count": "2"}, "repaired")
    started.call({"text": "tea", "at": "2026-12-01T09:00:00Z", "password": "planted"}, "masked")
    masked, repaired, *_ = (started.ask(f"/-/calls/{call['id']}") for call in started.ask("/-/calls?limit=2")["calls"])
    assert ("2", 2) == tuple(json.loads(repaired[name])["count"] for name in ("sent", "expected"))
    assert "It cannot be copied: a secret in it is masked." == masked["no_copy"]
    assert [] == [name for name in ("sent", "expected", "target") if name in masked]


def test_the_page_says_why_values_are_not_shown(started: Served, running: Any) -> None:
    with page(running) as shown:
        shown.goto(started.link(READER))
        shown.get_by_text("values are not shown to readers").wait_for()
        shown.goto(started.link(view="#/calls?outcome=refused"))
        shown.locator(".call").first.click()
        shown.get_by_text("Only holders of admin.token see arguments").wait_for()
        assert 0 == shown.get_by_role("button", name="copy as curl").count()


@pytest.mark.parametrize(
    ("values", "text"),
    [("off", "Arguments are not kept."), ("preview", "These arguments are a preview, masked and cut.")],
)
def test_makes_no_copy_without_whole_values_and_names_the_setting(values: str, text: str, tmp_path: Path) -> None:
    with served(tmp_path, FULL.replace("full", f'"{values}"')) as (proxy, _):
        proxy.call({"text": "tea", "at": "soon"})
        (call,) = proxy.ask("/-/calls")["calls"]
        shown = proxy.ask(f"/-/calls/{call['id']}")
    assert text in shown["no_copy"]
    assert "set `admin.values: full`" in shown["no_copy"]
    assert [] == [name for name in ("sent", "expected", "target") if name in shown]


def test_keys_lead_to_the_filters_through_the_calls_and_to_the_list_of_keys(started: Served, running: Any) -> None:
    with page(running) as shown:
        open_page(shown, started, "#/calls")
        wait_until(shown, f"{ROWS} === 200")
        place = "[...document.querySelectorAll('.call')].indexOf(document.activeElement)"
        for key, wanted in (("j", 0), ("j", 1), ("k", 0)):
            shown.keyboard.press(key)
            assert wanted == shown.evaluate(place)
        shown.keyboard.press("?")
        shown.get_by_role("dialog").get_by_text("previous call").wait_for()
        shown.keyboard.press("Escape")
        shown.keyboard.press("/")
        assert "search" == shown.evaluate("document.activeElement.id")


def test_the_key_of_the_search_leads_there_from_another_page(started: Served, running: Any) -> None:
    with page(running, viewport={"width": 400, "height": 800}) as shown:
        open_page(shown, started, "#/upstreams")
        shown.get_by_role("heading", name="Upstreams").wait_for()
        shown.keyboard.press("/")
        wait_until(shown, "document.activeElement.id === 'search'")
        assert shown.get_by_label("search", exact=True).is_visible()


def test_tries_a_proposed_schema_on_the_kept_calls_and_shows_how_many_it_fixes(running: Any, tmp_path: Path) -> None:
    with served(tmp_path, FULL) as (proxy, _):
        for number in range(12):
            proxy.call({"text": "tea", "when": "2026-12-01T09:00:00Z"}, f"wrong{number}")
        for number in range(3):
            proxy.call({"text": "tea", "at": "2026-12-01T09:00:00Z"}, f"right{number}")
        view = "#/tools?route=%2Freminders&tool=add_reminder"
        held: list[Any] = []
        with page(running) as shown:
            shown.route("**/-/trial", lambda asked: asked.continue_() if held else held.append(asked))
            open_page(shown, proxy, view)
            shown.get_by_text("Trying 1 more proposed schema on the kept calls.").wait_for()
            wait_until(shown, "document.querySelector('.card .actions') === null")
            held[0].continue_()
            shown.get_by_text("tried on 15 kept calls: fixes 12, 3 that passed would").wait_for()
        with page(running) as shown:
            shown.goto(proxy.link(READER))
            shown.get_by_role("heading", name="Overview").wait_for()
            shown.goto(proxy.link(view=view))
            shown.get_by_text("would fix at least 12 of these calls").wait_for()


EXACT: Final = """
  - path: /exact
    upstream: tools
    tool: exact
    schema:
      type: object
      properties:
        big: {type: number, maximum: 12345678901234567890123, multipleOf: 1.0}
      required: [big]
"""


def test_numbers_of_schemas_and_arguments_are_shown_and_copied_as_they_are_written(
    running: Any, tmp_path: Path
) -> None:
    numbers = '"maximum":12345678901234567890123,"multipleOf":1.0'
    with served(tmp_path, FULL, EXACT) as (proxy, _):
        proxy.send("/exact", b'{"big": 90071992547409931.0}')
        with page(running, permissions=["clipboard-read", "clipboard-write"]) as shown:
            open_page(shown, proxy, "#/calls")
            shown.locator(".call").first.click()
            shown.get_by_role("button", name="copy as test case").click()
            shown.get_by_role("button", name="copied").wait_for()
            case = shown.evaluate("navigator.clipboard.readText()")
            came = shown.locator(".open pre").first.inner_text()
            shown.goto(proxy.link(view="#/tools?route=%2Fexact&tool=exact"))
            shown.get_by_role("button", name="copy schema as YAML").click()
            shown.get_by_role("button", name="copied").wait_for()
            yaml = shown.evaluate("navigator.clipboard.readText()")
            shown.get_by_role("link", name="try it", exact=True).click()
            wait_until(
                shown, "[...document.querySelectorAll('textarea')].at(-1)?.value.includes('\"multipleOf\": 1.0')"
            )
    assert (True, True) == (numbers in case, numbers in yaml)
    assert '"expected":{"big": 90071992547409931.0}' in case
    assert '"big": 90071992547409931.0' in came
    assert yaml.startswith('schema: {"type":"object","properties":{"big":{')


def test_upstreams_show_their_address_and_connections(started: Served, running: Any) -> None:
    (row,) = started.ask("/-/upstreams")["upstreams"]
    connections = row["connections"]
    assert 0 <= connections["idle"] <= connections["open"] <= connections["most"]
    with page(running) as shown:
        open_page(shown, started, "#/upstreams")
        shown.get_by_text(row["address"]).wait_for()
        shown.get_by_text(f"of {connections['most']}").wait_for()
    assert row["address"].startswith("http://127.0.0.1:")


def test_the_config_is_shown_with_its_secrets_masked(started: Served, running: Any) -> None:
    with page(running) as shown:
        open_page(shown, started, "#/config")
        text = shown.get_by_label("config", exact=True).inner_text()
    assert json.loads(text) == started.ask("/-/config")["config"]
    assert {"token": "***", "readers": "***"} == {
        name: json.loads(text)["admin"][name] for name in ("token", "readers")
    }


def test_serve_prints_the_console_address_and_never_its_token(started: Served) -> None:
    assert started.popen is not None
    assert started.popen.stdout is not None
    assert f"console on {started.ui}\n" == started.popen.stdout.readline()
