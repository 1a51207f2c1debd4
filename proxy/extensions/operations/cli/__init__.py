"""`import`, `check --live` and `serve --openapi`."""
