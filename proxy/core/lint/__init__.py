"""Findings about a schema that its author should know: keywords that guard nothing, and values that cannot exist."""
