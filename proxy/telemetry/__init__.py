"""Logs, metrics and traces for operators, each made from one `CallRecord`.

    metrics.py   Prometheus metrics, from the table in `metric_table.py`; `metrics_page.py` writes them
    logs.py      one line per request: `writer.py` writes it, `console_log.py` words it for people
    traces.py    the spans of a request; `otlp.py` exports them
    watches.py   the lag of the event loop, and a warning about calls without a conversation id
    recent/      the last calls, and counts of them, for the operator's port

No metric, no log line and no span shows an argument value.
"""
