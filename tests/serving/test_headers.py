"""Which headers cross, as pure functions: the cases that need no socket."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.model.fields import FieldNames
from proxy.core.model.values import Fields, Headers
from proxy.server.bound_route import make_request_headers
from proxy.server.http.headers import Caller, Changes, Hop, make_reply_headers
from proxy.server.http.request_head import make_fields

TRUSTING = Hop("me", (ip_network("10.0.0.0/8"), ip_network("::1/128")))


def fields(hop: Hop, peer: str, headers: Headers) -> dict[str, str]:
    return dict(hop.own_fields(peer, "http", headers))


def test_keeps_and_extends_the_fields_of_a_trusted_hop() -> None:
    said: Headers = (
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.test"),
        ("host", "inner"),
    )

    assert {
        "via": "1.1 me",
        "x-forwarded-for": "203.0.113.7, 10.1.2.3",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "shop.test",
    } == fields(TRUSTING, "10.1.2.3", said)


def test_replaces_the_fields_of_anybody_else() -> None:
    said: Headers = (("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "https"), ("host", "shop.test"))

    assert {
        "via": "1.1 me",
        "x-forwarded-for": "192.0.2.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.test",
    } == fields(TRUSTING, "192.0.2.1", said)


@pytest.mark.parametrize(("peer", "believed"), [("10.1.2.3", ["prefix", "port"]), ("192.0.2.1", [])])
def test_forwards_other_fields_of_the_family_only_from_a_trusted_hop(peer: str, believed: list[str]) -> None:
    said: Headers = (("x-forwarded-prefix", "/shop"), ("x-forwarded-port", "443"), ("x_forwarded_ssl", "on"))
    sent = make_request_headers(said, Changes().dropped, TRUSTING.own_fields(peer, "http", said))

    ours = {"via", "x-forwarded-for", "x-forwarded-proto"}
    assert [f"x-forwarded-{name}" for name in believed] == [name for name, _ in sent if name not in ours]


@pytest.mark.parametrize(
    ("peer", "said", "element"),
    [
        ("10.1.2.3", "for=203.0.113.7;proto=https", "for=10.1.2.3;host=inner;proto=http"),
        ("::1", 'for="[2001:db8::7]:4711"', 'for="[::1]";host=inner;proto=http'),
    ],
)
def test_a_trusted_hops_forwarded_field_is_kept_and_extended(peer: str, said: str, element: str) -> None:
    headers: Headers = (("forwarded", said), ("host", "inner"))

    assert f"{said}, {element}" == fields(TRUSTING, peer, headers)["forwarded"]


def test_joins_fields_on_several_lines() -> None:
    said: Headers = (
        ("via", "1.1 a"),
        ("x-forwarded-for", "203.0.113.7"),
        ("via", "1.0 b"),
        ("x-forwarded-for", "10.9.9.9"),
    )

    assert ("1.1 a, 1.0 b, 1.1 me", "203.0.113.7, 10.9.9.9, 10.1.2.3") == (
        fields(TRUSTING, "10.1.2.3", said)["via"],
        fields(TRUSTING, "10.1.2.3", said)["x-forwarded-for"],
    )


def test_two_forwarded_fields_become_one_and_a_port_is_quoted() -> None:
    headers: Headers = (("forwarded", "for=_a"), ("forwarded", "for=unknown"), ("host", "inner:80"))

    assert (
        'for=_a, for=unknown, for=10.0.0.1;host="inner:80";proto=http'
        == (fields(TRUSTING, "10.0.0.1", headers)["forwarded"])
    )


def test_anybody_elses_forwarded_field_ends_here() -> None:
    headers: Headers = (("forwarded", "for=203.0.113.7"), ("host", "inner"))

    assert ("192.0.2.1", False) == (
        TRUSTING.client("192.0.2.1", headers),
        "forwarded" in fields(TRUSTING, "192.0.2.1", headers),
    )
    assert () == make_request_headers((("forwarded", "for=203.0.113.7"),), Changes().dropped, ())


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("for=203.0.113.7", "203.0.113.7"),
        ('For="203.0.113.7:47011";proto=http;by=203.0.113.43', "203.0.113.7"),
        ('for="[2001:db8:cafe::17]:4711", for=10.0.0.2', "2001:db8:cafe::17"),
        ('for=6.6.6.6, for=203.0.113.7;host="a,for=7.7.7.7"', "203.0.113.7"),
        ("for=203.0.113.7, for=unknown", ""),
        ("proto=https", "10.0.0.1"),
        ('for=6.6.6.6;host=", for="[2001:db8::17]"', ""),
        ('for=6.6.6.6;x=", for=203.0.113.7;host="shop.test"', ""),
        ("for=6.6.6.6 7", ""),
    ],
)
def test_the_client_is_read_from_a_trusted_hops_forwarded_field(said: str, client: str) -> None:
    assert client == TRUSTING.client("10.0.0.1", (("forwarded", said),))


def test_x_forwarded_for_goes_before_forwarded() -> None:
    headers: Headers = (("forwarded", "for=6.6.6.6"), ("x-forwarded-for", "203.0.113.7"))

    assert "203.0.113.7" == TRUSTING.client("10.0.0.1", headers)


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        ("192.0.2.1", "203.0.113.7", "192.0.2.1"),
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "203.0.113.7:49152, 10.0.0.2:1", "203.0.113.7"),
        ("10.0.0.1", "[2001:db8::7]:49152", "2001:db8::7"),
        ("10.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("", "203.0.113.7", ""),
    ],
)
def test_the_client_is_the_nearest_address_before_the_trusted_hops(peer: str, said: str, client: str) -> None:
    headers: Headers = (("x-forwarded-for", said),) if said else ()

    assert client == TRUSTING.client(peer, headers)


def test_a_route_may_set_and_remove_fields() -> None:
    changes = Changes((("authorization", "ours"),), frozenset({"x-debug"}))
    headers: Headers = (("authorization", "theirs"), ("x-debug", "1"), ("x-keep", "2"))

    assert (("x-keep", "2"), ("authorization", "ours")) == make_request_headers(headers, changes.dropped, changes.set)


def test_drops_a_field_named_by_connection_even_if_it_comes_first() -> None:
    headers: Headers = (("x-mine", "1"), ("connection", "close , X-Mine"), ("x-keep", "2"))

    assert (("x-keep", "2"),) == make_request_headers(headers, Changes().dropped, ())
    assert [("x-keep", "2")] == make_reply_headers((("X-Mine", "1"), ("Connection", "x-mine"), ("x-keep", "2")))


NAMES = st.sampled_from(
    ["host", "connection", "keep-alive", "close", "x-mine", "x-keep", "x_mine", "x-forwarded-port", "x_forwarded_for",
     "not-x-forwarded-for", "proxy-connection", "authorization", "content_length"]
)  # fmt: skip
VALUES = st.sampled_from(["keep-alive", "close", "x-mine", "keep-alive, x-mine", "Keep-Alive", "close,authorization"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6).map(tuple))
def test_fields_that_were_indexed_cross_as_those_do_that_were_not(headers: Headers) -> None:
    dropped, own = Changes((("authorization", "ours"),)).dropped, (("via", "1.1 me"),)
    named = make_fields(FieldNames([name for name, _ in headers]), [value for _, value in headers])

    for _ in range(2):  # the second time the names are known
        assert make_request_headers(headers, dropped, own) == make_request_headers(named, dropped, own)


SAID = st.lists(
    st.sampled_from(
        [("host", "a"), ("host", "b"), ("via", "1.1 x"), ("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=::1")]
    ),
    max_size=4,
    unique_by=lambda field: field[0],
).map(Fields)


@given(st.sampled_from(["10.1.2.3", "192.0.2.1", ""]), st.lists(SAID, max_size=5))
def test_cached_fields_of_a_connection_hold_for_each_of_its_requests(peer: str, requests: list[Fields]) -> None:
    caller = Caller.of(TRUSTING, peer, "https")

    for headers in requests:
        assert TRUSTING.own_fields(peer, "https", headers) == caller.own_fields(headers)
        assert TRUSTING.client(peer, headers) == caller.client(headers)


ADDRESSES = ("x-real-ip", "true-client-ip", "x-client-ip")
PATHS = ("x-original-uri", "x-original-method", "x-envoy-original-path", "x-original-forwarded-for")


def test_an_address_that_a_client_claims_is_replaced_by_the_one_that_was_seen() -> None:
    said: Headers = tuple((name, "203.0.113.7") for name in ADDRESSES)
    sent = make_request_headers(said, Changes().dropped, TRUSTING.own_fields("192.0.2.1", "http", said))

    assert [(name, "192.0.2.1") for name in ADDRESSES] == [field for field in sent if field[0] in ADDRESSES]


def test_on_a_socket_without_addresses_a_claimed_one_is_dropped() -> None:
    said: Headers = (("x-real-ip", "203.0.113.7"), ("x_real_ip", "203.0.113.7"), ("cf-connecting-ip", "203.0.113.7"))

    assert (("via", "1.1 me"), ("x-forwarded-proto", "http")) == make_request_headers(
        said, Changes().dropped, TRUSTING.own_fields("", "http", said)
    )


@pytest.mark.parametrize(("peer", "believed"), [("10.1.2.3", True), ("192.0.2.1", False)])
def test_original_paths_are_believed_only_from_a_trusted_hop(peer: str, believed: bool) -> None:
    said = Fields([*((name, "/admin") for name in PATHS), ("x-rewrite-url", "/admin"), ("host", "x")])
    own = Caller.of(TRUSTING, peer, "http").own_fields(said)
    sent = {name for name, _ in make_request_headers(said, Changes().dropped, own)}

    assert ({*PATHS, "x-rewrite-url"} if believed else set()) == sent & {*PATHS, "x-rewrite-url"}


def test_a_caller_that_claims_an_address_once_does_not_claim_it_for_the_next_request() -> None:
    caller = Caller.of(TRUSTING, "192.0.2.1", "http")
    plain = caller.own_fields(Fields([("host", "x")]))

    assert "x-real-ip" in dict(caller.own_fields(Fields([("host", "x"), ("x-real-ip", "1.2.3.4")])))
    assert plain == caller.own_fields(Fields([("host", "x")]))


def test_a_trusted_hop_names_no_other_path_on_a_validating_route() -> None:
    said = Fields([("host", "x"), ("x-original-url", "/admin"), ("x-rewrite-url", "/a"), ("x-original-uri", "/o")])
    caller = Caller.of(TRUSTING, "10.1.2.3", "http")

    assert {"x-original-url", "x-rewrite-url"} == dict(caller.own_fields(said)).keys() - dict(
        caller.own_fields(said, judged=True)
    ).keys()


def test_requests_with_the_same_names_cross_by_their_own_values() -> None:
    names = FieldNames(["Host", "X-Keep", "Connection", "X-Hop"])
    lasting = make_fields(names, ["a", "1", "keep-alive", "2"])
    naming = make_fields(names, ["a", "1", "x-hop", "2"])
    dropped = Changes().dropped
    for _ in range(2):  # the second time the names are known
        assert (("x-keep", "1"), ("x-hop", "2")) == make_request_headers(lasting, dropped, ())
        assert (("x-keep", "1"),) == make_request_headers(naming, dropped, ())
        assert (("x-hop", "2"),) == make_request_headers(lasting, dropped | {"x-keep"}, ())


def test_a_field_that_comes_twice_keeps_its_first_value_and_both_cross() -> None:
    fields = make_fields(
        FieldNames(["X-Keep", "x-keep", "Connection", "Connection"]), ["1", "2", "keep-alive", "x-keep"]
    )
    assert fields.get("x-keep") == "1"
    assert () == make_request_headers(fields, Changes().dropped, ())
    assert (("x-keep", "1"), ("x-keep", "2")) == make_request_headers(fields[:2], Changes().dropped, ())
