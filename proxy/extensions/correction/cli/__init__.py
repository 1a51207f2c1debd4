"""`evaluate`, and `demo`."""
