"""The verb, and `check --live`."""
