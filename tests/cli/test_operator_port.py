"""What verbs that ask the operator's port say where it does not answer them."""

from __future__ import annotations

from proxy.cli.drain import write_refusal


def test_a_missing_token_is_told_with_the_ways_to_give_it() -> None:
    assert (
        "no token: name its file with --token-file, or put it into TOOLCALL_PROXY_ADMIN_TOKEN (after `demo` or "
        "`make run` it is the part after `#k=` in the console's link)"
    ) == write_refusal(401, {"error": "no token"})


def test_any_other_refusal_is_told_as_it_is() -> None:
    assert "no such filter" == write_refusal(400, {"error": "no such filter"})
    assert "no operator's port  (it is where `admin.listen` says)" == write_refusal(404, {})
