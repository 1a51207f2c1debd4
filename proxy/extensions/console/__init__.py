"""The operator's pages: what is served, what happened to calls, and what to change in a schema."""
