"""The operator's port."""
