"""The verb, and what `check --live` asks."""
