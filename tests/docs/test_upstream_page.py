"""docs/upstream.md agrees with the rules: the tests make its tables and look for them there."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.contract.policy import ResendPolicy
from proxy.core.model.values import UpstreamReply
from proxy.core.tool_errors.backoff import RULES, BudgetPolicy, ResendDenied
from proxy.core.tool_errors.circuit_breaker import SHOWN_AS, BreakerPolicy, Closed, ConcurrencyPolicy, HalfOpen, Open
from proxy.core.tool_errors.classify import classify_answer
from proxy.core.tool_errors.complaints import STATUSES
from proxy.core.tool_errors.dialects import DIALECTS
from tests.core.test_backoff import CATEGORIES, DECISION_FLOW, DECISION_MATRIX

PAGE = (Path(__file__).parents[2] / "docs" / "upstream.md").read_text()

# The statuses in each row of the table of statuses.
STATUS_ROWS = {
    "400, 409, 422": (400, 409, 422),
    "401, 403": (401, 403),
    "404": (404,),
    "408": (408,),
    "425": (425,),
    "429": (429,),
    "other 4xx": (402, 405, 406, 410, 413, 418, 451),
    "504": (504,),
    "501, 505": (501, 505),
    "other 5xx": (500, 502, 503, 599),
}


def status_row(name: str) -> str:
    failures = [classify_answer(UpstreamReply(status, (), b""), 0.0) for status in STATUS_ROWS[name]]
    meant = {(failure.code.name, failure.code.category, failure.may_retry) for failure in failures if failure}
    assert len(meant) == 1, f"{name} does not mean one thing"
    ((code, category, retryable),) = meant
    return f"| {name} | `{code}` | {category} | {'yes' if retryable else 'no'} |"


def gomind_rows() -> list[str]:
    """GoMind's rows, those together that mean the same here."""
    together: dict[tuple[str, ...], list[str]] = {}
    for row in (*DECISION_FLOW, *DECISION_MATRIX, *CATEGORIES):
        does = [f"`{reason}`" if reason else "no" for reason in (row.plain, row.declared)]
        together.setdefault((row.gomind, *does, row.stricter), []).append(row.name.replace("|", "/"))
    return [f"| {'; '.join(names)} | {' | '.join(cells)} |" for cells, names in together.items()]


@pytest.mark.parametrize("name", STATUS_ROWS)
def test_the_page_says_what_a_status_means(name: str) -> None:
    assert status_row(name) in PAGE


def test_the_page_has_every_rule_in_its_order() -> None:
    table = "\n".join(f"| `{rule.reason}` | {rule.when} |" for rule in RULES)
    assert table in PAGE


def test_the_page_holds_gominds_tables_against_what_is_done() -> None:
    page = Path(__file__).parents[2] / "docs" / "evidence" / "other-systems.md"
    assert "\n".join(gomind_rows()) in page.read_text(encoding="utf-8")


def test_the_page_names_every_dialect_that_is_read() -> None:
    assert [] == [dialect.name for dialect in DIALECTS if f"`{dialect.name}`" not in PAGE]


def test_the_page_names_defaults_states_and_labels() -> None:
    resend, breaker, budget = ResendPolicy(), BreakerPolicy(), BudgetPolicy()
    expected = [
        ", ".join(map(str, sorted(STATUSES))),
        f"at most {resend.max_resends} times",
        f"{resend.backoff * 1000:.0f} ms",
        f"{resend.max_backoff * 1000:.0f} ms",
        f"{budget.ratio * 100:.0f} for every hundred",
        f"{budget.per_second:.0f} per second",
        f"{budget.saved:.0f} are saved up",
        f"{breaker.failures} failures in a row",
        f"{breaker.open_for:.0f} s",
        f"{ConcurrencyPolicy(1).wait:.0f} s",
        *(f"`{why}`" for why in ResendDenied),
        *(f"{SHOWN_AS[kind]} {word}" for kind, word in ((Closed, "closed"), (HalfOpen, "half-open"), (Open, "open"))),
    ]
    assert [] == [text for text in expected if text not in PAGE]
