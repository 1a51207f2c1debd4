"""Logs and metrics for operators, each made from one `CallRecord`.

    metrics.py   Prometheus metrics, from the table in `metric_table.py`; `metrics_page.py` writes them
    logs.py      one line per request: `writer.py` writes it, `console_log.py` words it for people
    watches.py   the lag of the event loop, and a warning about calls without a conversation id
    recent/      the last calls, and counts of them, for the operator's port

No metric and no log line shows an argument value.
"""
