"""The alerts: what they name exists, each has its page in the runbook, and each rings when it should and only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.telemetry.prometheus import promtool
from tests.telemetry.queries import ALERTS, ROOT, RUNBOOK, alerts, mistakes

NAMES: Final = [alert["alert"] for alert in alerts()]

CALL: Final = 'route="/weather",tool="weather"'


def series(name: str, labels: str, values: str) -> dict[str, str]:
    """One input series of promtool: `0+3x60` counts three more each minute for an hour."""
    joined = ",".join(filter(None, ('namespace="n",job="j",instance="i"', labels)))
    return {"series": f"{name}{{{joined}}}", "values": values}


def judged(**rates: int) -> list[dict[str, str]]:
    """So many calls a minute, by what the check said."""
    return [
        series("toolproxy_validations_total", f'{CALL},outcome="{outcome}",mode="enforce"', f"0+{rate}x180")
        for outcome, rate in rates.items()
    ]


def counted(name: str, labels: str, rate: int | str) -> dict[str, str]:
    return series(f"toolproxy_{name}", labels, f"0+{rate}x180" if isinstance(rate, int) else rate)


def finished(**rates: int) -> list[dict[str, str]]:
    return [counted("requests_total", f'{CALL},outcome="{outcome}"', rate) for outcome, rate in rates.items()]


def asked(**rates: int) -> list[dict[str, str]]:
    return [
        counted("corrections_total", f'{CALL},event="validation_feedback_{event}"', rate)
        for event, rate in rates.items()
    ]


def spread(name: str, labels: str, below: dict[str, int], count: int) -> list[dict[str, str]]:
    """A histogram of `count` values a minute, of which so many are at most each bound."""
    label = f"{labels}," if labels else ""
    found = [
        counted(f"{name}_bucket", f'{label}le="{bound}"', rate) for bound, rate in {**below, "+Inf": count}.items()
    ]
    return [*found, counted(f"{name}_count", labels, count)]


UP: Final = 'upstream="tools"'
# Each alert: series that make it ring, and series beside which it keeps quiet.
CASES: Final[dict[str, tuple[list[dict[str, str]], list[dict[str, str]]]]] = {
    "ToolproxyRepairsHigh": (judged(passed=7, repaired=3), judged(passed=8, repaired=2, skipped=0)),
    "ToolproxyRefusalsHigh": (judged(passed=9, rejected=1), judged(passed=95, rejected=5)),
    "ToolproxyCorrectedLow": (
        [counted("episodes_total", CALL, 4)],
        [counted("episodes_total", CALL, 5), counted("corrected_total", f'{CALL},attempts="1"', 4)],
    ),
    "ToolproxyDeliveredLow": (
        [*finished(delivered=90, upstream_error=4), counted("errors_total", f'{CALL},code="INTERNAL_ERROR"', 2)],
        # A healthy mix: 12 % of the calls are wrong at first, and the tool answers some with its own 404.
        [
            *finished(
                delivered=70, repaired=3, corrected=11, refused=12, tool_error=9, upstream_error=1, passthrough=9
            ),
            counted("errors_total", f'{CALL},code="INVALID_ARGUMENTS"', 12),
        ],
    ),
    "ToolproxyEscalations": (
        [*judged(rejected=10), counted("escalations_total", CALL, 1)],
        [*judged(passed=100), counted("escalations_total", CALL, 1)],
    ),
    "ToolproxyCallCapsExceeded": (
        [counted("caps_exceeded_total", CALL, 1)],
        [counted("caps_exceeded_total", CALL, "0x60 9x120")],
    ),
    "ToolproxyCorrectionLayerFailing": (asked(started=10, success=7, failed=3), asked(started=10, success=9)),
    "ToolproxyCorrectionBudgetExhausted": (
        [counted("correction_budget_exhausted_total", f'{CALL},budget="per_hour"', 1)],
        [counted("correction_budget_exhausted_total", f'{CALL},budget="per_hour"', "3x180")],
    ),
    "ToolproxyAnswersBroken": (
        [counted("answers_total", f'{CALL},outcome="{outcome}"', 1) for outcome in ("passed", "broken")],
        [counted("answers_total", f'{CALL},outcome="{outcome}"', 1) for outcome in ("passed", "unread")],
    ),
    "ToolproxySecondJudgeDisagrees": (
        [counted("second_opinions_total", f'{CALL},outcome="disagreed"', 1)],
        [counted("second_opinions_total", f'{CALL},outcome="agreed"', 5)],
    ),
    "ToolproxyHookFailures": (
        [counted("hook_failures_total", 'hook="h",point="before_decision",reason="timeout"', 1)],
        [counted("hook_failures_total", 'hook="h",point="before_decision",reason="timeout"', "3x180")],
    ),
    "ToolproxyCalloutFailures": (
        [counted("callouts_total", 'callout="c",point="before_call",outcome="timeout"', 1)],
        [counted("callouts_total", 'callout="c",point="before_call",outcome="refuse"', 1)],
    ),
    "ToolproxyUpstreamFaults": (
        [
            counted("upstream_requests_total", f'{UP},status="2xx"', 9),
            counted("upstream_requests_total", f'{UP},status="_other"', 1),
            counted("upstream_errors_total", f'{UP},error="connection_refused"', 1),
        ],
        [
            counted("upstream_requests_total", f'{UP},status="2xx"', 99),
            counted("upstream_errors_total", f'{UP},error="connection_refused"', 1),
        ],
    ),
    "ToolproxyBreakerOpen": (
        [counted("upstream_breaker_state", UP, "2x180")],
        [counted("upstream_breaker_state", UP, "1x180")],
    ),
    "ToolproxyResendBudgetSpent": (
        [counted("upstream_resends_denied_total", f'{UP},why="budget"', 1)],
        [counted("upstream_resends_denied_total", f'{UP},why="max"', 1)],
    ),
    "ToolproxyGone": (
        [counted("build_info", 'version="1"', "1x165 _x15")],
        [counted("build_info", 'version="1"', "1x180")],
    ),
    "ToolproxyRestarting": (
        [series("process_start_time_seconds", "", "1x155 2x5 3x5 4x15"), counted("build_info", "", "1x180")],
        [series("process_start_time_seconds", "", "1x155 2x5 3x5 4x15")],
    ),
    "ToolproxyInternalErrors": (
        [counted("errors_total", f'{CALL},code="INTERNAL_ERROR"', "_x175 1x5")],
        [counted("errors_total", f'{CALL},code="INVALID_ARGUMENTS"', 1)],
    ),
    "ToolproxyConfigReloadFailed": (
        [counted("config_last_reload_successful", "", "0x180")],
        [counted("config_last_reload_successful", "", "1x180")],
    ),
    "ToolproxyConfigDiffers": (
        [counted("config_info", f'hash="{digest}"', "1x180") for digest in "ab"],
        [counted("config_info", f'toolcall_proxy="{release}",hash="{release}"', "1x180") for release in "ab"],
    ),
    "ToolproxyConfigNeedsRestart": (
        [counted("config_restart_needed", "", "2x180")],
        [counted("config_restart_needed", "", "0x180")],
    ),
    "ToolproxyStateBackendDown": (
        [counted("state_backend_up", "", "0x180")],
        [counted("state_backend_up", "", "1x180")],
    ),
    "ToolproxyOverheadHigh": (
        spread("overhead_seconds", 'stage="total"', {"0.001": 90, "0.05": 95, "0.1": 100}, 100),
        spread("overhead_seconds", 'stage="total"', {"0.001": 99, "0.05": 100, "0.1": 100}, 100),
    ),
    "ToolproxyEventLoopLag": (
        spread("event_loop_lag_seconds", "", {"0.001": 90, "0.1": 95, "0.25": 120}, 120),
        spread("event_loop_lag_seconds", "", {"0.001": 118, "0.1": 120, "0.25": 120}, 120),
    ),
    "ToolproxyStuckDraining": ([counted("draining", "", "1x180")], [counted("draining", "", "0x175 1x5")]),
    "ToolproxySpansLost": (
        [counted("spans_total", 'result="dropped"', 1)],
        [counted("spans_total", 'result="exported"', 1), counted("spans_total", 'result="failed"', "0x180")],
    ),
    "ToolproxyLogLinesDropped": (
        [counted("log_lines_dropped_total", 'reason="queue_full"', 1)],
        [counted("log_lines_dropped_total", 'reason="queue_full"', "9x180")],
    ),
}


@pytest.mark.parametrize("alert", alerts(), ids=NAMES)
def test_an_alert_names_only_what_there_is(alert: dict[str, Any]) -> None:
    assert [] == mistakes(alert["expr"])


@pytest.mark.parametrize("alert", alerts(), ids=NAMES)
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    assert {"summary", "description", "runbook_url"} == set(alert["annotations"])
    assert f"docs/runbook.md#{alert['alert'].lower()}" == alert["annotations"]["runbook_url"]


def test_the_runbook_has_a_section_for_each_alert_and_for_nothing_else() -> None:
    page = RUNBOOK.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (Toolproxy\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))

    assert sorted(NAMES) == sorted(sections)
    assert [] == [
        name for name, text in sections.items() if not all(f"**{part}**" in text for part in ("Means", "Look", "Do"))
    ]


def test_every_alert_has_a_case() -> None:
    assert NAMES == list(CASES)


def test_gominds_four_thresholds_are_kept() -> None:
    limits = {alert["alert"]: re.search(r"([<>] 0\.\d+)", alert["expr"]) for alert in alerts()[:4]}

    assert {
        "ToolproxyRepairsHigh": "> 0.20",
        "ToolproxyRefusalsHigh": "> 0.05",
        "ToolproxyCorrectedLow": "< 0.80",
        "ToolproxyDeliveredLow": "< 0.95",
    } == {name: found and found[1] for name, found in limits.items()}


def test_promtool_reads_the_rules() -> None:
    checked = promtool("check", "rules", str(ALERTS), folder=ROOT)

    assert (0, f"SUCCESS: {len(NAMES)} rules found") == (checked.returncode, checked.stdout.split("\n")[1].strip())


def of_job(name: str, given: list[dict[str, str]]) -> list[dict[str, str]]:
    """The series of one case; their job distinguishes them from those of the others."""
    return [{**each, "series": each["series"].replace('job="j"', f'job="{name}"')} for each in given]


def firing(name: str, value: int) -> dict[str, Any]:
    """That an alert rings for its own case at the end, or does not."""
    rings = f'(count(ALERTS{{alertname="{name}", alertstate="firing", job="{name}"}}) or vector(0)) > bool 0'
    return {"expr": rings, "eval_time": "3h", "exp_samples": [{"labels": "{}", "value": value}]}


@pytest.mark.large
def test_each_alert_rings_when_it_should_and_only_then(tmp_path: Path) -> None:
    tests = [
        {
            "name": what,
            "interval": "1m",
            "input_series": [each for name, case in CASES.items() for each in of_job(name, case[side])],
            "promql_expr_test": [firing(name, value) for name in CASES],
        }
        for what, side, value in (("rings", 0, 1), ("keeps quiet", 1, 0))
    ]
    written = tmp_path / "alerts.test.yaml"
    written.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", str(written), folder=tmp_path)

    assert (0, "") == (done.returncode, done.stderr.strip()), done.stdout
