"""What operators see: `metrics.py` (Prometheus), `logs.py` (one line per call) and `recent.py` (what went wrong), told
of the requests of one turn of the event loop together (`batch.py`, an `Observer`); and `otlp.py` (spans).

All of it is made from one `CallRecord`, which `record.py` helps the story to fill. No argument value is in a record,
so none can be in a metric or a log line.
"""
