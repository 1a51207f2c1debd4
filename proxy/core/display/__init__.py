"""How values are shown: preview, redaction, truncation, suggestions."""
