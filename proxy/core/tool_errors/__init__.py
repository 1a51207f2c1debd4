"""Upstream answers and complaints as failures; backoff and circuit breaker."""
