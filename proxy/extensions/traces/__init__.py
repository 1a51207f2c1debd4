"""Traces: the spans of requests, by OTLP over HTTP (the extra `otel`).

`spans.py` makes the spans of a finished request, `otlp.py` exports them, `tracing.py` reads the environment.
"""
