"""Records of calls, written for others.

`record_section.py`, `recorder.py`, `record_file.py` and `line.py` write lines of JSON: arguments (or substitutes) and
results. `comparing.py` and `schema_comparison.py` validate the same calls by another config. `escalations.py` and
`delivery.py` send a signed notice of each escalation to a webhook. `tracing.py`, `spans.py` and `otlp.py` send spans of
requests by OTLP over HTTP (the extra `otel`).
"""
