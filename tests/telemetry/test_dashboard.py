"""Every query of the dashboard can be read and names only what the catalogue has."""

from __future__ import annotations

import json
import re

import pytest

from tests.tables import each_row
from tests.telemetry.all_metrics import list_metrics
from tests.telemetry.promql import Named, named
from tests.telemetry.queries import DASHBOARD, filled, metrics_in, mistakes, panels, variables


def test_an_expression_is_taken_apart() -> None:
    query = named('histogram_quantile(0.9, sum by (le, route) (rate(a_bucket{route=~"x|y", tool!=""}[5m]))) > 2 and b')

    assert [Named("a_bucket", (("route", "=~", "x|y"), ("tool", "!=", ""))), Named("b", ())] == query.metrics
    assert {"le", "route"} == query.grouped


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("toolproxy_request_total", ["toolproxy_request_total is not a metric"]),
        ("toolproxy_overhead_seconds", ["toolproxy_overhead_seconds is not a series of a histogram"]),
        ('toolproxy_repairs_total{rul="x"}', ["toolproxy_repairs_total has no label rul"]),
        ('toolproxy_requests_total{outcome="done"}', ["toolproxy_requests_total never has outcome='done'"]),
        ('toolproxy_requests_total{outcome=~"refused|done"}', ["toolproxy_requests_total never has outcome='done'"]),
        ("sum by (rule) (toolproxy_requests_total)", ["no metric here has the label rule"]),
        ('sum by (rule) (rate(toolproxy_repairs_total{job=~"a"}[5m]))', []),
    ],
)
def test_a_name_that_is_none_is_found(expression: str, found: list[str]) -> None:
    assert found == mistakes(expression)


@pytest.mark.parametrize("expression", ["sum(", "sum)", "a{b=", "sum by x", "a ; b"])
def test_rejects_text_that_is_no_expression(expression: str) -> None:
    with pytest.raises(ValueError, match=r"bracket|brace|not read"):
        named(expression)


@each_row(("title", "expression"), [*panels()], ids=lambda value: value[:40])
def test_a_panel_names_only_what_there_is(title: str, expression: str) -> None:
    assert [] == mistakes(filled(expression)), title


@pytest.mark.parametrize(("name", "query"), [*variables()])
def test_a_variable_names_only_what_there_is(name: str, query: str) -> None:
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
    assert found is not None
    assert [] == mistakes(f"sum by ({found[2]}) ({filled(found[1])})")


def test_schema_ids_and_finalisation_retries_have_panels() -> None:
    """Compozy's acceptance criterion; a finalisation is a route without an upstream."""
    expressions = dict(panels())

    assert "schema_id" in named(filled(expressions["Tools and their schemas"])).grouped
    retries = named(filled(expressions["Finalisation retries"]))
    assert [("toolproxy_attempts_total", False), ("toolproxy_tool_info", True)] == [
        (metric.metric, ("kind", "=", "validate") in metric.matchers) for metric in retries.metrics
    ]


def test_every_metric_has_a_panel() -> None:
    shown = {name for _, expression in panels() for name in metrics_in(named(filled(expression)))}

    assert set(list_metrics()) == shown


def test_the_file_is_a_dashboard_that_fits_any_grafana() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in dashboard["panels"]]
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps([panel.get("targets") for panel in dashboard["panels"]])))

    assert len(ids) == len(set(ids))
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == used
    assert {"${datasource}"} == {
        target["datasource"]["uid"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    }
    assert [] == [
        panel["title"] for panel in dashboard["panels"] if panel["type"] != "row" and "description" not in panel
    ]


def test_no_panel_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_every_panel_asks_for_the_namespace_and_the_pod_that_are_chosen() -> None:
    chosen = {("namespace", "=~", "$namespace"), ("pod", "=~", "$pod")}
    asked = [(title, metric) for title, expression in panels() for metric in named(expression).metrics]

    # In `toolproxy_build_info`, the name is enough: it only picks the proxy out of the metrics that every process has.
    assert [] == [
        title
        for title, metric in asked
        if metric != Named("toolproxy_build_info", ()) and not chosen <= set(metric.matchers)
    ]
