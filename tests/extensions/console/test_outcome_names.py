"""One word for one thing: console, log, metrics and docs name what became of a request alike. The table is the metrics'
label `outcome`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from proxy.extensions.console.pages import FOLDER
from proxy.telemetry.console_log import _COLOURS
from proxy.telemetry.logs import _MESSAGES
from proxy.telemetry.metric_table import LABELS

DOCS: Final = Path(__file__).parents[3] / "docs"
NAMES: Final = LABELS["outcome"].values


def test_the_log_and_its_console_format_know_the_outcomes_of_the_metrics_and_no_others() -> None:
    assert sorted(NAMES) == sorted(_MESSAGES)
    assert sorted(NAMES) == sorted(_COLOURS)


def test_the_pages_list_and_colour_the_same_outcomes() -> None:
    (listed,) = re.findall(r"export const OUTCOMES = \[(.*)\];", (FOLDER / "parts.js").read_text())
    style = (FOLDER / "console.css").read_text()
    assert sorted(NAMES) == sorted(re.findall(r'"(\w+)"', listed))
    assert [] == [name for name in NAMES if f".{name}" not in style]


def test_the_overview_and_the_filter_write_these_names_as_words() -> None:
    overview = (FOLDER / "overview.js").read_text()
    titled = dict(
        re.findall(r'\["(\w+)", "([^"]+)"\]', overview.partition("const rare = [")[2].partition(".filter")[0])
    )
    titled |= dict(re.findall(r'figure\("(\w+)", "([^"]+)"', overview))
    assert set(NAMES) == set(titled)
    assert {name: name.replace("_", " ") for name in titled} == {
        name: title.removesuffix("s") if name.endswith("error") else title for name, title in titled.items()
    }


def test_the_columns_of_the_tools_hold_every_outcome_once() -> None:
    shares = (FOLDER / "overview.js").read_text().partition("const SHARES = ")[2].partition("const columns")[0]
    columns = {
        title: names for title, *names in map(re.compile('"([^"]+)"').findall, re.findall(r"\[(\"[^\]]+)\]", shares))
    }
    assert ["delivered", "repaired or corrected", "refused", "tool errors", "failed"] == list(columns)[:5]
    assert sorted(NAMES) == sorted(name for names in columns.values() for name in names)
    pages = {path.name: path.read_text() for path in FOLDER.glob("*.js")}
    assert [] == [name for name, text in pages.items() if re.search("right as (it|they) came|GOOD", text)]


def test_the_docs_of_the_metrics_list_them_in_the_same_order() -> None:
    listed = ", ".join(f"`{name}`" for name in NAMES)
    assert f"| The outcome of the request. | {listed} |" in (DOCS / "reference" / "metrics.md").read_text()
