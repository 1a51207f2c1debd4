"""Plugins of other packages."""
