"""What operators see: `metrics.py` (Prometheus) and `logs.py` (one line per call). Both implement `Observer`.

All of it is made from one `CallRecord`, which `record.py` helps the story to fill. No argument value is in a record,
so none can be in a metric or a log line.
"""
