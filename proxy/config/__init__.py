"""Reads the operator's config: the whole of it is checked, and becomes frozen values."""
