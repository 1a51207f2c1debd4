"""Shows values: preview, redaction, truncation, suggestions."""
