"""The verbs for model servers."""
