"""docs/reference/metrics.md lists the metrics of the table, and the table describes what `/metrics` shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from proxy.telemetry.metric_table import LABELS, METRICS
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.metrics_page import write_page
from tests.docs.metrics import GOMIND, PAGE, gomind, page
from tests.telemetry.all_metrics import OF_THE_PROCESS, list_metrics
from tests.telemetry.queries import mistakes


def test_the_page_lists_what_the_catalogue_has() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_of_other_systems_has_gominds_metrics() -> None:
    assert "\n".join(gomind()) in (PAGE.parents[1] / "evidence" / "other-systems.md").read_text(encoding="utf-8")


def test_the_metrics_page_shows_the_meanings_of_the_catalogue() -> None:
    text = write_page(Metrics([Served("/weather", "weather")], "digest"))[1].decode()
    shown = {family.name: family.documentation for family in text_string_to_metric_families(text)}
    described = {metric.name.removesuffix("_total"): metric.meaning for metric in METRICS.values()}

    assert described == {name: meaning for name, meaning in shown.items() if not name.startswith("process_")}
    assert {name for name in shown if name.startswith("process_")} == {
        name.removesuffix("_total") for name in OF_THE_PROCESS
    }


def test_the_expressions_next_to_gominds_names_exist() -> None:
    assert [] == [mistake for expression in GOMIND.values() for mistake in mistakes(expression)]


def test_every_label_has_a_meaning_and_every_meaning_a_label() -> None:
    used = {label for metric in list_metrics().values() for label in metric.labels}
    own = {
        (metric.name, label) for metric in list_metrics().values() for label in metric.own if label not in metric.labels
    }

    assert set() == own
    assert used <= set(LABELS) | {label for metric in list_metrics().values() for label in metric.own}
    assert set(LABELS) <= used
