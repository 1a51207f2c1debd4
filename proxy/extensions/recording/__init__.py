"""What happened to calls, written for others.

record_section.py, recorder.py, record_file.py, line.py     lines of JSON: arguments (or substitutes) and results
comparing.py, schema_comparison.py                          the same calls, validated by another config
escalations.py, delivery.py                                 a signed notice of each escalation, to a webhook
tracing.py, spans.py, otlp.py                               spans of requests, by OTLP over HTTP (the extra `otel`)
"""
