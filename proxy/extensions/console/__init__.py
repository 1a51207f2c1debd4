"""The operator's pages: whether the proxy works, the last calls, and improvements of schemas."""
