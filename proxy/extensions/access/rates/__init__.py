"""How often, and how many at once, tools may be called: `limits.rate` and `limits.concurrent`."""
