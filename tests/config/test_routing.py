"""Which route a request reaches: exact before template, 405, and no path that could be read two ways."""

from __future__ import annotations

import pytest

from proxy.routing import Match, MethodNotAllowed, Route, RouteTable, walk_trie


def route(path: str, *methods: str, upstream_path: str = "") -> Route:
    return Route(path, path, frozenset(methods or ("POST",)), "call", upstream_path=upstream_path or path)


def table(*paths: str) -> RouteTable:
    return RouteTable(tuple(route(path) for path in paths))


def found(routes: RouteTable, path: str, method: str = "POST") -> object:
    """(path of the route, parameters), the allowed methods, or None."""
    match = routes.match(method, path)
    if isinstance(match, Match):
        return match.route.path, dict(match.params)
    return match.methods if isinstance(match, MethodNotAllowed) else None


def test_an_exact_path_goes_before_a_template_whatever_the_order() -> None:
    routes = table("/tools/{tool}", "/tools/weather")
    assert ("/tools/weather", {}) == found(routes, "/tools/weather")
    assert ("/tools/{tool}", {"tool": "currency"}) == found(routes, "/tools/currency")


def test_a_literal_segment_goes_before_a_parameter() -> None:
    routes = table("/{a}/x", "/b/{c}", "/{a}/{c}")
    assert ("/b/{c}", {"c": "x"}) == found(routes, "/b/x")
    assert ("/{a}/x", {"a": "z"}) == found(routes, "/z/x")
    assert ("/{a}/{c}", {"a": "z", "c": "y"}) == found(routes, "/z/y")


def test_a_dead_end_of_literals_falls_back_to_parameters() -> None:
    assert ("/{a}/y/z", {"a": "b"}) == found(table("/b/x", "/b/{c}/q", "/{a}/y/z"), "/b/y/z")


def test_each_route_names_its_parameters_itself() -> None:
    routes = table("/t/{tool}", "/t/{name}/runs")
    assert ("/t/{tool}", {"tool": "a"}) == found(routes, "/t/a")
    assert ("/t/{name}/runs", {"name": "a"}) == found(routes, "/t/a/runs")


def test_an_unknown_path_is_no_route() -> None:
    routes = table("/tools/{tool}", "/a")
    assert [None] * 7 == [
        found(routes, path) for path in ("/", "/b", "/a/", "/tools", "/tools/", "/tools/a/b", "tools/a")
    ]


def test_names_the_allowed_methods_for_another_method() -> None:
    routes = RouteTable((route("/a", "POST", "PUT"), route("/a", "GET"), route("/t/{tool}", "POST")))
    assert ("GET", "POST", "PUT") == found(routes, "/a", "DELETE")
    assert ("/a", {}) == found(routes, "/a", "GET")
    assert ("POST",) == found(routes, "/t/x", "GET")


def test_the_path_chooses_the_route_and_only_then_the_method() -> None:
    routes = RouteTable((route("/t/list", "GET"), route("/t/{tool}", "POST")))
    assert ("GET",) == found(routes, "/t/list", "POST")


def test_parameters_are_decoded_exactly_once() -> None:
    routes = table("/t/{tool}")
    assert ("/t/{tool}", {"tool": "a b"}) == found(routes, "/t/a%20b")
    assert ("/t/{tool}", {"tool": "%26"}) == found(routes, "/t/%2526")
    assert ("/t/{tool}", {"tool": "wé"}) == found(routes, "/t/w%C3%A9")
    assert ("/t/{tool}", {"tool": "a+b"}) == found(routes, "/t/a+b")


def test_an_escaped_letter_is_the_letter_so_that_no_exact_route_is_passed_by() -> None:
    routes = table("/t/weather", "/t/{tool}")
    assert ("/t/weather", {}) == found(routes, "/t/%77eather")
    assert ("/t/weather", {}) == found(routes, "/%74/weather")


@pytest.mark.parametrize(
    "path",
    ["/t/a%2Fb", "/t/a%2fb", "/t/%2e%2e", "/t/..", "/t/.", "/t/%2E", "/t/a%5Cb", "/t/a\\b", "/t/a%00", "/t/a%0d%0a",
     "/t/%ff",
     "/t/%", "/t/%4", "/t/%zz", "/t/../t/a", "/t/%C0%AF", "/t//a", "//t/a", "/t/", "/t/%7f"],
)  # fmt: skip
def test_a_path_that_could_be_read_two_ways_is_no_route(path: str) -> None:
    assert found(table("/t/{tool}", "/t/{tool}/{more}"), path) is None


def test_parameters_are_escaped_into_one_segment_upstream() -> None:
    target = route("/t/{tool}", upstream_path="/api/{tool}/run/{id}").target
    assert "/api/a%20b/run/x%2Fy" == target({"tool": "a b", "id": "x/y"})
    assert "/api/w%C3%A9/run/%3Fq%23%25" == target({"tool": "wé", "id": "?q#%"})
    assert "/api/weather/run/1" == target({"id": "1"}, "weather")


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_parameter_that_would_change_the_path_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is not legal in a path"):
        route("/t/{tool}").target({"tool": value})


def test_a_path_without_parameters_stays_unchanged() -> None:
    assert "/status" == route("/status").target({})


def test_a_match_looks_at_as_many_places_with_ten_routes_as_with_ten_thousand() -> None:
    def places(number: int) -> int:
        routes = table(*(f"/svc{index}/{{tool}}" for index in range(number)), "/tools/{tool}")
        counted = 0

        class Counting(dict):  # type: ignore[type-arg]
            def get(self, key: object, default: object = None) -> object:
                nonlocal counted
                counted += 1
                return super().get(key, default)

        routes._root.literal = Counting(routes._root.literal)
        assert ("/tools/{tool}", {"tool": "x"}) == found(routes, "/tools/x")
        return counted + sum(1 for _ in walk_trie(routes._root, ("tools", "x")))

    assert places(10) == places(10_000)


def test_the_headers_that_are_set_stay_out_of_every_repr() -> None:
    secret = Route("a", "/a", frozenset({"POST"}), "call", headers_set=(("authorization", "s3cret"),))
    assert "s3cret" not in repr(RouteTable((secret,)).match("POST", "/a"))
