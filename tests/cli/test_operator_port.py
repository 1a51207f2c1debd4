"""Errors of verbs that call the operator's port and get no success."""

from __future__ import annotations

from proxy.cli.drain import write_refusal


def test_reports_a_missing_token_with_the_ways_to_give_it() -> None:
    assert (
        "no token: name its file with --token-file, or put it into TOOLCALL_PROXY_ADMIN_TOKEN (after `demo` or "
        "`make run` it is the part after `#k=` in the console's link)"
    ) == write_refusal(401, {"error": "no token"})


def test_reports_any_other_error_unchanged() -> None:
    assert "no such filter" == write_refusal(400, {"error": "no such filter"})
    assert "no operator's port  (it is where `admin.listen` says)" == write_refusal(404, {})
