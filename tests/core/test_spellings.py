"""Other spellings of a path, and the judged path they lead to."""

from __future__ import annotations

import pytest

from proxy.core.contract.spellings import JudgedPaths, leaves_segment
from proxy.core.model.value_class import value_class

POST = frozenset({"POST"})


@value_class
class JudgedRoute:
    path: str
    upstream: str
    upstream_path: str
    methods: frozenset[str] = POST
    kind: str = "call"


JUDGED = JudgedPaths([JudgedRoute("/x/weather", "u", "/weather"), JudgedRoute("/t/{id}/run", "u", "/t/{id}/run")])


def reached(path: str, target: str, method: str = "POST", upstream: str = "u") -> str:
    return next(iter(JUDGED.list_reached(path.split("/")[1:], upstream, target, {method})), "")


@pytest.mark.parametrize(
    "last", ["Weather", "weather;v=1", "weather.", "weather ", "weather;", "weather/", "weather\u200b", "weather%20",
             "WEATHER. .", "weather%3bv", "\tweather", "weather.json", "Weather.JSON", "weather.json;v",
             "weather.html. ", "weather::$DATA", "weather%3a%3a$data", "weather%3fx", "weather?x=1", "weather%23x",
             "weather.php?x", "weather.a-b", "weather.tar.gz", "weather.\uff4ason", "weather.json%00"]
)  # fmt: skip
def test_another_spelling_leads_to_the_validated_path(last: str) -> None:
    assert "/x/weather" == reached(f"/x/{last}", f"/{last}")


@pytest.mark.parametrize("last", ["weathers", "weather,x", "weather:", "weather:run", ".weather", "other", "weather-1"]
)  # fmt: skip
def test_another_name_leads_nowhere(last: str) -> None:
    assert "" == reached(f"/x/{last}", f"/{last}")


def test_rejects_the_path_of_a_validated_format_without_it_or_with_another() -> None:
    routes = [JudgedRoute(path, "u", path) for path in ("/t.json", "/v1.0/run", "/api/chat.post")]
    judged = JudgedPaths(routes)
    paths = ("/t", "/t.xml", "/t.", "/v1.1/run", "/v1.0/run.x", "/api/chat.post.json", "/api/chat.update", "/api/chat")
    shown = [judged.list_reached(path.split("/")[1:], "u", path, POST) for path in paths]
    assert [["/t.json"]] * 3 + [[], ["/v1.0/run"], ["/api/chat.post"], [], []] == shown


def test_a_template_is_reached_as_well() -> None:
    assert "/t/{id}/run" == reached("/T/7/Run", "/T/7/Run")


def test_only_the_same_upstream_the_same_place_there_and_a_validated_method_count() -> None:
    assert ["", "", ""] == [
        reached("/x/Weather", "/Weather", upstream="other"),
        reached("/x/Weather", "/elsewhere/Weather"),
        reached("/x/Weather", "/Weather", method="GET"),
    ]


def test_a_template_that_can_reach_a_validated_path_is_known_beforehand() -> None:
    assert ["/x/weather"] == JUDGED.list_reached(["x", "{any}"], "u", "/{any}", POST)
    assert [] == JUDGED.list_reached(["x", "{any}"], "u", "/{any}", frozenset({"GET"}))
    assert [] == JUDGED.list_reached(["x", "{any}", "{more}"], "u", "/{any}/{more}", POST)


@pytest.mark.parametrize(
    "value",
    ["..;", ".;x", "..;a", "a;..;", ";a", "%2e%2e", "%252e%252e", "%2f", "a%2fb", "%5c", "..%3b", "%2e", ".. ;"],
)
def test_a_value_that_some_server_takes_for_more_than_a_segment_leaves_it(value: str) -> None:
    assert leaves_segment(value)


@pytest.mark.parametrize("value", ["abc", "a.b", "...", "a;b", "100%", "%26", "v1.2", "a%20b", "..a"])
def test_any_other_value_stays(value: str) -> None:
    assert not leaves_segment(value)


@pytest.mark.parametrize(("value", "leaves"), [("..;", True), ("%2e%2e", True), ("a%2fb", False), (";v=1", False)])
def test_a_passthrough_segment_may_hold_more_but_never_leads_up(value: str, leaves: bool) -> None:
    assert leaves == leaves_segment(value, judged=False)
