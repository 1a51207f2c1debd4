"""`import openapi` and `serve --openapi`."""
