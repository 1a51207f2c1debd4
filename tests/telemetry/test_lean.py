"""What serves calls does without the libraries for scrapes and for people: they are loaded when somebody asks."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import io, sys
from proxy.interfaces import CallRecord
from proxy.app import Serving
from proxy.telemetry.batch import Batch
from proxy.telemetry.logs import make_log
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.recent import Recent

def loaded():
    return [name for name in ("prometheus_client", "structlog") if name in sys.modules]

metrics, stream = Metrics([], "digest"), io.StringIO()
log = make_log(stream, "json", "info", lambda: 0.0)
batch = Batch(metrics, log, Recent(lambda: 0.0), lambda: 0.0)
for outcome in ("delivered", "refused"):
    batch.finished(CallRecord("r", "/weather", outcome=outcome))
print(len(stream.getvalue().splitlines()), *loaded())
log.event("draining")
print(*loaded())
metrics.page()
print(*loaded())
"""


def test_calls_are_counted_and_logged_before_the_libraries_are_loaded() -> None:
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout

    assert ["2", "structlog", "prometheus_client structlog"] == said.splitlines()
