"""toolcall-proxy: a validating sidecar in front of LLM tool services."""

__version__ = "0.1.0"
