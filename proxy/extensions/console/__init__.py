"""The operator's pages: whether the proxy works, what happened to calls, and what to change in a schema."""
