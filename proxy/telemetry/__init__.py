"""Logs, metrics and traces for operators: `metrics.py` (Prometheus, from the table in `metric_table.py`), `logs.py`
(one line per request, written by `writer.py`), `recent/` (the last calls, and counts of them) and `otlp.py` (spans).

Each is made from one `CallRecord`. No metric, no log line and no span shows an argument value.
"""
