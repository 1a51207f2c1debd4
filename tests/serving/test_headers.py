"""Which headers cross, as pure functions: the cases that need no socket."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from proxy.app.headers import Changes, Hop, reply_headers, request_headers
from proxy.core.model import Headers

TRUSTING = Hop("me", (ip_network("10.0.0.0/8"), ip_network("::1/128")))


def fields(hop: Hop, peer: str, headers: Headers) -> dict[str, str]:
    return dict(hop.own_fields(peer, "http", headers))


def test_what_a_trusted_hop_says_of_earlier_ones_is_kept_and_extended() -> None:
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


def test_what_anybody_else_says_is_replaced() -> None:
    said: Headers = (("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "https"), ("host", "shop.test"))

    assert {
        "via": "1.1 me",
        "x-forwarded-for": "192.0.2.1",
        "x-forwarded-proto": "http",
        "x-forwarded-host": "shop.test",
    } == fields(TRUSTING, "192.0.2.1", said)


@pytest.mark.parametrize(
    ("peer", "said", "client"),
    [
        ("192.0.2.1", "203.0.113.7", "192.0.2.1"),
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
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

    assert (("x-keep", "2"), ("authorization", "ours")) == request_headers(headers, changes.dropped, changes.set)


def test_a_field_named_by_connection_is_dropped_even_where_it_stands_first() -> None:
    headers: Headers = (("x-mine", "1"), ("connection", "close , X-Mine"), ("x-keep", "2"))

    assert (("x-keep", "2"),) == request_headers(headers, Changes().dropped, ())
    assert [("x-keep", "2")] == reply_headers((("X-Mine", "1"), ("Connection", "x-mine"), ("x-keep", "2")))
